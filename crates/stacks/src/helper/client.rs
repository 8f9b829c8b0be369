//! Starting a helper, asking it, and replacing it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::denylist::{Denylist, Subject};
use super::files::NumberedFile;
use super::protocol::{Request, encoded};
use super::{ALL_ARE_TRUSTED, ARGUMENT, Lane, Role, main};
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
/// Processor time from which a late helper was busy with what it was asked.
const MIN_BUSY: Duration = Duration::from_millis(50);
/// Files that a helper has open for a lane.
pub(super) const MAX_FILES: usize = 1024;
/// Processes that were killed and still hang in the kernel, each with a megabyte of memory. No other is started before
/// one of these is gone.
const MAX_HANGING: usize = 16;
static HANGING: AtomicUsize = AtomicUsize::new(0);

/// Where helpers run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HelperHost {
    /// In processes of their own.
    Process,
    /// On threads of this one: for tests and benchmarks, and for files that are nobody else's.
    #[default]
    Thread,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The helper died. It may have had another request, too.
    Died,
    /// It hung, or was busy for too long.
    TookTooLong,
    /// It was stopped, or did not get the processor, which says nothing about the request.
    Waited,
    /// It has not begun yet, or cannot be started.
    NotAsked,
}

/// A helper, of which there is one process at a time.
#[derive(Debug)]
pub(super) struct Helper {
    role: Role,
    host: HelperHost,
    current: Mutex<Option<Arc<HelperProcess>>>,
    /// By [`Lane`].
    connections: [Mutex<Connection>; 2],
    denylist: Mutex<Denylist>,
}

/// A lane, as it is used by one who asks at a time.
#[derive(Debug, Default)]
pub(super) struct Connection {
    process: Option<Arc<HelperProcess>>,
    has_begun: bool,
    /// Answers of this process.
    answers: u64,
    /// The files that it has, by their numbers.
    pub(super) files: HashSet<u64>,
    /// How many processes there were: what one was given, the next does not have.
    pub(super) generation: u64,
}

/// What is asked: about `files`, which the helper is to have, and with the file `with`.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) files: &'a [&'a NumberedFile],
    pub(super) request: &'a Request,
    pub(super) with: Option<&'a File>,
}

impl<'a> Question<'a> {
    pub(super) fn about(files: &'a [&'a NumberedFile], request: &'a Request) -> Self {
        Self {
            files,
            request,
            with: None,
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
            denylist: Mutex::new(Denylist::new()),
        };
        if let Err(error) = helper.process() {
            tracing::debug!("no {}: {error}", role.name());
        }
        Arc::new(helper)
    }

    pub(super) fn connection(&self, lane: Lane) -> MutexGuard<'_, Connection> {
        lock(&self.connections[lane as usize])
    }

    /// Whether this is not on the list of what a helper failed at.
    pub(super) fn permits(&self, subject: &Subject) -> bool {
        !lock(&self.denylist).has(subject)
    }

    /// Enters what a helper failed at, and says `message`, once.
    pub(super) fn deny(&self, subject: Subject, message: std::fmt::Arguments<'_>) {
        if lock(&self.denylist).enter(subject) {
            tracing::warn!("{message}");
        }
    }

    /// Asks, twice if the helper dies: it may have died of another request, or of its limits. The second time it is
    /// asked nothing else, as slow requests are sent only between two quick ones.
    pub(super) fn ask(
        &self,
        lane: Lane,
        connection: &mut Connection,
        question: Question<'_>,
    ) -> Result<ChannelMessage, Failure> {
        match self.attempt(lane, connection, question) {
            Err((Failure::Died, _)) => {
                let answer = self.attempt(lane, connection, question);
                answer.map_err(|(failure, _)| failure)
            }
            answer => answer.map_err(|(failure, _)| failure),
        }
    }

    /// Asks once. A failure comes with whether the process had answered nothing on this lane.
    pub(super) fn attempt(
        &self,
        lane: Lane,
        connection: &mut Connection,
        question: Question<'_>,
    ) -> Result<ChannelMessage, (Failure, bool)> {
        let asked = {
            let _quick = (lane == Lane::Slow).then(|| self.connection(Lane::Quick));
            self.connect(connection)
                .and_then(|process| send(lane, connection, &process, question).map(|()| process))
        };
        let timeout = match (self.role, lane) {
            (Role::Parser, Lane::Slow) => SLOW,
            _ => QUICK,
        };
        let takes_files = matches!(question.request, Request::File(_));
        let answer = asked.and_then(|process| process.receive(lane, timeout, takes_files));
        let was_fresh = connection.answers == 0;
        answer
            .inspect(|_| connection.answers += 1)
            .map_err(|failure| {
                tracing::debug!("{}, {:?}: {failure:?}", self.role.name(), question.request);
                if failure != Failure::NotAsked {
                    self.replace(connection);
                }
                (failure, was_fresh)
            })
    }

    /// Says something that is not answered, if the helper has been asked before.
    pub(super) fn tell(&self, lane: Lane, request: &Request) {
        let mut connection = self.connection(lane);
        let process = connection.process.clone();
        if process.is_some_and(|process| process.send(lane, request, None).is_err()) {
            self.replace(&mut connection);
        }
    }

    /// The process that answers, which is started if there is none.
    fn process(&self) -> io::Result<Arc<HelperProcess>> {
        let mut current = lock(&self.current);
        match &*current {
            Some(process) => Ok(process.clone()),
            None => {
                let process = HelperProcess::start(self.role, self.host)?;
                Ok(current.insert(Arc::new(process)).clone())
            }
        }
    }

    fn connect(&self, connection: &mut Connection) -> Result<Arc<HelperProcess>, Failure> {
        let process = self.process().map_err(|error| {
            tracing::debug!("no {}: {error}", self.role.name());
            Failure::NotAsked
        })?;
        let known = connection.process.as_ref();
        if known.is_none_or(|known| !Arc::ptr_eq(known, &process)) {
            *connection = Connection {
                generation: connection.generation + 1,
                process: Some(process.clone()),
                ..Connection::default()
            };
        }
        Ok(process)
    }

    /// Ends the process of `connection`. The next is started when it is asked.
    pub(super) fn replace(&self, connection: &mut Connection) {
        connection.files.clear();
        let Some(process) = connection.process.take() else {
            return;
        };
        process.end();
        lock(&self.current).take_if(|current| Arc::ptr_eq(current, &process));
    }
}

/// Gives the files that are not there yet, and asks.
fn send(
    lane: Lane,
    connection: &mut Connection,
    process: &HelperProcess,
    question: Question<'_>,
) -> Result<(), Failure> {
    if !connection.has_begun {
        // At the start there is nothing else to do.
        let patience = match (lane, connection.generation) {
            (Lane::Quick, 1) => TO_BEGIN,
            _ => QUICK,
        };
        let begun = process.receive(lane, patience, false);
        begun.map_err(|failure| match failure {
            Failure::Died => failure,
            _ if process.started.elapsed() >= TO_BEGIN => Failure::Waited,
            _ => Failure::NotAsked,
        })?;
        connection.has_begun = true;
    }
    if connection.files.len() + question.files.len() > MAX_FILES {
        connection.files.clear();
        process.send(lane, &Request::CloseAll, None)?;
    }
    for file in question.files {
        if connection.files.insert(file.number) {
            process.send(lane, &Request::Open(file.number), Some(&file.file))?;
        }
    }
    process.send(lane, question.request, question.with)
}

/// A running helper, with a channel for each [`Lane`].
#[derive(Debug)]
struct HelperProcess {
    channels: [Channel; 2],
    child: Option<Child>,
    started: Instant,
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
            HelperHost::Thread => {
                thread::Builder::new().spawn(move || main::serve(&other_quick, other_slow))?;
                None
            }
        };
        Ok(Self {
            channels: [quick, slow],
            child,
            started: Instant::now(),
        })
    }

    fn send(&self, lane: Lane, request: &Request, file: Option<&File>) -> Result<(), Failure> {
        let sent = self.channels[lane as usize].send(&encoded(request), file);
        sent.map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => Failure::NotAsked,
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
        let busy = is_late.then(|| self.busy());
        let answer = channel.receive(takes_files, Some(begin + timeout));
        answer.map_err(|error| match error.kind() {
            ErrorKind::TimedOut if self.was_held_up(busy.unwrap_or_default()) => Failure::Waited,
            ErrorKind::TimedOut => Failure::TookTooLong,
            _ => Failure::Died,
        })
    }

    /// Whether it is stopped, or runs and has got little of the processor since it had taken `busy` of it.
    fn was_held_up(&self, busy: Duration) -> bool {
        let Some(child) = &self.child else {
            return true;
        };
        // The state of the first thread, which has the quick lane.
        match proc::stat(child.id()).map(|stat| stat.state) {
            Ok('R') => self.busy().saturating_sub(busy) < MIN_BUSY,
            state => state.is_ok_and(|state| state == 'T'),
        }
    }

    /// The processor's time that its first thread has taken; none that is known of, where it is a thread itself.
    fn busy(&self) -> Duration {
        let time = || {
            let pid = self.child.as_ref()?.id();
            let text = proc::short(pid, &format!("task/{pid}/schedstat")).ok()?;
            text.split(' ').next()?.parse().ok()
        };
        time().map_or(Duration::ZERO, Duration::from_nanos)
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
    /// Waits for nobody: who hangs in the kernel ends later, and is reaped by a thread then.
    fn drop(&mut self) {
        self.end();
        if let Some(mut child) = self.child.take() {
            // Most often it is gone at once, and then leaves nothing.
            for _ in 0..20 {
                if !matches!(child.try_wait(), Ok(None)) {
                    return;
                }
                thread::sleep(Duration::from_millis(1));
            }
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
            started: Instant::now(),
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
            (&loops, true, Failure::Waited),
        ] {
            let (process, _others) = linked(command);
            let pid = process.pid().unwrap();
            if is_stopped {
                kill(pid, Signal::SIGSTOP).unwrap();
            } else {
                while command == loops && process.busy() < MIN_BUSY {
                    thread::yield_now();
                }
            }
            let begin = Instant::now();
            let failure = process.receive(Lane::Quick, SHORT, false).unwrap_err();
            assert!((SHORT..LONG / 2).contains(&begin.elapsed()));
            // One that loops may not have got the processor beside other tests.
            let was_starved = command == loops && failure == Failure::Waited;
            assert!(
                failure == expected || was_starved,
                "{command:?}: {failure:?}"
            );
        }
    }

    #[test]
    fn both_lanes_are_answered_and_a_process_that_ended_is_replaced() {
        let helper = Helper::start(Role::Reader, HelperHost::Thread);
        let ask = |lane| {
            let request = Request::Memory {
                pid: std::process::id(),
                address: 8,
                size_bytes: 1,
            };
            let question = Question::about(&[], &request);
            let mut connection = helper.connection(lane);
            let answer = helper.ask(lane, &mut connection, question);
            (answer.unwrap().bytes, connection.generation)
        };
        let nothing = encoded(&Vec::<u8>::new());
        for lane in [Lane::Quick, Lane::Slow] {
            assert_eq!(ask(lane), (nothing.clone(), 1));
        }
        lock(&helper.current).as_ref().unwrap().end();
        assert_eq!(ask(Lane::Slow), (nothing.clone(), 2));
        // The other lane finds the new one at once.
        assert_eq!(ask(Lane::Quick), (nothing, 2));
    }
}
