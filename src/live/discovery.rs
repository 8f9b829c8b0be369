//! Library discovery: scans the processes of the kernel side's notices and probes what they have mapped.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::scan_queue::ScanQueue;
use super::stacks::StackState;
use super::tracer::{ProcessScan, ScanProgress, ScanPurpose, Settled, Tracer};
use crate::probe::{Notice, Rings};

/// Processes scanned in turn. Each takes a descriptor.
const MAX_AT_A_TIME: usize = 256;

/// Pending and running process scans.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    queue: ScanQueue,
    /// Scans that were interrupted, oldest first.
    begun: VecDeque<ActiveScan>,
}

/// A running scan of a process.
#[derive(Debug)]
struct ActiveScan {
    notice: Notice,
    scan: ProcessScan,
    /// CUDA functions newly probed by this scan.
    functions: usize,
    took: Duration,
}

/// The parts of a session that a scan needs.
pub(super) struct ScanContext<'a> {
    pub(super) rings: &'a mut Rings,
    pub(super) tracer: &'a mut Tracer,
    pub(super) stacks: Option<&'a mut StackState>,
}

impl Discovery {
    /// Scans processes until `until` and resumes the held ones. Returns false if scans are left, which
    /// are continued after the other rings are read.
    pub(super) fn follow(&mut self, mut with: ScanContext<'_>, until: Instant) -> Result<bool> {
        loop {
            let new = with.rings.read_notices()?;
            new.into_iter().for_each(|notice| self.queue.add(notice));
            let Some(mut begun) = self.next(&mut with) else {
                return Ok(true);
            };
            match begun.advance(with.tracer, until) {
                ScanProgress::Done => self.end(&begun),
                ScanProgress::OutOfTime | ScanProgress::Waiting(_) => self.begun.push_back(begun),
            }
            if Instant::now() > until {
                return Ok(false);
            }
        }
    }

    /// Whether a scan can go on.
    pub(super) fn is_busy(&self) -> bool {
        let may_begin = self.queue.has_running() && self.begun.len() < MAX_AT_A_TIME;
        self.queue.has_held() || may_begin || self.begun.iter().any(ActiveScan::can_go_on)
    }

    /// Whether a scan waits for the answer to a request to attach.
    pub(super) fn is_waiting(&self) -> bool {
        self.begun.iter().any(|begun| begun.scan.is_waiting())
    }

    /// Tells the scans of the answer to a request.
    pub(super) fn settled(&mut self, tracer: &mut Tracer, mut settled: Settled) {
        for begun in &mut self.begun {
            tracer.resume(&mut begun.scan, &mut settled);
            begun.note_found(tracer);
        }
    }

    /// Queues the scans again that were over budget.
    pub(super) fn requeue(&mut self) {
        self.queue.requeue();
    }

    /// Resumes the held processes without a scan, as the session ends.
    pub(super) fn resume_held(&mut self) {
        self.queue.take_held().into_iter().for_each(resume);
        self.begun.drain(..).for_each(|begun| resume(begun.notice));
    }

    /// The next scan: of a stopped process, else a new one if the limit allows it, else the oldest running one.
    fn next(&mut self, with: &mut ScanContext<'_>) -> Option<ActiveScan> {
        while let Some(notice) = self.queue.next_held() {
            if let Some(begun) = self.begin(notice, with) {
                return Some(begun);
            }
        }
        if let Some(held) = self.begun.iter().position(ActiveScan::holds_up) {
            return self.begun.remove(held);
        }
        while self.begun.len() < MAX_AT_A_TIME
            && let Some(notice) = self.queue.next_running(Instant::now())
        {
            if let Some(begun) = self.begin(notice, with) {
                return Some(begun);
            }
        }
        let oldest = self.begun.iter().position(ActiveScan::can_go_on)?;
        self.begun.remove(oldest)
    }

    /// Begins to scan a process. Returns `None` if it has ended, which is no error.
    fn begin(&mut self, notice: Notice, with: &mut ScanContext<'_>) -> Option<ActiveScan> {
        match ActiveScan::now(notice, with) {
            Ok(begun) => Some(begun),
            Err(error) => {
                tracing::debug!("process {}: {error:#}", notice.pid);
                self.queue.ended(notice.pid, None, Instant::now());
                resume(notice);
                None
            }
        }
    }

    fn end(&mut self, begun: &ActiveScan) {
        let Notice { pid, held, .. } = begun.notice;
        let is_in_vain = begun.functions == 0 && !held;
        let took = is_in_vain.then_some(begun.took);
        self.queue.ended(pid, took, Instant::now());
        resume(begun.notice);
    }
}

impl ActiveScan {
    fn now(notice: Notice, with: &mut ScanContext<'_>) -> Result<Self> {
        let start = Instant::now();
        with.tracer.probe.scan_begins(notice.pid);
        if let Some(stacks) = &mut with.stacks {
            if notice.image.is_some() {
                stacks.note_exec(notice.pid);
            }
            stacks.read_mappings(notice.pid);
            // Before the functions are probed that it may call.
            stacks.send_updates(&with.tracer.probe);
        }
        Ok(Self {
            notice,
            scan: with
                .tracer
                .begin_scan(notice.pid, ScanPurpose::Attach { late: !notice.held })?,
            functions: 0,
            took: start.elapsed(),
        })
    }

    /// Whether it does not wait for the answer to a request to attach.
    fn can_go_on(&self) -> bool {
        !self.scan.is_waiting()
    }

    /// Whether a stopped process waits for this scan, which can go on.
    fn holds_up(&self) -> bool {
        self.notice.held && self.can_go_on()
    }

    /// Continues until `until`.
    fn advance(&mut self, tracer: &mut Tracer, until: Instant) -> ScanProgress {
        let start = Instant::now();
        let progress = tracer.continue_scan(&mut self.scan, Some(until));
        self.note_found(tracer);
        self.took += start.elapsed();
        match progress {
            Ok(ScanProgress::Done) => {
                let is_complete = !self.scan.scanned.incomplete;
                if let (Some(image), true) = (self.notice.image, is_complete) {
                    tracer.probe.image_known(image);
                }
                ScanProgress::Done
            }
            Ok(progress) => progress,
            // The process has ended.
            Err(error) => {
                tracing::debug!("process {}: {error:#}", self.notice.pid);
                ScanProgress::Done
            }
        }
    }

    /// Prints the failures, and notes that the process may have called functions before they were probed.
    fn note_found(&mut self, tracer: &mut Tracer) {
        let scanned = &mut self.scan.scanned;
        scanned.warn();
        if scanned.functions > self.functions {
            self.functions = scanned.functions;
            if !self.notice.held {
                tracer.probe.attached_late(self.notice.pid);
            }
        }
    }
}

/// Sends `SIGCONT` to a process that is held.
pub(super) fn resume(notice: Notice) {
    if notice.held
        && let Ok(pid) = i32::try_from(notice.pid)
    {
        let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
    }
}
