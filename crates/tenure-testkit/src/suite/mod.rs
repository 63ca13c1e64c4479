//! The suite that every engine must pass: plain functions over a [`Harness`].
//!
//! A case is written and registered in one place, by the `cases!` macro of its module. [`main`]
//! runs every case against every [`Contender`] as a test named `engine::group::case`:
//!
//! - a case whose needs the contender lacks *by nature* becomes a check that it does lack them, so
//!   that the matrix has no holes and the list of exceptions cannot go stale;
//! - a case that cannot run *here*, because a server is not installed, is shown as ignored with the
//!   reason; with `TENURE_REQUIRE_ALL=1`, as on CI, it fails instead.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::harness::{Harness, Need};

mod tools;

/// Defines cases and registers them: `cases! { group: /// Doc. async fn name(h) needs [..] { .. } }`.
macro_rules! cases {
    ($group:ident: $(
        $(#[$attribute:meta])*
        async fn $name:ident($harness:ident) $(needs [$($need:ident),+])? $body:block
    )+) => {
        $(
            $(#[$attribute])*
            pub async fn $name($harness: &dyn $crate::harness::Harness) $body
        )+

        /// The cases of this group.
        pub(super) const CASES: &[$crate::suite::Case] = &[
            $($crate::suite::Case {
                group: stringify!($group),
                name: stringify!($name),
                needs: &[$($($crate::harness::Need::$need),+)?],
                run: |harness| Box::pin($name(harness)),
            }),+
        ];
    };
}

pub mod access;
pub mod cancel;
pub mod claims;
pub mod faults;
pub mod leases;
pub mod locks;
pub mod operators;
pub mod queues;
pub mod redis;
pub mod renewals;
pub mod views;
pub mod waiters;

/// All groups of cases: one for each module.
const GROUPS: &[&[Case]] = &[
    claims::CASES,
    queues::CASES,
    renewals::CASES,
    views::CASES,
    operators::CASES,
    locks::CASES,
    leases::CASES,
    cancel::CASES,
    faults::CASES,
    waiters::CASES,
    redis::CASES,
    access::CASES,
];

/// No case may take longer.
const CASE_LIMIT: Duration = Duration::from_secs(30);
/// How many cases run at once: most of the time they wait.
const AT_ONCE: usize = 4;

type Run = for<'a> fn(&'a dyn Harness) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One thing that every engine must do.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The module it is in.
    pub group: &'static str,
    /// What must be true.
    pub name: &'static str,
    /// What it needs beside clients.
    pub needs: &'static [Need],
    run: Run,
}

impl Case {
    /// Runs it; panics if the engine fails it.
    pub async fn run(&self, harness: &dyn Harness) {
        (self.run)(harness).await;
    }
}

/// All cases.
#[must_use]
pub fn all() -> Vec<&'static Case> {
    GROUPS.iter().copied().flatten().collect()
}

/// An engine in one form of deployment.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// Its name, the first part of the names of its tests.
    pub name: &'static str,
    /// Why it cannot be had here; `None` if it can.
    pub missing: fn() -> Option<String>,
    /// Makes a deployment for one case.
    pub start: fn() -> Box<dyn Harness>,
    /// What it lacks by nature, and why.
    pub lacks: &'static [(Need, &'static str)],
}

/// What becomes of a case with a contender.
enum Plan {
    Run,
    Check(Need, &'static str),
    CannotRun(String),
}

impl Contender {
    fn plan(&self, case: &Case, missing: Option<&str>) -> Plan {
        if let Some(reason) = missing {
            return Plan::CannotRun(reason.to_owned());
        }
        match self.lacks.iter().find(|(need, _)| case.needs.contains(need)) {
            Some((need, why)) => Plan::Check(*need, why),
            None => Plan::Run,
        }
    }
}

/// One test for each contender and case. `require_all`: one that cannot run fails.
#[must_use]
pub fn trials(contenders: &[Contender], require_all: bool) -> Vec<Trial> {
    let mut trials = Vec::new();
    for contender in contenders {
        let missing = (contender.missing)();
        for case in all() {
            trials.push(trial(*contender, case, missing.as_deref(), require_all));
        }
    }
    trials
}

fn trial(contender: Contender, case: &'static Case, missing: Option<&str>, require_all: bool) -> Trial {
    let name = format!("{}::{}::{}", contender.name, case.group, case.name);
    match contender.plan(case, missing) {
        Plan::Run => Trial::test(name, move || in_time(contender, case)),
        Plan::Check(need, why) => {
            Trial::test(name, move || check_that_it_lacks(contender, need)).with_kind(format!("n/a: {why}"))
        }
        Plan::CannotRun(reason) => Trial::test(name, {
            let reason = reason.clone();
            move || Err(Failed::from(reason))
        })
        .with_kind(format!("cannot run: {reason}"))
        .with_ignored_flag(!require_all),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failed> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn in_time(contender: Contender, case: &'static Case) -> Result<(), Failed> {
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let harness = (contender.start)();
        tokio::time::timeout(CASE_LIMIT, case.run(&*harness)).await
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended.map_err(|_| Failed::from(format!("it did not end within {CASE_LIMIT:?}")))
}

fn check_that_it_lacks(contender: Contender, need: Need) -> Result<(), Failed> {
    let runtime = runtime()?;
    let _entered = runtime.enter();
    let harness = (contender.start)();
    if need.met_by(&*harness) {
        return Err(
            format!("{} has {need:?} now: take it off the list of what it lacks", contender.name).into()
        );
    }
    Ok(())
}

/// Runs everything, as the `main` of a test binary without a harness.
#[must_use]
pub fn main(contenders: &[Contender]) -> ExitCode {
    let require_all = std::env::var_os("TENURE_REQUIRE_ALL").is_some_and(|value| value != "0");
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    libtest_mimic::run(&arguments, trials(contenders, require_all)).exit_code()
}
