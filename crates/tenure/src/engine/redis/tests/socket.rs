//! A server over its socket on this machine.

use std::path::Path;

use super::*;

async fn refused(path: &Path) -> Error {
    let background = Background::threads().unwrap();
    let url = format!("redis+unix://:s3cret@{}", path.display());
    let error = open(&url, &background).await.map(|_| ()).unwrap_err();
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    assert!(error.to_string().starts_with("connect on redis: "), "{error}");
    error
}

#[tokio::test]
async fn what_is_no_socket_is_told_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.sock");
    let error = refused(&missing).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "it may appear when the server starts");
    assert!(error.to_string().contains(missing.to_str().unwrap()), "{error}");
    assert!(
        error.to_string().contains("No such file") && error.to_string().contains("check the path"),
        "{error}"
    );

    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for path in [file.as_path(), folder.path()] {
        let error = refused(path).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(&format!("{} is not a socket", path.display())), "{error}");
    }
    // Left by a server that is gone.
    let stale = folder.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert_eq!(refused(&stale).await.kind(), ErrorKind::Unavailable);
    let long = folder.path().join("x".repeat(200));
    assert_eq!(refused(&long).await.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_user_comes_in_and_comes_back_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.sock");
    let mut server = Server::start_with(&["--unixsocket", path.to_str().unwrap(), "--requirepass", "right"]);
    assert_eq!(refused(&path).await.kind(), ErrorKind::Denied, "a wrong password");
    let background = Background::threads().unwrap();
    let url = format!("redis+unix://default:right@{}?db=3", path.display());
    let redis = open(&url, &background).await.unwrap();
    granted(redis.claim(&claim(&key("a"), 1, true)).await.unwrap());
    let mut raw = server.raw();
    raw.text(&["AUTH", "right"]);
    assert_eq!(raw.number(&["EXISTS", "a"]), 0);
    raw.text(&["SELECT", "3"]);
    assert_eq!(raw.number(&["EXISTS", "a"]), 1);
    drop(raw);
    server.kill();
    let error = redis.claim(&claim(&key("b"), 2, true)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.run();
    granted(redis.claim(&claim(&key("b"), 3, true)).await.unwrap());
}
