//! Library discovery: scans the processes of the kernel side's notices and probes what they have mapped.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::scan_queue::Looks;
use super::stacks::StackState;
use super::tracer::{self, Tracer};
use crate::probe::{Notice, Rings};

/// Processes scanned in turn, in all and per user. Each takes a descriptor.
const MAX_AT_A_TIME: usize = 256;
const MAX_OF_A_USER: usize = 64;

/// Pending and running process scans.
#[derive(Debug, Default)]
pub(super) struct Follower {
    queue: Looks,
    /// Scans that were interrupted, oldest first.
    begun: VecDeque<Begun>,
    /// Users with pending scans, the one served last at the end.
    turns: VecDeque<u32>,
}

/// A running scan of a process.
#[derive(Debug)]
struct Begun {
    notice: Notice,
    scan: tracer::ProcessScan,
    /// CUDA functions newly probed by this scan.
    functions: usize,
    took: Duration,
}

/// The parts of a session that a scan needs.
pub(super) struct With<'a> {
    pub(super) rings: &'a mut Rings,
    pub(super) tracer: &'a mut Tracer,
    pub(super) stacks: Option<&'a mut StackState>,
}

impl Follower {
    /// Scans processes until `until` and resumes the held ones. Returns false if scans are left, which
    /// are continued after the other rings are read.
    pub(super) fn follow(&mut self, mut with: With<'_>, until: Instant) -> Result<bool> {
        loop {
            let new = with.rings.read_notices()?;
            new.into_iter().for_each(|notice| self.queue.add(notice));
            let Some(mut begun) = self.next(&mut with) else {
                return Ok(true);
            };
            if begun.go_on(with.tracer, until) {
                self.end(&begun);
            } else {
                self.begun.push_back(begun);
            }
            if Instant::now() > until {
                return Ok(false);
            }
        }
    }

    /// Whether a scan is pending or running.
    pub(super) fn is_busy(&self) -> bool {
        self.queue.is_busy() || !self.begun.is_empty()
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

    /// The next scan: of a stopped process, else of the user whose turn it is.
    fn next(&mut self, with: &mut With<'_>) -> Option<Begun> {
        while let Some(notice) = self.queue.next_held() {
            if let Some(begun) = self.begin(notice, with) {
                return Some(begun);
            }
        }
        if let Some(held) = self.begun.iter().position(|begun| begun.notice.held) {
            return self.begun.remove(held);
        }
        while let Some(uid) = self.next_user() {
            if let Some(begun) = self.next_of(uid, with) {
                return Some(begun);
            }
        }
        None
    }

    /// The user with pending scans who was served longest ago.
    fn next_user(&mut self) -> Option<u32> {
        let begun = self.begun.iter().map(|begun| begun.notice.uid);
        let wanting: HashSet<u32> = self.queue.users().chain(begun).collect();
        self.turns.retain(|uid| wanting.contains(uid));
        let new = wanting
            .iter()
            .find(|uid| !self.turns.contains(uid))
            .copied();
        let uid = new.or_else(|| self.turns.pop_front())?;
        self.turns.push_back(uid);
        Some(uid)
    }

    /// A new scan of a user's process if the limits allow one, else the oldest running one.
    fn next_of(&mut self, uid: u32, with: &mut With<'_>) -> Option<Begun> {
        let is_of_user = |begun: &Begun| begun.notice.uid == uid;
        let count = self.begun.iter().filter(|begun| is_of_user(begun)).count();
        if count < MAX_OF_A_USER && (count == 0 || self.begun.len() < MAX_AT_A_TIME) {
            while let Some(notice) = self.queue.next_of(uid, Instant::now()) {
                if let Some(begun) = self.begin(notice, with) {
                    return Some(begun);
                }
            }
        }
        let oldest = self.begun.iter().position(is_of_user)?;
        self.begun.remove(oldest)
    }

    /// Begins to scan a process. Returns `None` if it has ended, which is no error.
    fn begin(&mut self, notice: Notice, with: &mut With<'_>) -> Option<Begun> {
        match Begun::now(notice, with) {
            Ok(begun) => Some(begun),
            Err(error) => {
                tracing::debug!("process {}: {error:#}", notice.pid);
                self.queue.ended(notice.pid, None, Instant::now());
                resume(notice);
                None
            }
        }
    }

    fn end(&mut self, begun: &Begun) {
        let Notice { pid, held, .. } = begun.notice;
        let is_in_vain = begun.functions == 0 && !held;
        let took = is_in_vain.then_some(begun.took);
        self.queue.ended(pid, took, Instant::now());
        resume(begun.notice);
    }
}

impl Begun {
    fn now(notice: Notice, with: &mut With<'_>) -> Result<Self> {
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
            scan: with.tracer.begin_scan(notice.pid)?,
            functions: 0,
            took: start.elapsed(),
        })
    }

    /// Continues until `until`. Returns true when the scan is done.
    fn go_on(&mut self, tracer: &mut Tracer, until: Instant) -> bool {
        let Notice {
            pid, held, image, ..
        } = self.notice;
        let start = Instant::now();
        let done = tracer.continue_scan(&mut self.scan, Some(until));
        let scanned = &mut self.scan.scanned;
        scanned.warn();
        if scanned.functions > self.functions {
            self.functions = scanned.functions;
            if !held {
                tracer.probe.attached_late(pid);
            }
        }
        self.took += start.elapsed();
        match done {
            Ok(false) => return false,
            Ok(true) => {
                if let (Some(image), false) = (image, scanned.incomplete) {
                    tracer.probe.image_known(image);
                }
            }
            // The process has ended.
            Err(error) => tracing::debug!("process {pid}: {error:#}"),
        }
        true
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
