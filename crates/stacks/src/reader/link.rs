//! The connection to a process that reads, or to a thread that stands for one.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use super::{ALL_ARE_TRUSTED, ARGUMENT, ReaderKind, ReaderLimits};
use gpuprobe_os::channel::{Channel, ChannelMessage};
use gpuprobe_os::confined::limit_processor_time;
use gpuprobe_os::mounts;
use gpuprobe_os::proc;

/// Where a reader runs.
#[derive(Clone, Copy, Debug)]
pub enum ReaderHost {
    /// In a process of its own.
    Process,
    /// On a thread of this one, which runs this function: for tests, and for files that are nobody else's.
    Thread(fn(ReaderKind, &Channel)),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It died.
    Died,
    /// It took too much of the processor's time.
    TookTooLong,
    /// It did not get to it, or waited for a disk.
    Waited,
}

/// A running reader. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct ReaderProcess {
    channel: Channel,
    child: Option<Child>,
    /// Processes of its kind that were killed and are not gone.
    hanging: &'static AtomicUsize,
    limits: ReaderLimits,
    /// It has said that it has begun.
    has_begun: bool,
    /// Answers that it has given.
    pub(super) answers: u64,
}

/// How long one may take to begin, by the clock.
const TO_BEGIN: Duration = Duration::from_secs(5);
/// Processor time from which a late reader counts as busy, not as waiting for the processor.
const MIN_BUSY: Duration = Duration::from_millis(50);
/// Processor time from which the kernel ends it, beyond the limit of an answer, at which it is killed from here.
const SPARE: Duration = Duration::from_secs(1);
/// Processes of a kind that were killed and still hang in the kernel, each with a megabyte of memory. No other of
/// this kind is started before one of these is gone.
const MAX_HANGING: usize = 16;
static HANGING: [AtomicUsize; ReaderKind::ALL.len()] =
    [const { AtomicUsize::new(0) }; ReaderKind::ALL.len()];

impl ReaderProcess {
    pub(super) fn start(kind: ReaderKind, place: ReaderHost) -> io::Result<Self> {
        let hanging = &HANGING[kind as usize];
        if hanging.load(Ordering::Relaxed) >= MAX_HANGING {
            return Err(io::Error::other("too many hang in the kernel"));
        }
        let (channel, other) = Channel::pair()?;
        let child = match place {
            ReaderHost::Process => Some(process(kind, other)?),
            ReaderHost::Thread(serve) => {
                thread::Builder::new().spawn(move || serve(kind, &other))?;
                None
            }
        };
        Ok(Self {
            channel,
            child,
            hanging,
            limits: kind.limits(),
            has_begun: false,
            answers: 0,
        })
    }

    /// Sends what is not answered.
    pub(super) fn tell(&self, bytes: &[u8], file: Option<&File>) -> Result<(), Failure> {
        self.channel.send(bytes, file).map_err(|_| Failure::Died)
    }

    /// Waits until it has begun, which is no file's doing.
    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        if !self.has_begun {
            let begin = Instant::now();
            let mut goes_on = || begin.elapsed() < TO_BEGIN;
            let begun = self.channel.receive(false, &mut Some(&mut goes_on));
            begun.map_err(|_| Failure::Waited)?;
            self.has_begun = true;
        }
        Ok(())
    }

    /// Sends `bytes` and waits for the answer, which may have a file with it where `takes_files`.
    pub(super) fn ask(
        &mut self,
        bytes: &[u8],
        file: Option<&File>,
        takes_files: bool,
    ) -> Result<ChannelMessage, Failure> {
        self.begin()?;
        self.limit();
        self.tell(bytes, file)?;
        self.answer(takes_files)
    }

    /// Limits the processor time until the next answer.
    fn limit(&self) {
        if let Some(child) = &self.child {
            // The second limit only: this process enforces the first.
            let _ =
                limit_processor_time(child.id(), self.busy() + self.limits.timeout.busy + SPARE);
        }
    }

    fn answer(&mut self, takes_files: bool) -> Result<ChannelMessage, Failure> {
        let timeout = self.limits.timeout;
        let (begin, busy) = (Instant::now(), self.busy());
        let mut why = Failure::Waited;
        let mut goes_on = || {
            let took = self.busy().saturating_sub(busy);
            if took > MIN_BUSY {
                why = Failure::TookTooLong;
            }
            let elapsed = begin.elapsed();
            let is_in_time =
                elapsed < timeout.waiting || elapsed < timeout.elapsed && self.is_runnable();
            took < timeout.busy && is_in_time
        };
        let answer = self.channel.receive(takes_files, &mut Some(&mut goes_on));
        let answer = answer.map_err(|error| match error.kind() {
            ErrorKind::TimedOut => why,
            _ => Failure::Died,
        })?;
        self.answers += 1;
        Ok(answer)
    }

    /// Whether it runs or waits for the processor, not for anything else.
    fn is_runnable(&self) -> bool {
        self.state() == Some('R')
    }

    /// Whether it waits for something else than the processor. One that was stopped (`T`) does not.
    pub(super) fn hangs(&self) -> bool {
        matches!(self.state(), Some('S' | 'D'))
    }

    fn state(&self) -> Option<char> {
        Some(proc::stat(self.child.as_ref()?.id()).ok()?.state)
    }

    /// The processor's time that it has taken; none that is known of, of a thread.
    fn busy(&self) -> Duration {
        let time = || {
            let pid = i32::try_from(self.child.as_ref()?.id()).ok()?;
            let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).ok()?;
            Some(Duration::from(clock_gettime(clock).ok()?))
        };
        time().unwrap_or_default()
    }
}

impl Drop for ReaderProcess {
    /// Waits for nobody: who hangs in the kernel ends later, and is reaped by a thread then.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            // Most often it is gone at once, and then leaves nothing.
            for _ in 0..20 {
                if !matches!(child.try_wait(), Ok(None)) {
                    return;
                }
                thread::sleep(Duration::from_millis(1));
            }
            let hanging = self.hanging;
            hanging.fetch_add(1, Ordering::Relaxed);
            let reap = move || {
                let _ = child.wait();
                hanging.fetch_sub(1, Ordering::Relaxed);
            };
            let _ = thread::Builder::new().spawn(reap);
        }
    }
}

fn process(kind: ReaderKind, channel: Channel) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.args([ARGUMENT, kind.name()]);
    if mounts::all_are_trusted() {
        command.arg(ALL_ARE_TRUSTED);
    }
    command
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(channel)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;

    use super::super::Timeout;
    use super::*;

    static HANG: AtomicUsize = AtomicUsize::new(0);
    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(30);

    /// The connection to a process that runs `command` and does not answer by itself, and its other end.
    fn linked(command: &[&str], busy: Duration, elapsed: Duration) -> (ReaderProcess, Channel) {
        let (channel, other) = Channel::pair().unwrap();
        let child = Command::new(command[0]).args(&command[1..]).spawn();
        let timeout = Timeout {
            busy,
            waiting: elapsed,
            elapsed,
        };
        let limits = ReaderLimits {
            timeout,
            data_bytes: 0,
        };
        let link = ReaderProcess {
            channel,
            child: Some(child.unwrap()),
            hanging: &HANG,
            limits,
            has_begun: true,
            answers: 0,
        };
        (link, other)
    }

    const SLEEPS: [&str; 2] = ["sleep", "60"];
    const RUNS: [&str; 3] = ["sh", "-c", "while :; do :; done"];

    #[test]
    fn answers_are_counted_and_a_closed_connection_is_a_death() {
        let (mut link, other) = linked(&SLEEPS, LONG, LONG);
        for count in 1..=2 {
            other.send(b"yes", None).unwrap();
            let answer = link.ask(b"question", None, false).unwrap();
            assert_eq!((answer.bytes, link.answers), (b"yes".to_vec(), count));
            let asked = other.receive(false, &mut None).unwrap();
            assert_eq!(asked.bytes, b"question");
        }
        link.has_begun = false;
        other.send(b"begun", None).unwrap();
        other.send(b"answer", None).unwrap();
        let answer = link.ask(b"question", None, false).unwrap();
        assert!(link.has_begun && answer.bytes == b"answer");
        drop(other);
        assert_eq!(link.ask(b"", None, false).unwrap_err(), Failure::Died);
        link.has_begun = false;
        assert_eq!(link.begin().unwrap_err(), Failure::Waited);
        let process = format!("/proc/{}", link.child.as_ref().unwrap().id());
        assert!(Path::new(&process).exists());
        drop(link);
        assert!(!Path::new(&process).exists() || HANG.load(Ordering::Relaxed) > 0);
    }

    #[test]
    fn one_that_waits_has_less_time_than_one_that_runs() {
        let (mut link, _other) = linked(&SLEEPS, LONG, LONG);
        link.limits.timeout.waiting = SHORT;
        let begin = Instant::now();
        assert_eq!(link.ask(b"", None, false).unwrap_err(), Failure::Waited);
        assert!((SHORT..LONG / 2).contains(&begin.elapsed()));
        assert!(link.busy() < MIN_BUSY && link.answers == 0);
        assert!(link.hangs() && !link.is_runnable());
        let (mut link, _other) = linked(&RUNS, LONG, 20 * SHORT);
        link.limits.timeout.waiting = SHORT;
        while link.busy() < SHORT {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(link.is_runnable() && !link.hangs());
        let begin = Instant::now();
        assert!(link.ask(b"", None, false).is_err());
        assert!((20 * SHORT..LONG / 2).contains(&begin.elapsed()));
    }

    #[test]
    fn one_that_runs_has_the_time_of_the_processor() {
        let (mut link, _other) = linked(&RUNS, 2 * MIN_BUSY, LONG);
        let failure = link.ask(b"", None, false).unwrap_err();
        assert_eq!(failure, Failure::TookTooLong);
        assert!((2 * MIN_BUSY..LONG / 2).contains(&link.busy()));
    }

    #[test]
    fn one_that_nobody_kills_is_ended_by_the_kernel() {
        let (mut link, _other) = linked(&RUNS, SHORT, LONG);
        let failure = link.ask(b"", None, false).unwrap_err();
        assert_ne!(failure, Failure::Died);
        let child = link.child.as_mut().unwrap();
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < LONG, "it goes on");
            thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(status.signal(), Some(nix::libc::SIGXCPU));
    }
}
