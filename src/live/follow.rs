//! Following what the kernel side has noticed: attaching to what processes have mapped.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::looks::Looks;
use super::stacks::Stacks;
use super::tracer::{self, Tracer};
use crate::probe::{Notice, Rings};

/// Processes that are looked at in turn, and those among them that are of one user. Each takes a
/// descriptor.
const MAX_AT_A_TIME: usize = 256;
const MAX_OF_A_USER: usize = 64;

/// What has been noticed and not been seen to.
#[derive(Debug, Default)]
pub(super) struct Follower {
    looks: Looks,
    /// Looks that take long, in turn.
    begun: VecDeque<Begun>,
    /// Users, the one last whose turn was last.
    turns: VecDeque<u32>,
}

/// A process that is being looked at.
#[derive(Debug)]
struct Begun {
    notice: Notice,
    look: tracer::Look,
    /// CUDA functions that have been probed for it.
    functions: usize,
    took: Duration,
}

/// What is needed to look at processes.
pub(super) struct With<'a> {
    pub(super) rings: &'a mut Rings,
    pub(super) tracer: &'a mut Tracer,
    pub(super) stacks: Option<&'a mut Stacks>,
}

impl Follower {
    /// Looks at processes until `until`, and lets held ones go on. False if there is more to be
    /// done: after what is in the other rings by then.
    pub(super) fn follow(&mut self, mut with: With<'_>, until: Instant) -> Result<bool> {
        loop {
            let new = with.rings.read_notices()?;
            new.into_iter().for_each(|notice| self.looks.add(notice));
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

    /// Whether there is anything to be done now.
    pub(super) fn is_busy(&self) -> bool {
        self.looks.is_busy() || !self.begun.is_empty()
    }

    /// Some time has passed: what was put off may be due.
    pub(super) fn ask_again(&mut self) {
        self.looks.ask_again();
    }

    /// Lets what is held go on; nobody will look at it any more.
    pub(super) fn let_go(&mut self) {
        self.looks.take_held().into_iter().for_each(resume);
        self.begun.drain(..).for_each(|begun| resume(begun.notice));
    }

    /// What is to be looked at now: what is stopped, and then what is of the user whose turn it is.
    fn next(&mut self, with: &mut With<'_>) -> Option<Begun> {
        while let Some(notice) = self.looks.next_held() {
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

    /// The user among those that have anything to be looked at whose turn was the longest ago.
    fn next_user(&mut self) -> Option<u32> {
        let begun = self.begun.iter().map(|begun| begun.notice.uid);
        let wanting: HashSet<u32> = self.looks.users().chain(begun).collect();
        self.turns.retain(|uid| wanting.contains(uid));
        let new = wanting
            .iter()
            .find(|uid| !self.turns.contains(uid))
            .copied();
        let uid = new.or_else(|| self.turns.pop_front())?;
        self.turns.push_back(uid);
        Some(uid)
    }

    /// Of a user, what is new, as long as not too much was begun, and what was begun, in turn.
    fn next_of(&mut self, uid: u32, with: &mut With<'_>) -> Option<Begun> {
        let is_his = |begun: &Begun| begun.notice.uid == uid;
        let his = self.begun.iter().filter(|begun| is_his(begun)).count();
        if his < MAX_OF_A_USER && (his == 0 || self.begun.len() < MAX_AT_A_TIME) {
            while let Some(notice) = self.looks.next_of(uid, Instant::now()) {
                if let Some(begun) = self.begin(notice, with) {
                    return Some(begun);
                }
            }
        }
        let oldest = self.begun.iter().position(is_his)?;
        self.begun.remove(oldest)
    }

    /// Begins to look at a process; none if it has ended meanwhile, which is no news.
    fn begin(&mut self, notice: Notice, with: &mut With<'_>) -> Option<Begun> {
        match Begun::now(notice, with) {
            Ok(begun) => Some(begun),
            Err(error) => {
                tracing::debug!("process {}: {error:#}", notice.pid);
                self.looks.ended(notice.pid, None, Instant::now());
                resume(notice);
                None
            }
        }
    }

    fn end(&mut self, begun: &Begun) {
        let Notice { pid, held, .. } = begun.notice;
        let is_in_vain = begun.functions == 0 && !held;
        let took = is_in_vain.then_some(begun.took);
        self.looks.ended(pid, took, Instant::now());
        resume(begun.notice);
    }
}

impl Begun {
    fn now(notice: Notice, with: &mut With<'_>) -> Result<Self> {
        let start = Instant::now();
        with.tracer.probe.about_to_look_at(notice.pid);
        if let Some(stacks) = &mut with.stacks {
            if notice.image.is_some() {
                stacks.begins_program(notice.pid);
            }
            stacks.look_at(notice.pid);
            // Before the functions that it may call are probed.
            stacks.teach(&with.tracer.probe);
        }
        Ok(Self {
            notice,
            look: with.tracer.begin_look(notice.pid)?,
            functions: 0,
            took: start.elapsed(),
        })
    }

    /// Looks on until `until`; true when that is done.
    fn go_on(&mut self, tracer: &mut Tracer, until: Instant) -> bool {
        let Notice {
            pid, held, image, ..
        } = self.notice;
        let start = Instant::now();
        let done = tracer.look_on(&mut self.look, Some(until));
        let looked = &mut self.look.looked;
        looked.warn();
        if looked.functions > self.functions {
            self.functions = looked.functions;
            if !held {
                tracer.probe.seen_late(pid);
            }
        }
        self.took += start.elapsed();
        match done {
            Ok(false) => return false,
            Ok(true) => {
                if let (Some(image), false) = (image, looked.incomplete) {
                    tracer.probe.image_known(image);
                }
            }
            // It has ended.
            Err(error) => tracing::debug!("process {pid}: {error:#}"),
        }
        true
    }
}

/// Lets a process that was held go on.
pub(super) fn resume(notice: Notice) {
    if notice.held
        && let Ok(pid) = i32::try_from(notice.pid)
    {
        let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
    }
}
