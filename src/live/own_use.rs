//! The processor time and memory of gpuprobe itself.

use std::time::Duration;

use procfs::process::Process;

use gpuprobe_os::proc::stat;
use gpuprobe_report::metrics::OwnUse;

/// Use of this process, which began at `start`, and of its children: the helpers, and those that they replaced.
pub(super) fn own_use(start: Duration) -> OwnUse {
    let own = Process::myself();
    let tasks = own.iter().flat_map(Process::tasks).flatten().flatten();
    let children = tasks.flat_map(|task| task.children().unwrap_or_default());
    let (mut ticks, mut pages) = (0, 0);
    let pids = children.chain([std::process::id()]);
    for used in pids.filter_map(|pid| stat(pid).ok()) {
        let of_ended = u64::try_from(used.cutime + used.cstime).unwrap_or(0);
        ticks += used.utime + used.stime + of_ended;
        pages += used.rss;
    }
    OwnUse {
        cpu: Duration::from_millis(ticks * 1000 / procfs::ticks_per_second()),
        resident_bytes: pages * procfs::page_size(),
        start,
    }
}
