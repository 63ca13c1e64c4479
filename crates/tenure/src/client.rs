//! The client: one engine, one keeper, and the lines of its tasks.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::background::Background;
use crate::engine::memory::Memory;
use crate::engine::{Engine, Mode};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::LossCause;
use crate::keeper::Keeper;
use crate::key::Key;
use crate::line::Line;
use crate::mutex::Mutex as DistributedMutex;
use crate::observe::{ClassMeters, DEFAULT_CLASS};
use crate::promises::Promises;
use crate::retry::Retry;
use crate::time::{DEFAULT_TERM, check_term, read_span};
use crate::work::{self, Work};

/// How long dropping the last handle waits for releases that are under way.
const DROP_PATIENCE: Duration = Duration::from_millis(500);
/// How long `close` waits for what is under way.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the store that a URL names.
///
/// | URL | engine | feature |
/// | --- | --- | --- |
/// | `memory:` | this client only, for tests and examples | always there |
/// | `redis://` `rediss://[user:password@]host[:port][/database]` | one Redis server | `redis` |
/// | `redis+unix://[user:password@]/path` | one Redis server, over its socket on this machine | `redis` |
/// | `sqlite:PATH` | a file, shared by the processes of one machine | `sqlite` |
///
/// Parameters follow a `?`. `ttl=10s` is known to all engines: the term of this client's locks where
/// [`Mutex::ttl`](crate::Mutex::ttl) says nothing. The others are on each engine's page.
///
/// # Errors
/// `Invalid` for a URL that is not understood or a `ttl` that the engine cannot keep, `Denied` if the
/// store refuses the login or a right that is needed, `Unsupported` if the store is too old,
/// `Unavailable` if it cannot be reached.
///
/// # Cancel safety
/// Nothing is stored by connecting; dropping the future closes what was opened.
pub async fn connect(url: impl AsRef<str>) -> Result<Tenure> {
    let url = url.as_ref();
    connect_on(url, Background::threads, &Retry::ONCE).await.map_err(|error| error.operation("connect"))
}

/// As [`connect`], again as `retry` says while the store is `Unavailable`: for a service that may start
/// before its store.
///
/// # Errors
/// As [`connect`]: what the last try met, with how many there were. All but `Unavailable` ends it at once, as
/// does a policy that is out of bounds (`Invalid`).
///
/// # Cancel safety
/// As [`connect`].
pub async fn connect_retrying(url: impl AsRef<str>, retry: &Retry) -> Result<Tenure> {
    let connecting = connect_on(url.as_ref(), Background::threads, retry);
    connecting.await.map_err(|error| error.operation("connect"))
}

/// As [`connect`], with requests on the tokio runtime it is called in: faster on a current-thread runtime,
/// at a price that [`Background::beside_the_caller`] tells.
///
/// # Errors
/// As [`connect`]; `Internal` outside a tokio runtime.
///
/// # Cancel safety
/// As [`connect`].
pub async fn connect_beside(url: impl AsRef<str>) -> Result<Tenure> {
    let connecting = connect_on(url.as_ref(), Background::beside_the_caller, &Retry::ONCE);
    connecting.await.map_err(|error| error.operation("connect"))
}

async fn connect_on(url: &str, background: fn() -> Result<Background>, retry: &Retry) -> Result<Tenure> {
    let (ttl, mut tries) = (ttl_of(url)?, retry.begin()?);
    let background = background()?;
    let engine = loop {
        match open(url, &background).await {
            Ok(engine) => break engine,
            Err(error) if error.kind() != ErrorKind::Unavailable => return Err(error),
            Err(error) if !tries.again(&background).await => return Err(tries.in_vain(error)),
            Err(_) => {}
        }
    };
    let default_term = match ttl {
        None => DEFAULT_TERM,
        Some(ttl) => {
            let promises = engine.promises();
            check_term(ttl, &promises)
                .map_err(|error| error.engine(promises.engine).advice("change ttl in the URL"))?
        }
    };
    Ok(Tenure::assemble(engine, background, default_term))
}

/// What the URL says of the client's default term.
fn ttl_of(url: &str) -> Result<Option<Duration>> {
    let query = url.split('#').next().and_then(|url| url.split_once('?')).map_or("", |(_, query)| query);
    let ttl = query.split('&').filter_map(|part| part.strip_prefix("ttl=")).next_back();
    ttl.map(|text| read_span("ttl", text)).transpose()
}

async fn open(url: &str, background: &Background) -> Result<Arc<dyn Engine>> {
    let Some((scheme, _)) = url.split_once(':') else {
        return Err(Error::new(ErrorKind::Invalid, "that is no URL").advice(KNOWN));
    };
    match scheme {
        "memory" => {
            only_ttl(url)?;
            Ok(Arc::new(Memory::new(background)))
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" => crate::engine::redis::open(url, background).await,
        #[cfg(not(feature = "redis"))]
        "redis" | "rediss" | "redis+unix" => {
            Err(Error::new(ErrorKind::Invalid, "this build has no engine for redis:")
                .advice("switch on the feature redis of the crate tenure"))
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => crate::engine::sqlite::open(url, background).await,
        #[cfg(not(feature = "sqlite"))]
        "sqlite" => Err(Error::new(ErrorKind::Invalid, "this build has no engine for sqlite:")
            .advice("switch on the feature sqlite of the crate tenure")),
        _ => Err(unknown_scheme(scheme)),
    }
}

/// The memory engine has nothing to be told: neither a place, nor parameters of its own.
fn only_ttl(url: &str) -> Result<()> {
    let rest = url.strip_prefix("memory:").unwrap_or(url);
    let known = |parameters: &str| parameters.split('&').all(|one| one.is_empty() || one.starts_with("ttl="));
    if rest.is_empty() || rest.strip_prefix('?').is_some_and(known) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, "the URL says more than memory: and ttl")
        .engine("memory")
        .advice("write memory: or memory:?ttl=10s; each client has a store of its own"))
}

/// What a URL of this build looks like.
const KNOWN: &str = match (cfg!(feature = "redis"), cfg!(feature = "sqlite")) {
    (true, true) => "write memory:, sqlite:PATH, redis://HOST:PORT, rediss://HOST:PORT or redis+unix:///PATH",
    (true, false) => "write memory:, redis://HOST:PORT, rediss://HOST:PORT or redis+unix:///PATH",
    (false, true) => "write memory: or sqlite:PATH",
    (false, false) => "write memory:; other engines need a feature of the crate tenure",
};

/// Never shows the whole URL: it may hold a password.
fn unknown_scheme(scheme: &str) -> Error {
    let is_scheme = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let what = match is_scheme && !scheme.is_empty() {
        true => format!("no engine is known for \"{scheme}:\""),
        false => "that is no URL".to_owned(),
    };
    Error::new(ErrorKind::Invalid, what).advice(KNOWN)
}

/// A client of one store. Cheap to clone; all clones share its connections, keeper and queues.
///
/// Dropping the last handle (leases and locks are handles too) waits up to 500 ms for releases
/// that are under way; [`close`](Tenure::close) waits longer and reports.
#[derive(Clone)]
pub struct Tenure(Arc<Handle>);

struct Handle(Arc<Core>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.keeper.close();
        if !self.0.background.drain_blocking(DROP_PATIENCE) {
            tracing::warn!("a release was still under way when the last handle was dropped");
        }
        // Where the runtime of requests is not ours it goes on, and so does what nobody has begun yet.
        for job in self.0.work.close() {
            self.0.background.requests().spawn(job);
        }
        self.0.background.stop();
    }
}

/// Lines by what they are for. A line lives as long as somebody uses it: locks, leases, its task.
pub(crate) type Lines = HashMap<(Key, Mode), Weak<Line>>;

pub(crate) struct Core {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) background: Background,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) promises: Promises,
    pub(crate) work: Work,
    pub(crate) default_term: Duration,
    lines: Mutex<Lines>,
    default_meters: Arc<ClassMeters>,
    meters: Mutex<HashMap<&'static str, Arc<ClassMeters>>>,
    closed: AtomicBool,
}

impl Core {
    pub(crate) fn lock_lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line of a key.
    pub(crate) fn line(self: &Arc<Self>, key: &Key, mode: Mode) -> Arc<Line> {
        let mut lines = self.lock_lines();
        let known = lines.entry((key.clone(), mode)).or_default();
        known.upgrade().unwrap_or_else(|| {
            let line = Arc::new(Line::new(self, key.clone(), mode));
            *known = Arc::downgrade(&line);
            line
        })
    }

    /// Forgets a line that has ended, unless another has taken its place.
    pub(crate) fn forget_line(&self, key: &Key, mode: Mode) {
        let mut lines = self.lock_lines();
        let id = (key.clone(), mode);
        if lines.get(&id).is_some_and(|line| line.strong_count() == 0) {
            lines.remove(&id);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn meters(&self, class: Option<&'static str>) -> Arc<ClassMeters> {
        let Some(class) = class else { return self.default_meters.clone() };
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.entry(class).or_insert_with(|| Arc::new(ClassMeters::new(self.promises.engine, class))).clone()
    }
}

impl Tenure {
    /// A client of an engine that is open already, with two threads of its own.
    ///
    /// # Errors
    /// `Internal` if the threads cannot be started.
    pub fn with_engine(engine: Arc<dyn Engine>) -> Result<Tenure> {
        Ok(Tenure::with_background(engine, Background::threads()?))
    }

    /// A client of an engine, working where `background` says. Give it the one that the engine was
    /// opened with; it ends with the client.
    #[must_use]
    pub fn with_background(engine: Arc<dyn Engine>, background: Background) -> Tenure {
        Tenure::assemble(engine, background, DEFAULT_TERM)
    }

    fn assemble(engine: Arc<dyn Engine>, background: Background, default_term: Duration) -> Tenure {
        let promises = engine.promises();
        let core = Arc::new(Core {
            keeper: Keeper::start(engine.clone(), &background),
            work: Work::default(),
            default_meters: Arc::new(ClassMeters::new(promises.engine, DEFAULT_CLASS)),
            engine,
            background,
            promises,
            default_term,
            lines: Mutex::default(),
            meters: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        // It polls many futures in one task, so the budget of one task does not fit it.
        core.background.requests().spawn(tokio::task::coop::unconstrained(work::dispatch(core.clone())));
        Tenure(Arc::new(Handle(core)))
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.0
    }

    pub(crate) fn class_meters(&self, class: Option<&'static str>) -> Arc<ClassMeters> {
        self.core().meters(class)
    }

    /// A lock that one holder has at a time. Nothing is sent until it is acquired; a key that is not
    /// allowed is refused then.
    pub fn mutex(&self, key: impl AsRef<str>) -> DistributedMutex {
        DistributedMutex::new(self.clone(), key.as_ref())
    }

    /// The term of this client's locks where [`Mutex::ttl`](crate::Mutex::ttl) says nothing: the `ttl`
    /// of the URL, or 30 s.
    #[must_use]
    pub fn default_term(&self) -> Duration {
        self.core().default_term
    }

    /// The engine, to ask it directly.
    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.core().engine
    }

    /// What the engine promises.
    #[must_use]
    pub fn promises(&self) -> &Promises {
        &self.core().promises
    }

    /// Ends the client: waiting tasks get `Closed`, leases are lost (told so first) and given back.
    ///
    /// # Errors
    /// `Unavailable` if something could not be given back within 5 s; it ends with its term.
    ///
    /// # Cancel safety
    /// What was begun goes on in the background.
    pub async fn close(self) -> Result<()> {
        let core = self.core();
        core.closed.store(true, Ordering::Release);
        let mut lines: Vec<_> = core.lock_lines().values().filter_map(Weak::upgrade).collect();
        // In one order, so that a simulation repeats itself.
        lines.sort_by(|one, other| one.key.cmp(&other.key));
        for line in lines {
            if let Some(hold) = line.close(core)
                && hold.lose(LossCause::Closed)
            {
                line.hold_lost(core, &hold);
            }
        }
        let patience = core.background.now() + CLOSE_PATIENCE;
        while !core.background.is_idle() {
            if core.background.now() > patience {
                return Err(Error::new(ErrorKind::Unavailable, "something could not be given back in time")
                    .operation("close")
                    .engine(core.promises.engine)
                    .advice("it ends with its term"));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure").field("engine", &self.core().engine).finish_non_exhaustive()
    }
}
