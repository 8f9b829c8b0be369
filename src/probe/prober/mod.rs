//! The prober: a process that attaches the probes, keeps them, and detaches.
//!
//! The kernel lets whoever attaches or detaches wait for its grace periods, which take seconds on a busy host: so does
//! the end of a process that has probes. gpuprobe itself has none, so that its reports come in time and it ends in
//! time. The prober is forked when the programs are loaded, and is killed by the kernel when gpuprobe ends.

mod protocol;
mod serve;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid};

use super::attach::ProbePoint;
use super::kind::AttachKind;
use super::skeleton::GpuprobeSkel;
use gpuprobe_os::channel::Channel;
pub(super) use protocol::Part;
use protocol::ProbeSet;
pub use protocol::Purpose;
use protocol::{ProberAnswer, ProberRequest};
pub(super) use serve::LinkOwner;

/// How long the end waits for the probes to be detached. The kernel needs some 50 ms; on a host where it needs longer,
/// they go after the end.
const DETACHED_WITHIN: Duration = Duration::from_millis(500);
/// Interval of looks whether the prober has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Number of a request to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttachId(pub u32);

/// The answer to a request to attach.
#[derive(Debug)]
pub struct AttachOutcome {
    /// Number of the request that was answered.
    pub id: AttachId,
    /// The kernel's error, if it was not possible.
    pub result: Result<()>,
}

/// The connection to the prober.
#[derive(Debug)]
struct Connection {
    channel: Channel,
    child: Pid,
    next: Cell<u32>,
    /// Answers that came while another was waited for.
    early: RefCell<VecDeque<AttachOutcome>>,
    /// All probes are being detached.
    is_ending: Cell<bool>,
}

impl Connection {
    fn send(&self, request: &ProberRequest, file: Option<&File>) -> io::Result<()> {
        let bytes = serde_json::to_vec(request)?;
        self.channel.send(&bytes, file)
    }
}

/// The prober of this process.
#[derive(Clone, Debug)]
pub(super) struct Prober(Rc<Connection>);

/// Probes that are attached, or will be by requests on their way; dropping it detaches them.
#[derive(Debug)]
#[must_use = "dropping it detaches the probes"]
pub struct Attached {
    prober: Prober,
    set: ProbeSet,
}

impl Attached {
    /// These probes as a part of a request.
    pub(super) fn part(&self, purpose: Purpose, points: Vec<ProbePoint>, pids: Vec<i32>) -> Part {
        Part {
            set: self.set,
            purpose,
            points,
            pids,
        }
    }
}

impl Drop for Attached {
    /// Waits for nothing.
    fn drop(&mut self) {
        let connection = &self.prober.0;
        if !connection.is_ending.get() {
            // A prober that has ended has no probes any more.
            let _ = connection.send(&ProberRequest::Release(self.set), None);
        }
    }
}

impl Prober {
    /// Forks the prober of the loaded programs.
    pub(super) fn start(
        kind: AttachKind,
        skeleton: GpuprobeSkel<'static>,
    ) -> Result<(Self, GpuprobeSkel<'static>)> {
        let (channel, other) = Channel::pair()?;
        let parent = getpid();
        // SAFETY: the child allocates, which glibc allows after a fork, and takes no lock that another thread may
        // have had: it writes no messages.
        #[allow(unsafe_code)]
        match unsafe { fork() }.context("cannot fork")? {
            ForkResult::Child => {
                drop(channel);
                serve::run(&mut LinkOwner::new(kind, skeleton), &other, parent)
            }
            ForkResult::Parent { child } => {
                let connection = Connection {
                    channel,
                    child,
                    next: Cell::new(0),
                    early: RefCell::default(),
                    is_ending: Cell::new(false),
                };
                Ok((Self(Rc::new(connection)), skeleton))
            }
        }
    }

    fn next(&self) -> u32 {
        let number = self.0.next.get().wrapping_add(1);
        self.0.next.set(number);
        number
    }

    /// Probes that can be part of a request.
    pub(super) fn new_set(&self) -> Attached {
        Attached {
            prober: self.clone(),
            set: ProbeSet(self.next()),
        }
    }

    /// Requests to attach to `file`, all parts or none. Does not wait for the answer.
    pub(super) fn request(&self, file: Option<&File>, parts: Vec<Part>) -> Result<AttachId> {
        let id = self.next();
        let request = ProberRequest::Attach { id, parts };
        self.0.send(&request, file).map_err(|error| ended(&error))?;
        Ok(AttachId(id))
    }

    /// The next answer, if there is one within this time.
    pub(super) fn answer(&self, within: Duration) -> Result<Option<AttachOutcome>> {
        if let Some(early) = self.0.early.borrow_mut().pop_front() {
            return Ok(Some(early));
        }
        let mut ends = [PollFd::new(self.0.channel.as_fd(), PollFlags::POLLIN)];
        let within = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
        match poll(&mut ends, within) {
            Ok(0) | Err(Errno::EINTR) => Ok(None),
            Ok(_) => self.receive().map(Some),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&self) -> Result<AttachOutcome> {
        let message = self.0.channel.receive(false, &mut None);
        let message = message.map_err(|error| ended(&error))?;
        let ProberAnswer { id, error } = serde_json::from_slice(&message.bytes)?;
        Ok(AttachOutcome {
            id: AttachId(id),
            result: error.map_or(Ok(()), |error| Err(anyhow!(error))),
        })
    }

    /// Waits for the answer to this request. Others are kept for [`Self::answer`].
    pub(super) fn answer_to(&self, id: AttachId) -> Result<AttachOutcome> {
        loop {
            let answer = self.receive()?;
            if answer.id == id {
                return Ok(answer);
            }
            self.0.early.borrow_mut().push_back(answer);
        }
    }

    /// A descriptor that is readable when an answer has come, or the prober has ended.
    pub(super) fn watch(&self) -> Result<OwnedFd> {
        let watched = self.0.channel.as_fd().try_clone_to_owned();
        watched.context("cannot duplicate a descriptor")
    }

    /// Detaches all probes, for at most [`DETACHED_WITHIN`].
    pub(super) fn detach(&self) {
        let until = Instant::now() + DETACHED_WITHIN;
        if self.0.is_ending.replace(true) || self.0.send(&ProberRequest::Detach, None).is_err() {
            return;
        }
        while Instant::now() < until {
            match waitpid(self.0.child, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => std::thread::sleep(LOOK_EVERY),
                _ => return,
            }
        }
        tracing::debug!("the kernel takes long to detach: probes go after the end");
    }
}

fn ended(error: &io::Error) -> anyhow::Error {
    anyhow!("the process that keeps the probes has ended ({error})")
}
