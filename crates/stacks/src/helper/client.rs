//! Starting a helper, asking it, and replacing it.

use std::collections::HashSet;
use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lru::LruCache;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

use super::files::NumberedFile;
use super::protocol::{Request, decoded, encoded};
use super::{ALL_ARE_TRUSTED, ARGUMENT, Lane, Role};
use gpuprobe_os::channel::{Channel, ChannelMessage};
use gpuprobe_os::{mounts, proc};

/// How long an answer may take that tracing waits for: a ring holds the calls of half a second, and reports are due.
const QUICK: Duration = Duration::from_millis(500);
/// How long one of the parser may take that nothing waits for: debugging information of a gigabyte takes seconds.
const SLOW: Duration = Duration::from_secs(10);
/// How long a helper may take to begin.
const TO_BEGIN: Duration = Duration::from_secs(5);
/// Most answers come in this time.
const AT_ONCE: Duration = Duration::from_millis(20);
/// Processor time from which a late helper was busy with what it was asked, in ticks of 10 ms.
const MIN_BUSY: u64 = 5;
/// Files that a helper has open for a lane.
pub(super) const MAX_FILES: usize = 1024;
/// Entries of a denylist; the least recently used one makes room for another.
const MAX_DENIED: usize = 1024;
/// Processes that were killed and still hang in the kernel, each with a megabyte of memory. No other is started before
/// one of these is gone.
const MAX_HANGING: usize = 16;
static HANGING: AtomicUsize = AtomicUsize::new(0);

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
pub(crate) enum Failure {
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
    /// A version of a file. The owner of a file can set its modification time, but not the time of its last change.
    File {
        device: u64,
        inode: u64,
        size_bytes: u64,
        changed: (i64, i64),
    },
    /// A process, which has its number from this time on.
    Process { pid: u32, started: u64 },
}

/// A helper, of which there is one process at a time.
#[derive(Debug)]
pub(super) struct Helper {
    role: Role,
    host: HelperHost,
    current: Mutex<Option<Arc<HelperProcess>>>,
    /// By [`Lane`].
    connections: [Mutex<Connection>; 2],
    /// What is not asked for again.
    denylist: Mutex<LruCache<Subject, ()>>,
}

/// A lane, as it is used by one who asks at a time.
#[derive(Debug, Default)]
pub(super) struct Connection {
    process: Option<Arc<HelperProcess>>,
    /// The files that it has, by their numbers.
    pub(super) files: HashSet<u64>,
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
            connections: Default::default(),
            denylist: Mutex::new(LruCache::unbounded()),
        };
        let _ = helper.process();
        Arc::new(helper)
    }

    pub(super) fn connection(&self, lane: Lane) -> MutexGuard<'_, Connection> {
        lock(&self.connections[lane as usize])
    }

    /// Whether this is not on the list of what a helper failed at.
    pub(super) fn permits(&self, subject: &Subject) -> bool {
        lock(&self.denylist).get(subject).is_none()
    }

    /// Enters what a helper failed at, and says `message`, once.
    pub(super) fn deny(&self, subject: Subject, message: Arguments<'_>) {
        if self.permits(&subject) {
            let mut denylist = lock(&self.denylist);
            denylist.put(subject, ());
            if denylist.len() > MAX_DENIED {
                denylist.pop_lru();
            }
            tracing::warn!("{message}");
        }
    }

    /// Asks about `files`, which the helper is to have, and sends the file `with`. If the helper dies, it is asked
    /// again: it may have died of another request, or of its limits. The second time it is asked nothing else, as slow
    /// requests are sent only between two quick ones.
    pub(super) fn ask<T: DeserializeOwned>(
        &self,
        lane: Lane,
        files: &[&NumberedFile],
        request: &Request,
        with: Option<&File>,
    ) -> Result<(T, Option<File>), Failure> {
        let mut connection = self.connection(lane);
        let mut attempt = || {
            let answer = self.attempt(lane, &mut connection, files, request, with);
            let read = answer.and_then(|answer| match decoded(&answer.bytes) {
                Some(value) => Ok((value, answer.file)),
                None => Err(Failure::MadeNoSense),
            });
            read.inspect_err(|failure| {
                tracing::debug!("{}, {request:?}: {failure:?}", self.role.name());
                self.replace(&mut connection);
            })
        };
        match attempt() {
            Err(Failure::Died) => attempt(),
            answer => answer,
        }
    }

    fn attempt(
        &self,
        lane: Lane,
        connection: &mut Connection,
        files: &[&NumberedFile],
        request: &Request,
        with: Option<&File>,
    ) -> Result<ChannelMessage, Failure> {
        let process = {
            let _quick = (lane == Lane::Slow).then(|| self.connection(Lane::Quick));
            let process = self.connect(lane, connection)?;
            if connection.files.len() + files.len() > MAX_FILES {
                connection.files.clear();
                process.send(lane, &Request::CloseAll, None)?;
            }
            for file in files {
                if connection.files.insert(file.number) {
                    process.send(lane, &Request::Open(file.number), Some(&file.file))?;
                }
            }
            process.send(lane, request, with)?;
            process
        };
        let timeout = match (self.role, lane) {
            (Role::Parser, Lane::Slow) => SLOW,
            _ => QUICK,
        };
        process.receive(lane, timeout, matches!(request, Request::File(_)))
    }

    /// The file of this number is done with.
    pub(super) fn close(&self, lane: Lane, number: u64) {
        let mut connection = self.connection(lane);
        if connection.files.remove(&number)
            && let Some(process) = &connection.process
            && process.send(lane, &Request::Close(number), None).is_err()
        {
            self.replace(&mut connection);
        }
    }

    /// The process that answers, which is started if there is none.
    fn process(&self) -> Result<Arc<HelperProcess>, Failure> {
        let mut current = lock(&self.current);
        match &*current {
            Some(process) => Ok(process.clone()),
            None => {
                let process = HelperProcess::start(self.role, self.host).map_err(|error| {
                    tracing::debug!("no {}: {error}", self.role.name());
                    Failure::NotNow
                })?;
                Ok(current.insert(Arc::new(process)).clone())
            }
        }
    }

    /// The process, which has begun.
    fn connect(
        &self,
        lane: Lane,
        connection: &mut Connection,
    ) -> Result<Arc<HelperProcess>, Failure> {
        let process = self.process()?;
        let known = connection.process.as_ref();
        if known.is_none_or(|known| !Arc::ptr_eq(known, &process)) {
            connection.files.clear();
            connection.process = Some(process.clone());
            let begun = process.receive(lane, TO_BEGIN, false);
            begun.map_err(|failure| match failure {
                Failure::Died => failure,
                _ => Failure::NotNow,
            })?;
        }
        Ok(process)
    }

    /// Ends the process of `connection`. The next is started when it is asked.
    fn replace(&self, connection: &mut Connection) {
        connection.files.clear();
        if let Some(process) = connection.process.take() {
            process.end();
            lock(&self.current).take_if(|current| Arc::ptr_eq(current, &process));
        }
    }
}

/// A running helper, with a channel for each [`Lane`].
#[derive(Debug)]
struct HelperProcess {
    channels: [Channel; 2],
    child: Option<Child>,
}

impl HelperProcess {
    fn start(role: Role, host: HelperHost) -> io::Result<Self> {
        if HANGING.load(Ordering::Relaxed) >= MAX_HANGING {
            return Err(io::Error::other("too many hang in the kernel"));
        }
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
            child,
        })
    }

    fn send(&self, lane: Lane, request: &Request, file: Option<&File>) -> Result<(), Failure> {
        let sent = self.channels[lane as usize].send(&encoded(request), file);
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
        let stat = proc::stat(self.child.as_ref()?.id()).ok()?;
        Some((stat.state, stat.utime + stat.stime))
    }

    fn pid(&self) -> Option<Pid> {
        let pid = i32::try_from(self.child.as_ref()?.id()).ok()?;
        Some(Pid::from_raw(pid))
    }

    /// Kills it. Who waits for it on the other lane is woken, even if it hangs in the kernel.
    fn end(&self) {
        if let Some(pid) = self.pid() {
            // It is not reaped before this is dropped.
            let _ = kill(pid, Signal::SIGKILL);
        }
        for channel in &self.channels {
            // Fails only if the other end has done it.
            let _ = channel.0.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for HelperProcess {
    /// Waits for nobody: who hangs in the kernel ends later.
    fn drop(&mut self) {
        self.end();
        if let Some(mut child) = self.child.take() {
            HANGING.fetch_add(1, Ordering::Relaxed);
            let reap = move || {
                let _ = child.wait();
                HANGING.fetch_sub(1, Ordering::Relaxed);
            };
            let _ = thread::Builder::new().spawn(reap);
        }
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
    use std::path::Path;

    use super::*;
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
            child: Some(child.unwrap()),
        };
        (process, [other_quick, other_slow])
    }

    #[test]
    fn who_waits_on_one_lane_is_woken_when_the_other_ends_the_process() {
        let (process, [quick, _slow]) = linked(&["sleep", "60"]);
        quick.send(b"yes", None).unwrap();
        let answer = process.receive(Lane::Quick, LONG, false).unwrap();
        assert_eq!(answer.bytes, b"yes");
        let begin = Instant::now();
        thread::scope(|scope| {
            let slow = scope.spawn(|| process.receive(Lane::Slow, LONG, false));
            process.end();
            assert_eq!(slow.join().unwrap().unwrap_err(), Failure::Died);
        });
        assert!(begin.elapsed() < LONG / 2);
        let sent = process.send(Lane::Quick, &Request::CloseAll, None);
        assert_eq!(sent, Err(Failure::Died));
        let folder = format!("/proc/{}", process.child.as_ref().unwrap().id());
        assert!(Path::new(&folder).exists());
        drop(process);
        assert!(!Path::new(&folder).exists() || HANGING.load(Ordering::Relaxed) > 0);
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
            let pid = process.pid().unwrap();
            if is_stopped {
                kill(pid, Signal::SIGSTOP).unwrap();
            } else {
                while command == loops && process.busy().unwrap().1 < MIN_BUSY {
                    thread::yield_now();
                }
            }
            let begin = Instant::now();
            let failure = process.receive(Lane::Quick, SHORT, false).unwrap_err();
            assert!((SHORT..LONG / 2).contains(&begin.elapsed()));
            // One that loops may not have got the processor beside other tests.
            let was_starved = command == loops && failure == Failure::NotNow;
            assert!(
                failure == expected || was_starved,
                "{command:?}: {failure:?}"
            );
        }
    }

    #[test]
    fn both_lanes_are_answered_and_a_process_that_ended_is_replaced() {
        let helper = Helper::start(Role::Reader, ON_THREADS);
        let ask = |lane| {
            let request = Request::Memory {
                pid: std::process::id(),
                address: 8,
                size_bytes: 1,
            };
            let answer = helper.ask::<Vec<u8>>(lane, &[], &request, None);
            let process = helper.connection(lane).process.clone();
            (answer.unwrap().0, process.unwrap())
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
        let entry = |pid| Subject::Process { pid, started: 0 };
        let last = u32::try_from(MAX_DENIED).unwrap();
        for pid in 0..=last {
            helper.deny(entry(pid), format_args!("{pid}"));
            assert!(!helper.permits(&entry(0)), "it is asked for all the time");
        }
        assert!(helper.permits(&entry(1)));
        assert!(!helper.permits(&entry(2)) && !helper.permits(&entry(last)));
    }
}
