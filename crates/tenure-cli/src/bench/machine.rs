//! What it was measured on, and what this process uses.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The machine and the versions, as names and values for people.
pub(super) struct Machine(pub(super) Vec<(&'static str, String)>);

impl Machine {
    /// As the system tells. What it does not tell is left out.
    pub(super) fn here() -> Machine {
        let mut facts = vec![("tenure", env!("CARGO_PKG_VERSION").to_owned())];
        if cfg!(debug_assertions) {
            facts.push(("build", "debug: figures mean nothing".to_owned()));
        }
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        facts.push(("cores", cores.to_string()));
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        if let Some((_, model)) = model {
            facts.push(("cpu", model.trim().to_owned()));
        }
        let system = rustix::system::uname();
        let (name, release) = (system.sysname().to_string_lossy(), system.release().to_string_lossy());
        facts.push(("kernel", format!("{name} {release}")));
        Machine(facts)
    }
}

/// The CPU time of this process so far; a server is another process.
pub(super) fn process_cpu() -> Duration {
    cpu_of(ClockId::ProcessCPUTime)
}

/// The CPU time of this thread so far.
pub(super) fn thread_cpu() -> Duration {
    cpu_of(ClockId::ThreadCPUTime)
}

fn cpu_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The memory of this process; zero where the system does not tell.
pub(super) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
