//! R12: no password appears in what is traced, at any level, whatever goes wrong.
//!
//! A test binary of its own: clients work on threads of their own, so the collector is the process's.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::ErrorKind;
use tenure_testkit::proxy::{Opaque, Proxy};
use tenure_testkit::server::{Data, RedisOptions, RedisServer};
use tracing_subscriber::fmt::MakeWriter;

const PASSWORD: &str = "open-sesame-4711";
const WRONG: &str = "wrong-sesame-0815";

/// Everything that was traced.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Captured {
    type Writer = Captured;

    fn make_writer(&'a self) -> Captured {
        self.clone()
    }
}

impl Captured {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r12_no_password_is_traced() {
    let captured = Captured::default();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(captured.clone())
        .init();
    let options = RedisOptions { password: Some(PASSWORD.to_owned()), ..RedisOptions::default() };
    let server = RedisServer::start(options).unwrap();
    let line = Proxy::start(server.address(), Opaque).unwrap();
    let url = |password: &str| format!("redis://:{password}@{}", line.address());

    // Connects, works, is refused.
    let tenure = tenure::connect(url(PASSWORD)).await.unwrap();
    let lock = tenure.mutex("secret").ttl(Duration::from_secs(30));
    lock.acquire().await.unwrap().release().await.unwrap();
    let error = tenure::connect(url(WRONG)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(tenure::connect(format!("nope://app:{PASSWORD}@h")).await.is_err());
    assert!(
        tenure::connect(format!("{PASSWORD}@h:1"))
            .await
            .is_err_and(|error| !format!("{error:?}").contains(PASSWORD))
    );

    // Connects again, after a cut, and to a server that has another password by then.
    let lease = lock.acquire().await.unwrap();
    line.cut();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let _ = lease.release().await;
    lock.acquire().await.unwrap().release().await.unwrap();
    server.raw(0).unwrap().demand(&["CONFIG", "SET", "requirepass", WRONG]).unwrap();
    line.cut();
    let mut refused = false;
    for _ in 0..5 {
        refused |= lock.acquire().await.is_err_and(|error| error.kind() == ErrorKind::Denied);
    }
    assert!(refused, "it still gets in");

    // The server is gone, and back.
    server.kill();
    assert!(lock.acquire().await.is_err());
    server.restart(Data::Dropped).unwrap();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    lock.acquire().await.unwrap().release().await.unwrap();
    tenure.close().await.unwrap();

    let text = captured.text();
    // It did hear the client.
    assert!(text.contains("a connection to redis broke"), "{text}");
    assert!(text.contains("TRACE") || text.contains("DEBUG"), "{text}");
    for secret in [PASSWORD, WRONG] {
        assert!(!text.contains(secret), "{text}");
    }
}
