//! Histories made by hand, for the tests of the invariants. Times are in milliseconds.

use std::time::Duration;

use tenure::engine::{Mode, Released};
use tenure::{Key, Moment, Owner};

use super::{Event, Expectations, History, What};

#[derive(Clone, Default)]
pub(super) struct Script(Vec<Event>);

pub(super) fn ms(at: u64) -> Moment {
    Moment::from_nanos(at * 1_000_000)
}

pub(super) fn owner(id: u128) -> Owner {
    Owner::from_id(id)
}

pub(super) fn expectations() -> Expectations {
    Expectations {
        fifo: true,
        term: Duration::from_millis(300),
        refresh: Duration::from_millis(100),
        request_limit: Duration::from_secs(1),
        slack: Duration::from_millis(50),
        patience: Duration::from_secs(10),
        woken_in_vain: 0,
    }
}

impl Script {
    pub(super) fn new() -> Script {
        Script::default()
    }

    pub(super) fn event(&mut self, client: u32, at: u64, what: What) -> &mut Script {
        let key = Key::new("orders/42").ok();
        self.0.push(Event { at: ms(at), client, key, what });
        self
    }

    pub(super) fn stay(
        &mut self,
        client: u32,
        id: u128,
        at: u64,
        what: impl Fn(Owner) -> What,
    ) -> &mut Script {
        self.event(client, at, what(owner(id)))
    }

    pub(super) fn ask(&mut self, client: u32, id: u64, mode: Mode, at: u64) -> &mut Script {
        self.event(client, at, What::AcquireBegins { attempt: id, mode })
    }

    pub(super) fn acquired(&mut self, client: u32, id: u64, token: u64, at: u64, until: u64) -> &mut Script {
        let what = What::Acquired {
            attempt: id,
            lease: id,
            owner: owner(u128::from(id)),
            token,
            valid_until: ms(until),
        };
        self.event(client, at, what)
    }

    pub(super) fn stated(&mut self, client: u32, lease: u64, at: u64, until: u64) -> &mut Script {
        self.event(client, at, What::Stated { lease, valid_until: ms(until) })
    }

    pub(super) fn told(&mut self, client: u32, lease: u64, at: u64) -> &mut Script {
        self.event(client, at, What::ToldLost { lease })
    }

    pub(super) fn given_back(&mut self, client: u32, lease: u64, at: u64) -> &mut Script {
        self.event(client, at, What::ReleaseBegins { lease }).event(
            client,
            at,
            What::ReleaseEnds { lease, answer: Some(Released::Released) },
        )
    }

    /// A lease that is valid for long and given back in time.
    pub(super) fn lease(&mut self, client: u32, id: u64, token: u64, from: u64, to: u64) -> &mut Script {
        self.ask(client, id, Mode::Exclusive, from);
        self.acquired(client, id, token, from, to + 1000).given_back(client, id, to)
    }

    pub(super) fn wrote(
        &mut self,
        client: u32,
        lease: u64,
        token: u64,
        accepted: bool,
        at: u64,
    ) -> &mut Script {
        self.event(client, at, What::Wrote { lease, token, accepted })
    }

    pub(super) fn history(&self) -> History {
        History::new(self.0.clone())
    }
}
