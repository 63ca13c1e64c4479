//! Server processes do what their methods say.

use std::time::{Duration, Instant};

use tenure_testkit::raw::{Raw, Value};
use tenure_testkit::server::{Data, RedisOptions, RedisServer};

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn a_server_answers_and_dies_with_its_handle() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let address = server.address();
    let mut raw = server.raw(0).unwrap();
    assert_eq!(raw.demand(&["SET", "a", "1"]).unwrap(), text("OK"));
    assert_eq!(raw.demand(&["GET", "a"]).unwrap(), text("1"));
    let folder = server.certificate().parent().unwrap().to_owned();
    assert!(folder.exists());
    drop(server);
    assert!(Raw::connect(address, None, 0, Duration::from_secs(1)).is_err());
    assert!(!folder.exists());
}

#[test]
fn restart_keeps_or_drops_the_data() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    server.raw(0).unwrap().demand(&["SET", "a", "1"]).unwrap();
    server.restart(Data::Kept).unwrap();
    assert_eq!(server.raw(0).unwrap().demand(&["GET", "a"]).unwrap(), text("1"));
    server.restart(Data::Dropped).unwrap();
    assert_eq!(server.raw(0).unwrap().demand(&["GET", "a"]).unwrap(), Value::Nil);
}

#[test]
fn a_paused_server_is_silent_until_it_is_resumed() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    server.pause().unwrap();
    let limit = Duration::from_millis(200);
    let mut raw = Raw::connect(server.address(), None, 0, limit).unwrap();
    assert!(raw.ask(&["PING"]).is_err());
    server.resume().unwrap();
    assert_eq!(server.raw(0).unwrap().demand(&["PING"]).unwrap(), text("PONG"));
}

#[test]
fn passwords_and_users_are_set_up() {
    let options = RedisOptions { password: Some("sesame".to_owned()), ..RedisOptions::default() };
    let server = RedisServer::start(options).unwrap();
    let mut stranger = Raw::connect(server.address(), None, 0, Duration::from_secs(1)).unwrap();
    assert!(
        matches!(stranger.ask(&["GET", "a"]).unwrap(), Value::Refused(reason) if reason.contains("NOAUTH"))
    );
    assert_eq!(server.raw(0).unwrap().demand(&["GET", "a"]).unwrap(), Value::Nil);

    let options =
        RedisOptions { users: vec!["user app on >secret ~* +get".to_owned()], ..RedisOptions::default() };
    let server = RedisServer::start(options).unwrap();
    let mut raw = server.raw(0).unwrap();
    raw.demand(&["AUTH", "app", "secret"]).unwrap();
    assert!(
        matches!(raw.ask(&["SET", "a", "1"]).unwrap(), Value::Refused(reason) if reason.contains("NOPERM"))
    );
}

#[test]
fn a_failed_start_shows_the_log() {
    let options = RedisOptions {
        extra: vec!["--no-such-option".to_owned(), "1".to_owned()],
        ..RedisOptions::default()
    };
    let begun = Instant::now();
    let message = RedisServer::start(options).unwrap_err().to_string();
    assert!(message.contains("no-such-option"), "{message}");
    assert!(begun.elapsed() < Duration::from_secs(5), "it did not notice that the process had ended");
}
