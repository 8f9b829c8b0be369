//! The rings of the kernel side.

use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::Result;
use libbpf_rs::MapCore;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use zerocopy::FromBytes;

use super::ring::{Consumer, Progress, Ring};
use super::stack_queue::StackQueue;
use super::wake_flags::WakeFlags;
use gpuprobe_model::abi::{RawImage, RawNotice, record};

/// The kernel side's request to scan a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Process id on the host.
    pub pid: u32,
    /// The process is stopped and must be sent `SIGCONT`.
    pub held: bool,
    /// The program that it executes now; `None` if it has mapped a file that may be a CUDA library.
    pub image: Option<RawImage>,
}

/// The rings of memory calls, of kernels and copies, of notices, of call stacks, and of batches.
pub struct Rings {
    memory: Ring,
    activity: Ring,
    control: Ring,
    wakes: WakeFlags,
    /// `None` if call stacks are off.
    stacks: Option<StackQueue>,
    /// Batches of collectors; `None` without collectors.
    batches: Option<Ring>,
    /// The end positions of a read that was cut short.
    ends: Option<RingEnds>,
}

/// Positions up to which the rings are read.
#[derive(Clone, Copy)]
struct RingEnds {
    memory: u64,
    activity: u64,
    batches: u64,
}

impl Rings {
    pub(super) fn open(
        memory_ring: &dyn MapCore,
        activity_ring: &dyn MapCore,
        control_ring: &dyn MapCore,
        globals: &dyn MapCore,
        stacks: Option<StackQueue>,
        batch_ring: Option<&dyn MapCore>,
    ) -> Result<Self> {
        Ok(Self {
            memory: Ring::open(memory_ring)?,
            activity: Ring::open(activity_ring)?,
            control: Ring::open(control_ring)?,
            wakes: WakeFlags::open(globals)?,
            stacks,
            batches: batch_ring.map(Ring::open).transpose()?,
            ends: None,
        })
    }

    /// Passes to `consumer` the call stacks, then the memory ring up to now, then the activity ring and
    /// the batches up to the beginning of this call. So the memory calls before a copy are applied before
    /// it, and a call's stack before the call. Batches are last, as the last GPU activity of a process
    /// can come after its exit.
    ///
    /// Returns false if `until` was reached; the next call continues.
    ///
    /// # Errors
    /// Returns the error of `mmap`, or an error about a corrupt ring.
    pub fn read(&mut self, consumer: &mut impl Consumer, until: Option<Instant>) -> Result<bool> {
        // From here on the next full batch wakes the reader.
        self.wakes.clear();
        let ends = self.ends.take().unwrap_or_else(|| RingEnds {
            batches: self.batches.as_ref().map_or(0, Ring::end),
            activity: self.activity.end(),
            memory: self.memory.end(),
        });
        let is_done = self.read_to(ends, consumer, until)?;
        self.ends = (!is_done).then_some(ends);
        Ok(is_done)
    }

    fn read_to(
        &mut self,
        ends: RingEnds,
        consumer: &mut impl Consumer,
        until: Option<Instant>,
    ) -> Result<bool> {
        let out_of_time = Progress::OutOfTime;
        if let Some(stacks) = &self.stacks
            && !stacks.read(consumer, until)?
        {
            return Ok(false);
        }
        if self.memory.read_to(ends.memory, consumer, until)? == out_of_time
            || self.activity.read_to(ends.activity, consumer, until)? == out_of_time
        {
            return Ok(false);
        }
        match &mut self.batches {
            Some(batches) => Ok(batches.read_to(ends.batches, consumer, until)? != out_of_time),
            None => Ok(true),
        }
    }

    /// Whether call stacks were taken out of their ring that are to be read.
    pub fn has_waiting_stacks(&self) -> bool {
        self.stacks.as_ref().is_some_and(StackQueue::has_waiting)
    }

    /// Removes and returns the notices in the control ring.
    ///
    /// # Errors
    /// Returns the error of `mmap`, or an error about a corrupt ring.
    pub fn read_notices(&mut self) -> Result<Vec<Notice>> {
        let mut notices = Vec::new();
        let end = self.control.end();
        let mut take = |bytes: &[u8]| notices.extend(decode_notice(bytes));
        self.control.read_to(end, &mut take, None)?;
        Ok(notices)
    }

    /// Readable when the memory ring is due to be read. Needs a Tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the descriptor cannot be registered.
    pub fn watch_memory(&self) -> Result<AsyncFd<OwnedFd>> {
        watch_ring(&self.memory)
    }

    /// Readable when the activity ring is due to be read. Needs a Tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the descriptor cannot be registered.
    pub fn watch_activity(&self) -> Result<AsyncFd<OwnedFd>> {
        watch_ring(&self.activity)
    }

    /// Readable when there are call stacks; `None` if stacks are off. Needs a Tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the descriptor cannot be registered.
    pub fn watch_stacks(&self) -> Result<Option<AsyncFd<OwnedFd>>> {
        self.stacks
            .as_ref()
            .map(|stacks| watch(stacks.fd()?))
            .transpose()
    }

    /// Readable when the batches are due to be read; `None` without collectors. Needs a Tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the descriptor cannot be registered.
    pub fn watch_batches(&self) -> Result<Option<AsyncFd<OwnedFd>>> {
        self.batches.as_ref().map(watch_ring).transpose()
    }

    /// Readable when there are notices. Needs a Tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the descriptor cannot be registered.
    pub fn watch_control(&self) -> Result<AsyncFd<OwnedFd>> {
        watch_ring(&self.control)
    }
}

fn watch_ring(ring: &Ring) -> Result<AsyncFd<OwnedFd>> {
    watch(ring.fd().try_clone()?)
}

/// Makes a descriptor one that the event loop waits for.
#[allow(unsafe_code)]
pub(crate) fn watch(fd: OwnedFd) -> Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is open, and only the `AsyncFd` owns it.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    Ok(watched?)
}

fn decode_notice(bytes: &[u8]) -> Option<Notice> {
    let (raw, _) = RawNotice::read_from_prefix(bytes).ok()?;
    let image = match raw.record_type {
        record::NEW_IMAGE => Some(raw.image),
        record::NEW_LIBRARY => None,
        _ => return None,
    };
    Some(Notice {
        pid: raw.tgid,
        held: raw.held != 0,
        image,
    })
}
