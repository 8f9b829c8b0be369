//! The rings of the kernel side.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::Result;
use libbpf_rs::MapCore;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use zerocopy::FromBytes;

use super::ring::{Consumer, Progress, Ring};
use gpuprobe_model::abi::{RawNotice, record};

/// The kernel side asks discovery to look at a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Process.
    pub pid: u32,
    /// The user to whom it counts.
    pub uid: u32,
    /// It was stopped and must be sent `SIGCONT`.
    pub held: bool,
    /// The program that it has begun to run; none if it has mapped something that may be a CUDA
    /// library.
    pub image: Option<Image>,
}

/// A program's file, as the kernel side tells it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    pub(super) inode: u64,
    pub(super) device: u64,
}

/// How often, and after which pause, a call stack is looked at that is still being written.
const BUSY_ROUNDS: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_micros(50);

/// The rings of memory calls, of kernels and copies, of notices, of call stacks, and of batches.
pub struct Rings {
    memory: Ring,
    activity: Ring,
    control: Ring,
    /// If call stacks are taken.
    stacks: Option<Ring>,
    /// If there are collectors.
    batches: Option<Ring>,
    /// Where the last reading was to go, if there was no time for it.
    ends: Option<Ends>,
}

/// Where rings are to be read to.
#[derive(Clone, Copy)]
struct Ends {
    memory: u64,
    activity: u64,
    batches: u64,
}

impl Rings {
    pub(super) fn open(
        memory_ring: &dyn MapCore,
        activity_ring: &dyn MapCore,
        control_ring: &dyn MapCore,
        stack_ring: Option<&dyn MapCore>,
        batch_ring: Option<&dyn MapCore>,
    ) -> Result<Self> {
        Ok(Self {
            memory: Ring::open(memory_ring)?,
            activity: Ring::open(activity_ring)?,
            control: Ring::open(control_ring)?,
            stacks: stack_ring.map(Ring::open).transpose()?,
            batches: batch_ring.map(Ring::open).transpose()?,
            ends: None,
        })
    }

    /// Hands every record that is in the memory ring now, then every one that was in the activity
    /// ring before, to `consumer`: whatever a copy needs to know of memory comes first. Before all
    /// of them come the call stacks of the calls among them, after all of them the batches: the end
    /// of a process may come before what its GPU did last.
    ///
    /// False if there was no time for all of it until `until`: the next call goes on with the rest.
    ///
    /// # Errors
    /// Those of mapping the rings.
    pub fn read(&mut self, consumer: &mut impl Consumer, until: Option<Instant>) -> Result<bool> {
        let ends = self.ends.take().unwrap_or_else(|| Ends {
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
        ends: Ends,
        consumer: &mut impl Consumer,
        until: Option<Instant>,
    ) -> Result<bool> {
        let out_of_time = Progress::OutOfTime;
        if !self.read_stacks(consumer, until)?
            || self.memory.read_to(ends.memory, consumer, until)? == out_of_time
            || self.activity.read_to(ends.activity, consumer, until)? == out_of_time
        {
            return Ok(false);
        }
        match &mut self.batches {
            Some(batches) => Ok(batches.read_to(ends.batches, consumer, until)? != out_of_time),
            None => Ok(true),
        }
    }

    /// Hands every call stack that is in its ring now to `consumer`; false if there was no time for
    /// that.
    fn read_stacks(
        &mut self,
        consumer: &mut impl Consumer,
        until: Option<Instant>,
    ) -> Result<bool> {
        let Some(stacks) = &mut self.stacks else {
            return Ok(true);
        };
        let end = stacks.end();
        for _ in 0..BUSY_ROUNDS {
            match stacks.read_to(end, consumer, until)? {
                Progress::Done => break,
                Progress::OutOfTime => return Ok(false),
                // One that is being written hides those behind it.
                Progress::Busy => std::thread::sleep(BUSY_PAUSE),
            }
        }
        Ok(true)
    }

    /// The notices that are in the control ring.
    ///
    /// # Errors
    /// Those of mapping the ring.
    pub fn read_notices(&mut self) -> Result<Vec<Notice>> {
        let mut notices = Vec::new();
        let end = self.control.end();
        let mut take = |bytes: &[u8]| notices.extend(decode_notice(bytes));
        self.control.read_to(end, &mut take, None)?;
        Ok(notices)
    }

    /// Becomes readable when the memory ring should be read at once. Needs an event loop.
    ///
    /// # Errors
    /// Those of the event loop.
    pub fn watch_memory(&self) -> Result<AsyncFd<OwnedFd>> {
        watch(&self.memory)
    }

    /// Becomes readable when the activity ring should be read at once. Needs an event loop.
    ///
    /// # Errors
    /// Those of the event loop.
    pub fn watch_activity(&self) -> Result<AsyncFd<OwnedFd>> {
        watch(&self.activity)
    }

    /// Becomes readable when there are call stacks; `None` if none are taken. Needs an event loop.
    ///
    /// # Errors
    /// Those of the event loop.
    pub fn watch_stacks(&self) -> Result<Option<AsyncFd<OwnedFd>>> {
        self.stacks.as_ref().map(watch).transpose()
    }

    /// Becomes readable when batches should be read at once; `None` without collectors. Needs an
    /// event loop.
    ///
    /// # Errors
    /// Those of the event loop.
    pub fn watch_batches(&self) -> Result<Option<AsyncFd<OwnedFd>>> {
        self.batches.as_ref().map(watch).transpose()
    }

    /// Becomes readable when there are notices. Needs an event loop.
    ///
    /// # Errors
    /// Those of the event loop.
    pub fn watch_control(&self) -> Result<AsyncFd<OwnedFd>> {
        watch(&self.control)
    }
}

#[allow(unsafe_code)]
fn watch(ring: &Ring) -> Result<AsyncFd<OwnedFd>> {
    let fd = ring.fd().try_clone()?;
    // SAFETY: the descriptor is open and owned by the `AsyncFd`, and nobody else can close it.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    Ok(watched?)
}

fn decode_notice(bytes: &[u8]) -> Option<Notice> {
    let (raw, _) = RawNotice::read_from_prefix(bytes).ok()?;
    let image = match raw.record_type {
        record::NEW_IMAGE => Some(Image {
            inode: raw.inode,
            device: raw.device,
        }),
        record::NEW_LIBRARY => None,
        _ => return None,
    };
    Some(Notice {
        pid: raw.tgid,
        uid: raw.uid,
        held: raw.held != 0,
        image,
    })
}
