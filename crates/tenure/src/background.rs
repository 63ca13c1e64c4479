//! Where a client's own work runs, by which clock, and with which random numbers.
//!
//! A client works on two threads of its own: one carries requests, one renews. So neither a blocked
//! task nor the end of the caller's runtime can drop a request that is on the wire (R3), and a
//! stuck request cannot starve renewal (R2). In the simulator both are one paused runtime.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::key::Owner;
use crate::time::Moment;

/// The threads of a client that works on nobody else's.
const OWN_THREADS: usize = 2;

/// How long ending a thread may take. It waits for nothing but the task that runs there at that moment.
const STOP_PATIENCE: Duration = Duration::from_millis(100);

/// A clock that never steps back and runs on during suspend.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Moment;
}

/// The machine's `CLOCK_BOOTTIME`.
#[derive(Clone, Copy, Debug)]
struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        Moment::now()
    }
}

/// The clock of a tokio runtime, which tests may pause.
#[derive(Debug)]
struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(0) + self.0.elapsed()
    }
}

/// The executor, clock and random numbers of one client. Cheap to clone.
#[derive(Clone)]
pub struct Background(Arc<Inner>);

struct Inner {
    requests: Handle,
    renewals: Handle,
    clock: Arc<dyn Clock>,
    random: Mutex<StdRng>,
    pending: Pending,
    threads: Mutex<Vec<Thread>>,
}

/// One of the client's own threads.
struct Thread {
    id: std::thread::ThreadId,
    /// Dropped, it ends the thread.
    stop: oneshot::Sender<()>,
    /// Ends when the thread has: with it, all that ran there is dropped.
    ended: mpsc::Receiver<()>,
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Background({} pending)", self.0.pending.count())
    }
}

impl Background {
    /// Two threads of its own and the machine's clock: what a client uses.
    ///
    /// # Errors
    /// `Internal` if the threads cannot be started.
    pub fn threads() -> Result<Background> {
        let (requests, stop_requests) = start_thread("tenure-requests")?;
        let (renewals, stop_renewals) = start_thread("tenure-renewals")?;
        let random = StdRng::from_os_rng();
        let threads = vec![stop_requests, stop_renewals];
        Ok(Background::new(requests, renewals, Arc::new(BootClock), random, threads))
    }

    /// As [`threads`](Background::threads), but requests run on the tokio runtime it is called in;
    /// only renewal has a thread of its own.
    ///
    /// On a current-thread runtime this saves two changes of thread in each request. The price: requests
    /// stand still when that runtime is blocked, and when it ends whatever is held ends with its term
    /// instead of being given back at once.
    ///
    /// # Errors
    /// `Internal` outside a tokio runtime, or if the thread cannot be started.
    pub fn beside_the_caller() -> Result<Background> {
        let requests = Handle::try_current().map_err(|error| {
            Error::new(ErrorKind::Internal, "there is no tokio runtime here").source_error(error)
        })?;
        let (renewals, stop) = start_thread("tenure-renewals")?;
        Ok(Background::new(requests, renewals, Arc::new(BootClock), StdRng::from_os_rng(), vec![stop]))
    }

    /// The tokio runtime it is called in, its clock, and random numbers from a seed: for simulation.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn on_this_runtime(seed: u64) -> Background {
        let clock = Arc::new(RuntimeClock(tokio::time::Instant::now()));
        Background::on_this_runtime_with(seed, clock)
    }

    /// As [`on_this_runtime`](Background::on_this_runtime), with a clock that is given; clients of one
    /// simulation share it.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn on_this_runtime_with(seed: u64, clock: Arc<dyn Clock>) -> Background {
        let here = Handle::current();
        Background::new(here.clone(), here, clock, StdRng::seed_from_u64(seed), Vec::new())
    }

    fn new(
        requests: Handle,
        renewals: Handle,
        clock: Arc<dyn Clock>,
        random: StdRng,
        threads: Vec<Thread>,
    ) -> Background {
        Background(Arc::new(Inner {
            requests,
            renewals,
            clock,
            random: Mutex::new(random),
            pending: Pending::default(),
            threads: Mutex::new(threads),
        }))
    }

    /// Now, by the client's clock.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.0.clock.now()
    }

    /// Where requests run. Engines run their connections there.
    #[must_use]
    pub fn requests(&self) -> &Handle {
        &self.0.requests
    }

    /// Where renewals run. Engines run the connection for renewals there.
    #[must_use]
    pub fn renewals(&self) -> &Handle {
        &self.0.renewals
    }

    /// A new owner.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner::from_id(self.lock_random().random())
    }

    /// A random span from `range`, for jitter.
    #[must_use]
    pub fn jitter(&self, range: std::ops::Range<Duration>) -> Duration {
        self.lock_random().random_range(range)
    }

    fn lock_random(&self) -> std::sync::MutexGuard<'_, StdRng> {
        self.0.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs work to its end, whatever becomes of the caller. The last handle waits a moment for it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let owed = self.owe();
        self.0.requests.spawn(async move {
            work.await;
            drop(owed);
        });
    }

    /// Notes that work is owed, from before it is begun until it ends.
    pub(crate) fn owe(&self) -> Owed {
        self.0.pending.count.fetch_add(1, Ordering::SeqCst);
        Owed(self.clone())
    }

    /// Sleeps until a moment of the client's clock. Call it on the client's runtimes only.
    ///
    /// A timer of the runtime stands still while the machine is suspended, the clock does not; so
    /// it sleeps a second at most before it looks again.
    pub async fn sleep_until(&self, moment: Moment) {
        loop {
            let left = moment.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(Duration::from_secs(1))).await;
        }
    }

    /// Whether requests run on the very thread of those who ask.
    #[cfg(feature = "redis")]
    pub(crate) fn is_on_the_callers_thread(&self) -> bool {
        let threads = self.0.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.len() < OWN_THREADS && self.0.requests.runtime_flavor() == RuntimeFlavor::CurrentThread
    }

    /// Waits, blocking, until nothing is pending or `patience` is over. True if nothing is left.
    pub(crate) fn drain_blocking(&self, patience: Duration) -> bool {
        let threads = self.0.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // In a simulation, and beside the caller on a runtime of one thread, the work needs the very thread
        // that would wait for it.
        let needs_us = threads.len() < OWN_THREADS
            && Handle::try_current().is_ok_and(|here| here.runtime_flavor() == RuntimeFlavor::CurrentThread);
        threads.is_empty() || needs_us || self.0.pending.wait(patience)
    }

    /// Whether nothing is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.pending.count() == 0
    }

    /// Ends the threads. What is still pending is dropped. Waits a moment for that, so that an engine which
    /// has something to clean up in its own drop does it before the program ends.
    pub(crate) fn stop(&self) {
        let threads = std::mem::take(&mut *self.0.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let here = std::thread::current().id();
        let mut ending = Vec::new();
        for Thread { id, stop, ended } in threads {
            drop(stop);
            // The last handle may be dropped by work on one of them.
            ending.extend((id != here).then_some(ended));
        }
        for ended in ending {
            let _ = ended.recv_timeout(STOP_PATIENCE);
        }
    }
}

fn start_thread(name: &str) -> Result<(Handle, Thread)> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Internal, "a background thread could not be started").source_error(error)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let (ends, ended) = mpsc::channel::<()>();
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // Ends when `stop` is dropped; then the runtime drops whatever still runs.
            let _ = runtime.block_on(stopped);
            drop(runtime);
            drop(ends);
        })
        .map_err(failed)?;
    Ok((handle, Thread { id: thread.thread().id(), stop, ended }))
}

/// Counts work that must not be lost when the last handle goes.
#[derive(Default)]
struct Pending {
    count: AtomicUsize,
    /// Whether somebody waits: else the end of work, which is often, costs no system call.
    awaited: AtomicBool,
    waiting: Mutex<()>,
    changed: Condvar,
}

/// Work that is owed, as long as this lives.
pub(crate) struct Owed(Background);

impl Pending {
    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn wait(&self, patience: Duration) -> bool {
        // Said before it looks at the count; who counts down looks at this afterwards.
        self.awaited.store(true, Ordering::SeqCst);
        let guard = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.changed.wait_timeout_while(guard, patience, |()| self.count() > 0);
        result.map(|(_, timeout)| !timeout.timed_out()).unwrap_or(false)
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        let pending = &self.0.0.pending;
        if pending.count.fetch_sub(1, Ordering::SeqCst) == 1 && pending.awaited.load(Ordering::SeqCst) {
            let _guard = pending.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            pending.changed.notify_all();
        }
    }
}
