//! The processor time and memory of gpuprobe itself.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use procfs::process::{Process, Stat};

use gpuprobe_report::metrics::OwnUse;

/// Use of this process and its children: readers, and the HTTP process.
pub(super) fn own_use(start_seconds: f64) -> OwnUse {
    let mut used = OwnUse {
        start_seconds,
        ..OwnUse::default()
    };
    let Some(own) = Process::myself().and_then(|own| own.stat()).ok() else {
        return used;
    };
    // Of children that have ended, replaced readers for example.
    let ended = u64::try_from(own.cutime.saturating_add(own.cstime)).unwrap_or(0);
    used.cpu_seconds = seconds(ended);
    let children = children()
        .into_iter()
        .filter_map(|pid| Process::new(pid).ok()?.stat().ok());
    for stat in std::iter::once(own).chain(children) {
        used.cpu_seconds += seconds(stat.utime.saturating_add(stat.stime));
        used.resident_bytes = used.resident_bytes.saturating_add(resident_bytes(&stat));
    }
    used
}

/// Now, seconds since 1970.
pub(super) fn start_seconds() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / procfs::ticks_per_second().max(1) as f64
}

fn resident_bytes(stat: &Stat) -> u64 {
    stat.rss.saturating_mul(procfs::page_size())
}

/// The children of all threads, if the kernel tells.
fn children() -> Vec<i32> {
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
