//! Lines that fall silent, swallow answers or are cut; and lines that speak TLS.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::*;

const LIMIT: Duration = Duration::from_millis(200);

/// A line to the server that can fall silent, with both ends believing that it is there.
struct Proxy {
    url: String,
    silent: Arc<AtomicBool>,
    cut: Arc<Notify>,
}

impl Proxy {
    async fn start(server: &Server) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let (silent, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let (port, proxy) = (server.port(), Proxy { url, silent: silent.clone(), cut: cut.clone() });
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (silent, cut) = (silent.clone(), cut.clone());
                // Those that are made later are sound.
                let old = !silent.load(Ordering::Acquire);
                tokio::spawn(async move {
                    tokio::select! {
                        () = cut.notified() => {}
                        () = carry(client, server, &silent, old) => {}
                    }
                });
            }
        });
        proxy
    }

    async fn client(&self) -> Redis {
        let background = Background::threads().unwrap();
        Redis::options(&self.url).unwrap().request_limit(LIMIT).connect(&background).await.unwrap()
    }

    /// From now on nothing comes back on the lines there are; what is sent still arrives.
    fn swallow_answers(&self) {
        self.silent.store(true, Ordering::Release);
    }

    fn cut(&self) {
        self.cut.notify_waiters();
    }
}

async fn carry(client: TcpStream, server: TcpStream, silent: &AtomicBool, old: bool) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let forth = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    };
    let back = async {
        let mut bytes = vec![0; 4096];
        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
            let swallow = old && silent.load(Ordering::Acquire);
            if !swallow && to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(forth, back);
}

#[tokio::test]
async fn a_silent_line_is_noticed_while_somebody_waits_for_a_message() {
    let server = Server::start();
    let proxy = Proxy::start(&server).await;
    let (holder, waiter) = (client(&server).await, proxy.client().await);
    let key = key("a");
    granted(holder.claim(&claim(&key, 1, true)).await.unwrap());
    let mut place = busy(waiter.claim(&claim(&key, 2, true)).await.unwrap());
    proxy.swallow_answers();
    let begin = Instant::now();
    let woken = tokio::time::timeout(Duration::from_secs(5), &mut place.wake).await.unwrap();
    assert_eq!(woken, Woken::Ask);
    assert!(begin.elapsed() < Duration::from_secs(2) + LIMIT * 2, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_swallowed_answer_is_unknown_and_can_be_undone() {
    let server = Server::start();
    let proxy = Proxy::start(&server).await;
    let redis = proxy.client().await;
    let key = key("a");
    proxy.swallow_answers();
    let begin = Instant::now();
    let error = redis.claim(&claim(&key, 1, true)).await.unwrap_err();
    assert!(error.may_have_taken_effect(), "{error}");
    assert!(begin.elapsed() < LIMIT * 2);
    assert_eq!(server.raw().number(&["EXISTS", "a"]), 1);
    let over = Instant::now() + Duration::from_secs(3);
    while redis.release(&claim(&key, 1, true).stake()).await.is_err() {
        assert!(Instant::now() < over);
    }
    assert_eq!(server.raw().number(&["EXISTS", "a"]), 0);
}

#[tokio::test]
async fn a_cut_line_makes_what_is_under_way_unknown_and_the_next_request_goes_on() {
    let server = Server::start();
    let proxy = Proxy::start(&server).await;
    let redis = proxy.client().await;
    let key = key("a");
    proxy.swallow_answers();
    let first = claim(&key, 1, true);
    let under_way = redis.claim(&first);
    let cutting = async {
        tokio::time::sleep(LIMIT / 4).await;
        proxy.cut();
    };
    let (answer, ()) = tokio::join!(under_way, cutting);
    let error = answer.unwrap_err();
    assert!(error.may_have_taken_effect() && error.to_string().contains("closed"), "{error}");
    assert_eq!(redis.release(&first.stake()).await.unwrap(), Released::Released);
    granted(redis.claim(&claim(&key, 2, true)).await.unwrap());
}

#[tokio::test]
async fn a_dropped_release_is_carried_out() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    // Also where the script has to be sent again.
    server.raw().text(&["SCRIPT", "FLUSH"]);
    let stake = claim(&key, 1, true).stake();
    let mut release = redis.release(&stake);
    let _ = std::future::poll_fn(|cx| std::task::Poll::Ready(release.as_mut().poll(cx).is_ready())).await;
    drop(release);
    let over = Instant::now() + Duration::from_secs(2);
    while server.raw().number(&["EXISTS", "a"]) == 1 {
        assert!(Instant::now() < over);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_dropped_claim_that_was_not_sent_never_is() {
    let mut server = Server::start();
    let redis = client(&server).await;
    let (gone, stays) = (key("gone"), key("stays"));
    server.kill();
    // Makes the line known as broken.
    let _ = redis.release(&claim(&gone, 9, true).stake()).await;
    let first = claim(&gone, 1, true);
    let mut dropped = redis.claim(&first);
    let _ = std::future::poll_fn(|cx| std::task::Poll::Ready(dropped.as_mut().poll(cx).is_ready())).await;
    drop(dropped);
    let second = claim(&stays, 2, true);
    let carried = redis.claim(&second);
    let running = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.run();
    };
    let (answer, ()) = tokio::join!(carried, running);
    granted(answer.unwrap());
    assert_eq!(server.raw().number(&["EXISTS", "gone"]), 0);
}

#[tokio::test]
async fn tls_is_spoken_and_the_certificate_is_checked() {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("cert.pem"), certified.cert.pem()).unwrap();
    std::fs::write(path("key.pem"), certified.signing_key.serialize_pem()).unwrap();
    let tls_port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port().to_string();
    let (cert, secret) = (path("cert.pem"), path("key.pem"));
    let _server = Server::start_with(&[
        "--tls-port",
        &tls_port,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &secret,
        "--tls-auth-clients",
        "no",
        "--tls-ca-cert-file",
        &cert,
    ]);
    let url = format!("rediss://localhost:{tls_port}");
    let background = Background::threads().unwrap();
    let error = open(&url, &background).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");

    let redis = open(&format!("{url}?ca={cert}"), &background).await.unwrap();
    let key = key("a");
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    let mut place = busy(redis.claim(&claim(&key, 2, true)).await.unwrap());
    redis.release(&claim(&key, 1, true).stake()).await.unwrap();
    assert!(matches!((&mut place.wake).await, Woken::Granted(_)));
}
