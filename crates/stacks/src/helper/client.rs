//! Starting a helper, asking it, and replacing it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lru::LruCache;
use serde::de::DeserializeOwned;

use super::channel::{Channel, ChannelMessage};
use super::files::FileVersion;
use super::protocol::{Request, decoded, encoded};
use super::{ALL_ARE_TRUSTED, ARGUMENT, Lane, Role};
use gpuprobe_os::{mounts, proc};

/// How long an answer may take that tracing waits for: a ring holds the calls of half a second, and reports are due.
const QUICK: Duration = Duration::from_millis(500);
/// How long one of the parser may take that nothing waits for: debugging information of a gigabyte takes seconds.
const SLOW: Duration = Duration::from_secs(10);
/// How long a helper may take to begin. Who asks meanwhile waits for a part of it.
const TO_BEGIN: Duration = Duration::from_secs(5);
/// Most answers come in this time.
const AT_ONCE: Duration = Duration::from_millis(20);
/// Processor time from which a late helper was busy with what it was asked, in ticks of 10 ms.
const MIN_BUSY: u64 = 5;
/// Entries of a denylist; the least recently used one makes room for another.
const MAX_DENIED: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// Processes that were killed and still hang in the kernel, each with a megabyte of memory. No other is started before
/// one of these is gone.
const MAX_HANGING: usize = 16;

/// Where helpers run.
#[derive(Clone, Copy, Debug)]
pub enum HelperHost {
    /// In processes of their own.
    Process,
    /// On threads of this one, which answer on both lanes: for tests and benchmarks.
    Thread(fn(&Channel, Channel)),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The helper died, twice.
    Died,
    /// It hung, or was busy for too long.
    TookTooLong,
    /// It has answered what is no answer.
    MadeNoSense,
    /// It was stopped, did not get the processor, or cannot be started, which says nothing about the request.
    NotNow,
}

/// What a helper can fail at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// A version of a file.
    File(FileVersion),
    /// Its debugging information.
    DebugInfo(FileVersion),
    /// A process, which has its number from this time on.
    Process { pid: u32, started: u64 },
}

/// A helper, of which there is one process at a time.
#[derive(Debug)]
pub(super) struct Helper {
    role: Role,
    host: HelperHost,
    current: Mutex<Option<Arc<HelperProcess>>>,
    /// Those that were killed and may hang in the kernel.
    ended: Mutex<Vec<Arc<HelperProcess>>>,
    /// By [`Lane`]: held by who asks.
    lanes: [Mutex<()>; 2],
    /// What is not asked for again.
    denylist: Mutex<LruCache<Subject, ()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helper {
    /// Starts one. Where that fails, it is tried again for each request.
    pub(super) fn start(role: Role, host: HelperHost) -> Arc<Self> {
        let helper = Self {
            role,
            host,
            current: Mutex::default(),
            ended: Mutex::default(),
            lanes: Default::default(),
            denylist: Mutex::new(LruCache::new(MAX_DENIED)),
        };
        let _ = helper.process();
        Arc::new(helper)
    }

    /// The answer, and the file that comes with it; `None` if the helper failed at one of these `subjects` before. If it
    /// fails, this is the fault of the first of them, and that is said to the first who asks.
    pub(super) fn ask<T: DeserializeOwned>(
        &self,
        lane: Lane,
        subjects: &[Subject],
        files: &[&File],
        request: &Request,
    ) -> Result<Option<(T, Option<File>)>, Failure> {
        let is_denied = |subject| lock(&self.denylist).get(subject).is_some();
        if subjects.iter().any(is_denied) {
            return Ok(None);
        }
        let _lane = lock(&self.lanes[lane as usize]);
        let answer = match self.attempt(lane, files, request) {
            // It may have died of another request, or of its limits. The second time it is asked nothing else, as slow
            // requests are sent only between two quick ones.
            Err(Failure::Died) => self.attempt(lane, files, request),
            answer => answer,
        };
        answer.map(Some).or_else(|failure| match subjects.first() {
            Some(subject) if failure != Failure::NotNow => {
                let known = lock(&self.denylist).put(*subject, ());
                known.map_or(Err(failure), |()| Ok(None))
            }
            _ => Err(failure),
        })
    }

    fn attempt<T: DeserializeOwned>(
        &self,
        lane: Lane,
        files: &[&File],
        request: &Request,
    ) -> Result<(T, Option<File>), Failure> {
        let quick = (lane == Lane::Slow).then(|| lock(&self.lanes[Lane::Quick as usize]));
        let process = self.process()?;
        let sent = process
            .begin()
            .and_then(|()| process.send(lane, files, request));
        drop(quick);
        let timeout = match lane {
            Lane::Quick => QUICK,
            Lane::Slow => SLOW,
        };
        let takes_files = self.role == Role::Reader;
        let answer = sent.and_then(|()| process.receive(lane, timeout, takes_files));
        let read = answer.and_then(|mut answer| match decoded(&answer.bytes) {
            Some(value) => Ok((value, answer.files.pop())),
            None => Err(Failure::MadeNoSense),
        });
        read.inspect_err(|failure| {
            tracing::debug!("{}, {request:?}: {failure:?}", self.role.name());
            if *failure != Failure::NotNow || !process.is_starting() {
                self.replace(&process);
            }
        })
    }

    /// The process that answers, which is started if there is none.
    fn process(&self) -> Result<Arc<HelperProcess>, Failure> {
        let mut current = lock(&self.current);
        let mut ended = lock(&self.ended);
        ended.retain(|process| process.is_there());
        if let Some(process) = &*current {
            return Ok(process.clone());
        }
        let process = match ended.len() {
            ..MAX_HANGING => HelperProcess::start(self.role, self.host),
            _ => Err(io::Error::other("too many hang in the kernel")),
        };
        let process = process.map_err(|error| {
            tracing::debug!("no {}: {error}", self.role.name());
            Failure::NotNow
        });
        Ok(current.insert(Arc::new(process?)).clone())
    }

    /// Ends a process. The next is started when it is asked.
    fn replace(&self, process: &Arc<HelperProcess>) {
        process.end();
        let taken = lock(&self.current).take_if(|current| Arc::ptr_eq(current, process));
        lock(&self.ended).extend(taken);
    }
}

/// A running helper, with a channel for each [`Lane`].
#[derive(Debug)]
struct HelperProcess {
    channels: [Channel; 2],
    child: Option<Mutex<Child>>,
    started: Instant,
    has_begun: AtomicBool,
}

impl HelperProcess {
    fn start(role: Role, host: HelperHost) -> io::Result<Self> {
        let (quick, other_quick) = Channel::pair()?;
        let (slow, other_slow) = Channel::pair()?;
        for channel in [&quick, &slow] {
            channel.0.set_write_timeout(Some(QUICK))?;
        }
        let child = match host {
            HelperHost::Process => Some(spawn(role, other_quick, other_slow)?),
            HelperHost::Thread(serve) => {
                thread::Builder::new().spawn(move || serve(&other_quick, other_slow))?;
                None
            }
        };
        Ok(Self {
            channels: [quick, slow],
            child: child.map(Mutex::new),
            started: Instant::now(),
            has_begun: AtomicBool::new(false),
        })
    }

    /// Waits until it has begun, which it says on the quick lane.
    fn begin(&self) -> Result<(), Failure> {
        if !self.has_begun.load(Ordering::Relaxed) {
            let begun = self.receive(Lane::Quick, QUICK, false);
            begun.map_err(|failure| match failure {
                Failure::Died => failure,
                _ => Failure::NotNow,
            })?;
            self.has_begun.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether it may still begin.
    fn is_starting(&self) -> bool {
        !self.has_begun.load(Ordering::Relaxed) && self.started.elapsed() < TO_BEGIN
    }

    fn send(&self, lane: Lane, files: &[&File], request: &Request) -> Result<(), Failure> {
        let sent = self.channels[lane as usize].send(&encoded(request), files);
        sent.map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => Failure::NotNow,
            _ => Failure::Died,
        })
    }

    fn receive(
        &self,
        lane: Lane,
        timeout: Duration,
        takes_files: bool,
    ) -> Result<ChannelMessage, Failure> {
        let (begin, channel) = (Instant::now(), &self.channels[lane as usize]);
        let is_late = channel.wait(Some(begin + AT_ONCE)).is_err();
        let busy = is_late.then(|| self.busy()).flatten();
        let answer = channel.receive(takes_files, Some(begin + timeout));
        answer.map_err(|error| match error.kind() {
            ErrorKind::TimedOut if self.was_held_up(busy) => Failure::NotNow,
            ErrorKind::TimedOut => Failure::TookTooLong,
            _ => Failure::Died,
        })
    }

    /// Whether it is stopped, or runs and has got little of the processor since it had taken `before` of it.
    fn was_held_up(&self, before: Option<(char, u64)>) -> bool {
        match (self.busy(), before) {
            (Some(('R', now)), Some((_, before))) => now.saturating_sub(before) < MIN_BUSY,
            (Some((state, _)), _) => state == 'T',
            (None, _) => self.child.is_none(),
        }
    }

    /// The state of its first thread, which has the quick lane, and the processor's time that all have taken.
    fn busy(&self) -> Option<(char, u64)> {
        let stat = proc::stat(lock(self.child.as_ref()?).id()).ok()?;
        Some((stat.state, stat.utime + stat.stime))
    }

    /// Kills it. Who waits for it on the other lane is woken, even if it hangs in the kernel.
    fn end(&self) {
        if let Some(child) = &self.child {
            // Fails only if it has ended.
            let _ = lock(child).kill();
        }
        for channel in &self.channels {
            // Fails only if the other end has done it.
            let _ = channel.0.shutdown(Shutdown::Both);
        }
    }

    /// Whether its process is there, be it in the kernel alone. Waits for nobody.
    fn is_there(&self) -> bool {
        let child = self.child.as_ref();
        child.is_some_and(|child| matches!(lock(child).try_wait(), Ok(None)))
    }
}

fn spawn(role: Role, quick: Channel, slow: Channel) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.args([ARGUMENT, role.name()]);
    if mounts::all_are_trusted() {
        command.arg(ALL_ARE_TRUSTED);
    }
    command
        .env_clear()
        .stdin(OwnedFd::from(quick.0))
        .stdout(OwnedFd::from(slow.0))
        .stderr(Stdio::null())
        .spawn()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;
    use crate::helper::InspectedProcess;
    use crate::program::ON_THREADS;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(200);

    /// A process that runs `command` and answers nothing by itself, and the other end of each lane.
    fn linked(command: &[&str]) -> (HelperProcess, [Channel; 2]) {
        let (quick, other_quick) = Channel::pair().unwrap();
        let (slow, other_slow) = Channel::pair().unwrap();
        let child = Command::new(command[0]).args(&command[1..]).spawn();
        let process = HelperProcess {
            channels: [quick, slow],
            child: Some(Mutex::new(child.unwrap())),
            started: Instant::now(),
            has_begun: AtomicBool::new(false),
        };
        (process, [other_quick, other_slow])
    }

    #[test]
    fn who_waits_on_one_lane_is_woken_when_the_other_ends_the_process() {
        let (process, [quick, _slow]) = linked(&["sleep", "60"]);
        quick.send(b"yes", &[]).unwrap();
        let answer = process.receive(Lane::Quick, LONG, false).unwrap();
        assert_eq!(answer.bytes, b"yes");
        let begin = Instant::now();
        thread::scope(|scope| {
            let slow = scope.spawn(|| process.receive(Lane::Slow, LONG, false));
            process.end();
            assert_eq!(slow.join().unwrap().unwrap_err(), Failure::Died);
        });
        assert!(begin.elapsed() < LONG / 2);
        let sent = process.send(Lane::Quick, &[], &Request::Headers);
        assert_eq!(sent, Err(Failure::Died));
        while process.is_there() {
            thread::yield_now();
        }
    }

    #[test]
    fn one_that_is_stopped_is_late_without_a_fault() {
        let loops = ["sh", "-c", "while :; do :; done"];
        for (command, is_stopped, expected) in [
            (&["sleep", "60"][..], false, Failure::TookTooLong),
            (&loops, false, Failure::TookTooLong),
            (&loops, true, Failure::NotNow),
        ] {
            let (process, _others) = linked(command);
            if is_stopped {
                let pid = lock(process.child.as_ref().unwrap()).id();
                let pid = Pid::from_raw(pid.cast_signed());
                kill(pid, Signal::SIGSTOP).unwrap();
            } else {
                while command == loops && process.busy().unwrap().1 < MIN_BUSY {
                    thread::yield_now();
                }
            }
            let begin = Instant::now();
            let failure = process.receive(Lane::Quick, SHORT, false).unwrap_err();
            let elapsed = begin.elapsed();
            process.end();
            assert!((SHORT..LONG / 2).contains(&elapsed));
            // One that loops may not have got the processor beside other tests.
            let was_starved = command == loops && failure == Failure::NotNow;
            assert!(
                failure == expected || was_starved,
                "{command:?}: {failure:?}"
            );
        }
    }

    #[test]
    fn one_that_is_stopped_as_it_starts_is_waited_for_in_parts() {
        let (mut process, [quick, _slow]) = linked(&["sleep", "60"]);
        assert_eq!(process.begin(), Err(Failure::NotNow));
        assert!(process.is_starting() && process.started.elapsed() < TO_BEGIN);
        process.started = Instant::now().checked_sub(TO_BEGIN).unwrap();
        assert!(!process.is_starting());
        quick.send(b"", &[]).unwrap();
        assert_eq!((process.begin(), process.begin()), (Ok(()), Ok(())));
        process.end();
    }

    #[test]
    fn both_lanes_are_answered_and_a_process_that_ended_is_replaced() {
        let helper = Helper::start(Role::Reader, ON_THREADS);
        let ask = |lane| {
            let request = Request::Memory(std::process::id(), 8, 1);
            let answer = helper.ask::<Vec<u8>>(lane, &[], &[], &request);
            let (bytes, _) = answer.unwrap().unwrap();
            (bytes, helper.process().unwrap())
        };
        let [(nothing, first), (_, same)] = [Lane::Quick, Lane::Slow].map(ask);
        assert!(nothing.is_empty() && Arc::ptr_eq(&first, &same));
        first.end();
        let (_, second) = ask(Lane::Slow);
        assert!(!Arc::ptr_eq(&first, &second));
        // The other lane finds the new one at once.
        assert!(Arc::ptr_eq(&second, &ask(Lane::Quick).1));
    }

    #[test]
    fn the_list_keeps_the_1024_entries_that_were_asked_for_last() {
        let helper = Helper::start(Role::Reader, ON_THREADS);
        let asked = |pid| {
            let subject = Subject::Process { pid, started: 0 };
            let request = Request::Process(u32::MAX, Vec::new(), Vec::new());
            let answer = helper.ask::<InspectedProcess>(Lane::Quick, &[subject], &[], &request);
            answer.unwrap().is_some()
        };
        let deny = |pid| {
            let subject = Subject::Process { pid, started: 0 };
            lock(&helper.denylist).put(subject, ());
        };
        let last = u32::try_from(MAX_DENIED.get()).unwrap();
        for pid in 0..=last {
            deny(pid);
            assert!(!asked(0), "it is asked for all the time");
        }
        assert!(asked(1) && !asked(2) && !asked(last));
    }
}
