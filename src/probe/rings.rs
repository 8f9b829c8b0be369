//! Reading the rings.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use zerocopy::FromBytes;

use super::abi::{RawNotice, record};

/// The kernel side asks discovery to look at a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Process.
    pub pid: u32,
    /// It was stopped and must be sent `SIGCONT`.
    pub held: bool,
    /// It runs a new program; else, it mapped something that may be a CUDA library.
    pub new_image: bool,
}

/// The memory ring and the control ring.
pub struct Rings {
    memory: RingBuffer<'static>,
    control: RingBuffer<'static>,
    notices: Rc<RefCell<VecDeque<Notice>>>,
    memory_fd: OwnedFd,
    control_fd: OwnedFd,
}

impl Rings {
    pub(super) fn open(
        memory_ring: &dyn MapCore,
        control_ring: &dyn MapCore,
        mut record: impl FnMut(&[u8]) + 'static,
    ) -> Result<Self> {
        let mut memory = RingBufferBuilder::new();
        memory.add(memory_ring, move |bytes| {
            record(bytes);
            0
        })?;
        let notices = Rc::new(RefCell::new(VecDeque::new()));
        let queue = Rc::clone(&notices);
        let mut control = RingBufferBuilder::new();
        control.add(control_ring, move |bytes| {
            if let Some(notice) = decode_notice(bytes) {
                queue.borrow_mut().push_back(notice);
            }
            0
        })?;
        Ok(Self {
            memory: memory.build().context("cannot map the memory ring")?,
            control: control.build().context("cannot map the control ring")?,
            notices,
            // The maps themselves can be polled.
            memory_fd: memory_ring.as_fd().try_clone_to_owned()?,
            control_fd: control_ring.as_fd().try_clone_to_owned()?,
        })
    }

    /// Reads everything that is in the memory ring.
    ///
    /// # Errors
    /// Those of libbpf.
    pub fn read_memory(&self) -> Result<()> {
        self.memory.consume().context("cannot read the memory ring")
    }

    /// Reads everything that is in the control ring.
    ///
    /// # Errors
    /// Those of libbpf.
    pub fn read_notices(&self) -> Result<Vec<Notice>> {
        let read = self.control.consume();
        read.context("cannot read the control ring")?;
        Ok(self.notices.borrow_mut().drain(..).collect())
    }

    /// Becomes readable when the memory ring should be read at once. Needs an event loop.
    ///
    /// # Errors
    /// Those of the event loop.
    pub fn watch_memory(&self) -> Result<AsyncFd<OwnedFd>> {
        watch(&self.memory_fd)
    }

    /// Becomes readable when there are notices. Needs an event loop.
    ///
    /// # Errors
    /// Those of the event loop.
    pub fn watch_control(&self) -> Result<AsyncFd<OwnedFd>> {
        watch(&self.control_fd)
    }
}

#[allow(unsafe_code)]
fn watch(fd: &OwnedFd) -> Result<AsyncFd<OwnedFd>> {
    let fd = fd.try_clone()?;
    // SAFETY: the descriptor is open and owned by the `AsyncFd`, and nobody else can close it.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    Ok(watched?)
}

fn decode_notice(bytes: &[u8]) -> Option<Notice> {
    let (raw, _) = RawNotice::read_from_prefix(bytes).ok()?;
    let new_image = match raw.record_type {
        record::NEW_IMAGE => true,
        record::NEW_LIBRARY => false,
        _ => return None,
    };
    Some(Notice {
        pid: raw.tgid,
        held: raw.held != 0,
        new_image,
    })
}
