//! Limits on gpuprobe's memory and delays that hold under any attack.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::harness::child::readers_of;
use crate::harness::{Gpuprobe, Report, Setup, Workload};

/// Report interval, and the allowed delay.
const INTERVAL: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(1);
/// Time limit of a shutdown.
const END: Duration = Duration::from_secs(2);
/// Limit of anonymous memory of gpuprobe and its file readers together.
const MEMORY_KIB: u64 = 256 << 10;

/// A monitored gpuprobe, and a well-behaved victim program.
pub(super) struct Watched {
    pub(super) gpuprobe: Gpuprobe,
    victim: Workload,
    allocations: u64,
    stop: Arc<AtomicBool>,
    watcher: Option<JoinHandle<Seen>>,
}

/// The worst measurements.
#[derive(Debug, Default)]
struct Seen {
    gap: Duration,
    memory_kib: u64,
}

impl Watched {
    pub(super) fn start(setup: Setup, victim: Workload) -> Self {
        let millis = format!("{}ms", INTERVAL.as_millis());
        let gpuprobe = setup.interval(&millis).start();
        let stop = Arc::new(AtomicBool::new(false));
        let (pid, reports) = (gpuprobe.child.pid(), gpuprobe.reports.clone());
        let stopped = Arc::clone(&stop);
        let watcher = thread::spawn(move || watch(pid, &reports, &stopped));
        Self {
            gpuprobe,
            victim,
            allocations: 0,
            stop,
            watcher: Some(watcher),
        }
    }

    /// Allocates in the victim, and waits for some reports.
    pub(super) fn go_on(&mut self) {
        self.victim.say("alloc 4096 10");
        self.allocations += 10;
        for _ in 0..3 {
            self.gpuprobe.next_report();
        }
    }

    pub(super) fn victim_pid(&self) -> u32 {
        self.victim.pid
    }

    /// Stops gpuprobe and checks the limits; returns the last report and the messages.
    pub(super) fn end(mut self) -> (Report, Vec<String>) {
        self.go_on();
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.watcher.take().unwrap().join().unwrap();
        let begin = Instant::now();
        self.gpuprobe
            .child
            .signal(nix::sys::signal::Signal::SIGTERM);
        self.gpuprobe.wait();
        let took = begin.elapsed();
        let report = self.gpuprobe.final_report();
        let said = self.gpuprobe.said();
        assert!(took < END, "it took {took:?} to end: {said:#?}");
        assert!(seen.gap < INTERVAL + LATE, "{seen:?}: {said:#?}");
        assert!(seen.memory_kib < MEMORY_KIB, "{seen:?}: {said:#?}");
        let bytes = self.allocations * 4096;
        report.assert_holds(self.victim.pid, bytes, self.allocations);
        (report, said)
    }
}

/// Monitors the reports and the memory of process `pid` until stopped.
fn watch(pid: u32, reports: &PathBuf, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let (mut last, mut size) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        let now = fs::metadata(reports).map_or(0, |file| file.len());
        if now != size {
            (last, size) = (Instant::now(), now);
        }
        seen.gap = seen.gap.max(last.elapsed());
        let all = readers_of(pid).into_iter().chain([pid]);
        let memory = all.map(|pid| memory_kib(pid).unwrap_or(0)).sum();
        seen.memory_kib = seen.memory_kib.max(memory);
        thread::sleep(Duration::from_millis(10));
    }
    seen
}

/// Anonymous memory of a process: the kernel can reclaim file pages at any time.
fn memory_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let lines = status.lines();
    let kinds = ["RssAnon:", "RssShmem:"];
    let of = |line: &str| {
        let value = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some(lines.filter_map(of).sum())
}
