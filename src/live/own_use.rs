//! The processor time and memory of gpuprobe itself.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

use gpuprobe_os::proc;
use gpuprobe_report::metrics::OwnUse;

/// Use of this process and its children, the readers.
pub(super) fn own_use(start: Duration) -> OwnUse {
    let mut used = OwnUse {
        start,
        ..OwnUse::default()
    };
    let Ok(own) = proc::stat(std::process::id()) else {
        return used;
    };
    // With children that have ended, replaced readers for example.
    let mut ticks = u64::try_from(own.cutime.saturating_add(own.cstime)).unwrap_or(0);
    let mut pages = 0_u64;
    let children = children();
    let children = children.into_iter().filter_map(|pid| proc::stat(pid).ok());
    for stat in std::iter::once(own).chain(children) {
        ticks = ticks.saturating_add(stat.utime).saturating_add(stat.stime);
        pages = pages.saturating_add(stat.rss);
    }
    let cpu_ms = ticks.saturating_mul(1000) / value(SysconfVar::CLK_TCK).max(1);
    used.cpu = Duration::from_millis(cpu_ms);
    used.resident_bytes = pages.saturating_mul(value(SysconfVar::PAGE_SIZE));
    used
}

/// Processor time of this thread so far.
pub(super) fn thread_cpu() -> Duration {
    let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    used.map_or(Duration::ZERO, Duration::from)
}

/// Now, since 1970.
pub(super) fn start() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// A limit or size of the system, which is set on every Linux.
fn value(variable: SysconfVar) -> u64 {
    let value = sysconf(variable).ok().flatten();
    value
        .and_then(|value| u64::try_from(value).ok())
        .unwrap_or(0)
}

/// The children of all threads, if the kernel tells.
fn children() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let words = lists.iter().flat_map(|list| list.split_whitespace());
    words.filter_map(|pid| pid.parse().ok()).collect()
}
