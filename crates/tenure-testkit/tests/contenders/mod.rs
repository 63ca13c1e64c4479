//! Which engines run the suite, in which forms of deployment.

use tenure_testkit::harness::{MemoryHarness, Need, RedisHarness};
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
];
