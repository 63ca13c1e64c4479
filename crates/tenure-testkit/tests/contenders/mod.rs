//! Which engines run the suite, in which forms of deployment.

use tenure_testkit::harness::{MemoryHarness, Need, RedisHarness, SqliteHarness};
use tenure_testkit::server::RedisServer;
use tenure_testkit::suite::Contender;

pub(crate) const CONTENDERS: &[Contender] = &[
    Contender {
        name: "memory",
        missing: || None,
        start: || Box::new(MemoryHarness::default()),
        lacks: &[
            (Need::Faults, "the store is in this process"),
            (Need::Words, "the store is in this process"),
            (Need::Redis, "not Redis"),
        ],
    },
    Contender {
        name: "sqlite",
        missing: || None,
        start: || Box::new(SqliteHarness::default()),
        lacks: &[
            (Need::Faults, "there is no line and no server: each client writes the file itself"),
            (Need::Words, "nothing is said: each client writes the file itself"),
            (Need::Redis, "not Redis"),
        ],
    },
    Contender {
        name: "redis",
        missing: RedisServer::missing,
        start: || Box::new(RedisHarness::plain()),
        lacks: &[],
    },
    Contender {
        name: "redis-tls",
        missing: RedisServer::missing,
        start: || Box::new(RedisHarness::dressed()),
        lacks: &[(Need::Words, "the line is encrypted")],
    },
    Contender {
        name: "redis-unix",
        missing: RedisServer::missing,
        start: || Box::new(RedisHarness::local()),
        lacks: &[
            (Need::Faults, "the line is the server's own socket: nothing stands between that could be cut"),
            (Need::Words, "the line is the server's own socket: nothing stands between that could read"),
        ],
    },
];
