//! Requests to attach.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Result;
use tokio::io::unix::AsyncFd;

use super::attach::ProbePoint;
use super::load::Probe;
use super::prober::{AttachId, AttachOutcome, Attached, Part, Purpose};
use super::rings::watch;

/// Maximum number of processes to which probes are restricted. More are told apart by the BPF programs, and
/// the other users of the library pay for a trap.
const MOST_PIDS: usize = 8;
/// The number for all processes.
const ALL: i32 = -1;

/// Probes of one file, attached together or not at all.
pub struct AttachPlan<'a> {
    probe: &'a Probe,
    parts: Vec<Part>,
}

impl AttachPlan<'_> {
    /// Adds probes at `points`, in all processes or, if there are any, in `pids`.
    pub fn add(&mut self, purpose: Purpose, points: Vec<ProbePoint>, pids: &[i32]) -> Attached {
        let attached = self.probe.prober.new_set();
        let pids = self.probe.only_in(pids);
        self.parts.push(attached.part(purpose, points, pids));
        attached
    }

    /// Requests to attach to `file`. The answer comes by [`Probe::answer`].
    ///
    /// # Errors
    /// Returns an error if the prober has ended.
    pub fn send(self, file: &File) -> Result<AttachId> {
        self.probe.prober.request(Some(file), self.parts)
    }

    /// Attaches to `file`, if the probes are on one, and waits until that is done.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn attach(self, file: Option<&File>) -> Result<()> {
        let prober = &self.probe.prober;
        let id = prober.request(file, self.parts)?;
        prober.answer_to(id)?.result
    }
}

impl Probe {
    /// A request to attach to a file.
    pub fn plan(&self) -> AttachPlan<'_> {
        AttachPlan {
            probe: self,
            parts: Vec::new(),
        }
    }

    /// The next answer to a request, if there is one within this time.
    ///
    /// # Errors
    /// Returns an error if the prober has ended.
    pub fn answer(&self, within: Duration) -> Result<Option<AttachOutcome>> {
        self.prober.answer(within)
    }

    /// Waits for the answer to this request.
    ///
    /// # Errors
    /// Returns an error if the prober has ended.
    pub fn answer_to(&self, id: AttachId) -> Result<AttachOutcome> {
        self.prober.answer_to(id)
    }

    /// A descriptor that is readable when an answer has come, or the prober has ended.
    ///
    /// # Errors
    /// Returns an error if there is no descriptor left.
    pub fn watch_answers(&self) -> Result<AsyncFd<OwnedFd>> {
        watch(self.prober.watch()?)
    }

    /// The processes to restrict the probes to, -1 for none, if the kernel can and they are few; the
    /// self-test restricts them to this process to find out.
    fn only_in(&self, pids: &[i32]) -> Vec<i32> {
        let can = self.filters_processes || *pids == [std::process::id().cast_signed()];
        // Each has its own links, which are attached and detached one after the other for perf events.
        let most = if self.kind.is_one_by_one() {
            1
        } else {
            MOST_PIDS
        };
        match pids.len() {
            1.. if can && pids.len() <= most => pids.to_vec(),
            _ => vec![ALL],
        }
    }
}
