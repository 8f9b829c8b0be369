//! Limits on gpuprobe's memory and delays that hold under any attack.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::harness::promises::{Delay, LATE, MEMORY_BYTES, assert_ends, resident_bytes};
use crate::harness::{Gpuprobe, Report, Setup, Workload};

/// Report interval.
const INTERVAL: Duration = Duration::from_millis(200);

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
    memory_bytes: u64,
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
        let report = assert_ends(&mut self.gpuprobe);
        let said = self.gpuprobe.said();
        assert!(seen.gap < INTERVAL + LATE, "{seen:?}: {said:#?}");
        assert!(seen.memory_bytes < MEMORY_BYTES, "{seen:?}: {said:#?}");
        let bytes = self.allocations * 4096;
        report.assert_holds(self.victim.pid, bytes, self.allocations);
        (report, said)
    }
}

/// Monitors the reports and the memory of process `pid` until stopped.
fn watch(pid: u32, reports: &PathBuf, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let (mut delay, mut size) = (Delay::of(pid), 0);
    while !stop.load(Ordering::Relaxed) {
        let now = fs::metadata(reports).map_or(0, |file| file.len());
        if now != size {
            (delay, size) = (Delay::of(pid), now);
        }
        seen.gap = seen.gap.max(delay.so_far());
        seen.memory_bytes = seen.memory_bytes.max(resident_bytes(pid));
        thread::sleep(Duration::from_millis(10));
    }
    seen
}
