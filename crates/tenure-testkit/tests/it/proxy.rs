//! The proxy does to the line what its methods say.

use std::io;
use std::time::{Duration, Instant};

use tenure_testkit::proxy::{Direction, Proxy, Resp, Verdict};
use tenure_testkit::raw::{Raw, Value};
use tenure_testkit::server::{RedisOptions, RedisServer};

const LIMIT: Duration = Duration::from_millis(300);

struct Line {
    server: RedisServer,
    proxy: Proxy,
}

impl Line {
    fn new() -> Line {
        let server = RedisServer::start(RedisOptions::default()).unwrap();
        let proxy = Proxy::start(server.address(), Resp).unwrap();
        Line { server, proxy }
    }

    fn client(&self) -> Raw {
        Raw::connect(self.proxy.address(), None, 0, LIMIT).unwrap()
    }

    fn truth(&self, key: &str) -> Value {
        self.server.raw(0).unwrap().demand(&["GET", key]).unwrap()
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn timed_out(result: &io::Result<Value>) -> bool {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
    result.as_ref().is_err_and(|error| kinds.contains(&error.kind()))
}

fn closed(result: &io::Result<Value>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock)
}

#[test]
fn messages_pass_and_are_counted() {
    let line = Line::new();
    let mut client = line.client();
    for _ in 0..100 {
        assert_eq!(client.ask(&["PING"]).unwrap(), text("PONG"));
    }
    let large = "x".repeat(300_000);
    client.demand(&["SET", "a", &large]).unwrap();
    assert_eq!(client.ask(&["GET", "a"]).unwrap(), text(&large));
    assert_eq!((line.proxy.requests(), line.proxy.replies()), (102, 102));
    assert_eq!((line.proxy.connections(), line.proxy.open()), (1, 1));
}

#[test]
fn cut_ends_connections_and_refuse_ends_new_ones() {
    let line = Line::new();
    let mut client = line.client();
    client.demand(&["PING"]).unwrap();
    line.proxy.cut();
    assert!(closed(&client.ask(&["PING"])));
    assert_eq!(line.client().ask(&["PING"]).unwrap(), text("PONG"));
    line.proxy.refuse(true);
    assert!(closed(&line.client().ask(&["PING"])));
    line.proxy.refuse(false);
    assert_eq!(line.client().ask(&["PING"]).unwrap(), text("PONG"));
}

#[test]
fn a_cut_reply_comes_after_the_request_took_effect() {
    let line = Line::new();
    line.proxy.rule(|message| if message.answers("SET") { Verdict::Cut } else { Verdict::Pass });
    assert!(closed(&line.client().ask(&["SET", "a", "1"])));
    assert_eq!(line.truth("a"), text("1"));
}

#[test]
fn a_cut_request_never_takes_effect() {
    let line = Line::new();
    line.proxy.rule(|message| {
        let cut = message.direction == Direction::Request && message.holds("set");
        if cut { Verdict::Cut } else { Verdict::Pass }
    });
    assert!(closed(&line.client().ask(&["SET", "a", "1"])));
    assert_eq!(line.truth("a"), Value::Nil);
}

#[test]
fn a_muted_connection_stays_open_and_silent() {
    let line = Line::new();
    line.proxy.rule(
        |message| {
            if message.answers("SET") && message.index == 1 { Verdict::Mute } else { Verdict::Pass }
        },
    );
    let mut client = line.client();
    client.demand(&["PING"]).unwrap();
    assert!(timed_out(&client.ask(&["SET", "a", "1"])));
    assert!(timed_out(&client.ask(&["PING"])));
    assert_eq!(line.truth("a"), text("1"));
}

#[test]
fn a_dropped_push_is_lost_alone() {
    let line = Line::new();
    let mut client = line.client();
    client.demand(&["SUBSCRIBE", "c"]).unwrap();
    line.proxy.rule(
        |message| {
            if message.is_push() && message.holds("one") { Verdict::Drop } else { Verdict::Pass }
        },
    );
    let mut other = line.server.raw(0).unwrap();
    for word in ["one", "two"] {
        assert_eq!(other.demand(&["PUBLISH", "c", word]).unwrap(), Value::Int(1));
    }
    // The next thing to arrive is the second message.
    assert_eq!(client.ask(&["PING"]).unwrap().texts(), ["message", "c", "two"]);
}

#[test]
fn held_and_delayed_messages_arrive_later() {
    let line = Line::new();
    let mut client = line.client();
    client.demand(&["PING"]).unwrap();
    line.proxy.hold(Direction::Reply, true);
    assert!(timed_out(&client.ask(&["SET", "a", "1"])));
    assert_eq!(line.truth("a"), text("1"));
    line.proxy.hold(Direction::Reply, false);

    line.proxy.hold(Direction::Request, true);
    let mut client = line.client();
    assert!(timed_out(&client.ask(&["SET", "a", "2"])));
    assert_eq!(line.truth("a"), text("1"));
    line.proxy.hold(Direction::Request, false);

    line.proxy.delay(Direction::Reply, Duration::from_millis(100));
    let begun = Instant::now();
    line.client().demand(&["PING"]).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert_eq!(line.truth("a"), text("2"));
}

#[test]
fn a_half_open_connection_hears_nothing_and_new_ones_work() {
    let line = Line::new();
    let mut client = line.client();
    client.demand(&["PING"]).unwrap();
    line.proxy.half_open();
    assert!(timed_out(&client.ask(&["SET", "a", "1"])));
    assert_eq!(line.truth("a"), Value::Nil);
    line.server.kill();
    assert!(timed_out(&client.ask(&["PING"])), "it was told that the server is gone");
    line.server.restart(tenure_testkit::server::Data::Kept).unwrap();
    assert_eq!(line.client().ask(&["PING"]).unwrap(), text("PONG"));
}
