//! The way of call stacks out of their ring.
//!
//! The first step of a large model under trace fills the ring in a tenth of a second. The event loop may be busy
//! for longer, with the unwinding tables of the first stack or the names of a report: a thread empties the ring
//! meanwhile.

use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::MapCore;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::backlog::StackBacklog;
use super::ring::{Consumer, Progress, Ring};
use super::wake_flags::WakeFlags;
use gpuprobe_os::privileges;

/// Number and interval of retries for a call stack that is still being written.
const BUSY_ROUNDS: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_micros(50);
/// How long the thread leaves call stacks to the event loop, which is usually sooner, milliseconds.
const LEFT_FOR_MS: u8 = 5;

/// The call stacks that wait in the ring, and in memory.
pub(super) struct StackQueue {
    waiting: Arc<Mutex<WaitingStacks>>,
    /// Closed to end the thread.
    end: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

struct WaitingStacks {
    ring: Ring,
    backlog: StackBacklog,
}

impl StackQueue {
    /// Opens the ring `stack_ring`, and starts the thread; `globals` has the flags of [`WakeFlags`].
    ///
    /// # Errors
    /// Returns the error of `mmap`, or an error if the thread cannot be started.
    pub(super) fn start(stack_ring: &dyn MapCore, globals: &dyn MapCore) -> Result<Self> {
        let ring = Ring::open(stack_ring)?;
        let readable = ring.fd().try_clone()?;
        let backlog = StackBacklog::default();
        let waiting = Arc::new(Mutex::new(WaitingStacks { ring, backlog }));
        let wakes = WakeFlags::open(globals)?;
        let (ended, end) = io::pipe()?;
        let shared = Arc::clone(&waiting);
        let named = thread::Builder::new().name("gpuprobe-stacks".to_owned());
        let empty = move || {
            privileges::keep_only_here(&[]);
            if let Err(error) = keep_empty(&shared, &readable, &wakes, &ended.into()) {
                tracing::warn!("call stacks may be lost: {error:#}");
            }
        };
        let thread = named.spawn(empty).context("cannot start a thread")?;
        Ok(Self {
            waiting,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// A descriptor that becomes readable when there are call stacks.
    ///
    /// # Errors
    /// Returns an error if the descriptor cannot be duplicated.
    pub(super) fn fd(&self) -> Result<OwnedFd> {
        Ok(lock(&self.waiting).ring.fd().try_clone()?)
    }

    /// Whether call stacks were taken out of the ring that are to be read.
    pub(super) fn has_waiting(&self) -> bool {
        lock(&self.waiting).backlog.len() > 0
    }

    /// Passes all call stacks that wait now to `consumer`. Returns false if `until` was reached.
    ///
    /// # Errors
    /// Returns the error of `mmap`, or an error about a corrupt ring.
    pub(super) fn read(
        &self,
        consumer: &mut impl Consumer,
        until: Option<Instant>,
    ) -> Result<bool> {
        // Known once all that were in the ring when this began are in the backlog.
        let mut left = None;
        loop {
            if left.is_none() && fill_patiently(&self.waiting)? {
                left = Some(lock(&self.waiting).backlog.len());
            }
            if left == Some(0) {
                return Ok(true);
            }
            let record = lock(&self.waiting).backlog.pop();
            if let Some(record) = record {
                consumer.take(&record);
                left = left.map(|left| left - 1);
            }
            if until.is_some_and(|until| Instant::now() > until) {
                return Ok(false);
            }
        }
    }
}

impl Drop for StackQueue {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl WaitingStacks {
    /// Moves call stacks from the ring to the backlog, as far as there is room.
    fn fill(&mut self) -> Result<Progress> {
        self.backlog.fill(&mut self.ring)
    }
}

fn lock(waiting: &Mutex<WaitingStacks>) -> MutexGuard<'_, WaitingStacks> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves call stacks from the ring to the backlog, and waits a little for those that are being written. Returns
/// whether these are all.
fn fill_patiently(waiting: &Mutex<WaitingStacks>) -> Result<bool> {
    for _ in 0..BUSY_ROUNDS {
        let progress = lock(waiting).fill()?;
        match progress {
            Progress::Done => break,
            Progress::OutOfTime => return Ok(false),
            // A busy record blocks those behind it.
            Progress::Busy => thread::sleep(BUSY_PAUSE),
        }
    }
    Ok(true)
}

/// Moves call stacks that the event loop has not read from the ring to the backlog, until `ended` is closed.
fn keep_empty(
    waiting: &Mutex<WaitingStacks>,
    readable: &OwnedFd,
    wakes: &WakeFlags,
    ended: &OwnedFd,
) -> Result<()> {
    let ended = || PollFd::new(ended.as_fd(), PollFlags::empty());
    loop {
        let readable = PollFd::new(readable.as_fd(), PollFlags::POLLIN);
        is_ready(&mut [ended(), readable], PollTimeout::NONE)?;
        if is_ready(&mut [ended()], PollTimeout::from(LEFT_FOR_MS))? {
            return Ok(());
        }
        // From here on a new record wakes this thread again.
        wakes.clear();
        lock(waiting).fill()?;
    }
}

fn is_ready(polled: &mut [PollFd<'_>], timeout: PollTimeout) -> nix::Result<bool> {
    match poll(polled, timeout) {
        Err(Errno::EINTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}
