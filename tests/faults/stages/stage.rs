//! Stages of a run, how to reach them, and whether gpuprobe was in one when it was killed.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::REMOVAL;
use crate::harness::child::{shell_code, state_of};
use crate::harness::{DEADLINE, Gpuprobe, Objects, Setup, wait_for, wait_within};

/// A stage at which gpuprobe is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has this many links, programs and maps in the kernel, and does not trace yet.
    Starting(usize),
    /// It has printed that it traces.
    Tracing,
    /// It is in the middle of writing a report.
    Reporting,
    /// It is in the middle of writing its last report.
    LastReport,
    /// Its last report is written, and some of its links are gone.
    Ending,
}

/// A pipe without a reader.
struct Pipe {
    path: PathBuf,
    ours: File,
    _folder: TempDir,
}

impl Pipe {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("reports");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let ours = options.custom_flags(libc::O_NONBLOCK).open(&path);
        Self {
            path,
            ours: ours.unwrap(),
            _folder: folder,
        }
    }

    /// The unread content.
    fn content(&mut self) -> Vec<u8> {
        let mut content = Vec::new();
        let end = self.ours.read_to_end(&mut content);
        assert_eq!(end.unwrap_err().kind(), ErrorKind::WouldBlock);
        content
    }
}

/// A gpuprobe on its way to a stage.
pub(super) struct KilledTracer {
    pub(super) gpuprobe: Gpuprobe,
    stage: Stage,
    /// The pipe for reports, if the stage is in the middle of one.
    pipe: Option<Pipe>,
    /// Its BPF objects once it traced.
    had: Objects,
}

pub(super) fn count(objects: &Objects) -> usize {
    objects.links.len() + objects.programs.len() + objects.maps.len()
}

fn traces(said: &[String]) -> bool {
    said.iter().any(|l| l.starts_with("gpuprobe: tracing"))
}

impl KilledTracer {
    pub(super) fn spawn(setup: Setup, stage: Stage) -> Self {
        let interval = if stage == Stage::Reporting {
            "5ms"
        } else {
            "1h"
        };
        let is_in_a_report = matches!(stage, Stage::Reporting | Stage::LastReport);
        let pipe = is_in_a_report.then(Pipe::new);
        let setup = setup.interval(interval);
        let setup = match &pipe {
            Some(pipe) => setup.on_stdout().args(["-o", pipe.path.to_str().unwrap()]),
            None => setup,
        };
        Self {
            gpuprobe: setup.spawn(),
            stage,
            pipe,
            had: Objects::default(),
        }
    }

    fn pid(&self) -> u32 {
        self.gpuprobe.child.pid()
    }

    fn objects(&self) -> Objects {
        Objects::of(self.pid())
    }

    fn has_ended(&self) -> bool {
        matches!(state_of(self.pid()), Some('Z') | None)
    }

    /// Waits until it is in its stage, or beyond. Once it traces, `make_work` makes more
    /// allocations in the traced program than a report in a pipe can hold, and `end` stops
    /// gpuprobe.
    pub(super) fn reach(&mut self, make_work: impl FnOnce(&mut Self), end: impl FnOnce(&mut Self)) {
        if let Stage::Starting(least) = self.stage {
            return self.wait_without_pause(|doomed| {
                traces(&doomed.gpuprobe.stderr.so_far()) || count(&doomed.objects()) >= least
            });
        }
        self.gpuprobe.stderr.line_starting("gpuprobe: tracing");
        if self.stage == Stage::Tracing {
            return;
        }
        make_work(self);
        self.had = self.objects();
        if self.stage != Stage::Reporting {
            end(self);
        }
        if let Some(pipe) = &self.pipe {
            wait_for("a report to be written", || {
                (self.has_ended() || self.writes_to(&pipe.path)).then_some(())
            });
        } else {
            // Until its only report, a link that it had for its start may go.
            let reports = self.gpuprobe.reports.clone();
            let is_written = || fs::metadata(&reports).is_ok_and(|file| file.len() > 0);
            while !is_written() && !self.has_ended() {
                self.had = self.objects();
            }
            self.wait_without_pause(|doomed| doomed.objects().links.len() < doomed.had.links.len());
        }
    }

    /// The awaited state is transient.
    fn wait_without_pause(&self, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !done(self) && !self.has_ended() {
            assert!(Instant::now() < end, "{:?} does not come", self.stage);
        }
    }

    /// Whether it is blocked on a write to `path`.
    fn writes_to(&self, path: &Path) -> bool {
        let process = format!("/proc/{}", self.pid());
        let call = fs::read_to_string(format!("{process}/syscall")).unwrap_or_default();
        let mut words = call.split(' ');
        let number = words.next().and_then(|word| word.parse().ok());
        let file = words.next().and_then(|word| word.strip_prefix("0x"));
        let file = file.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let target = |file| fs::read_link(format!("{process}/fd/{file}")).ok();
        number == Some(libc::SYS_write) && file.and_then(target).is_some_and(|to| to == path)
    }

    /// Stops it for good: its BPF objects are final.
    pub(super) fn stop(&self) -> Objects {
        Objects::of_stopped(&self.gpuprobe)
    }

    pub(super) fn kill(&self) {
        self.gpuprobe.child.signal(Signal::SIGKILL);
    }

    /// Waits until it has exited and all of its objects are gone; it had `objects` when it was
    /// stopped. Returns whether it was killed in its stage, and whether it had printed that it
    /// traces.
    pub(super) fn wait(&mut self, objects: &Objects) -> (bool, bool) {
        let status = wait_within(REMOVAL, "the end of gpuprobe", || {
            self.gpuprobe.child.streams().try_wait().unwrap()
        });
        for objects in [objects, &self.had] {
            objects.wait_until_gone(REMOVAL);
        }
        let traced = match self.stage {
            Stage::Starting(_) => traces(&self.gpuprobe.stderr.to_end()),
            _ => true,
        };
        let was_in = self.was_in_stage(objects, traced);
        (was_in && shell_code(status) == 128 + 9, traced)
    }

    fn was_in_stage(&mut self, objects: &Objects, traced: bool) -> bool {
        let written = match &mut self.pipe {
            Some(pipe) => pipe.content(),
            None => fs::read(&self.gpuprobe.reports).unwrap_or_default(),
        };
        let written = String::from_utf8(written).unwrap();
        let (whole, part) = written.rsplit_once('\n').unwrap_or(("", &written));
        let is_last = |report: &str| report.contains("\"final\":true");
        match self.stage {
            Stage::Starting(least) => !traced && count(objects) >= least,
            Stage::Tracing => !is_last(whole),
            Stage::Reporting => !part.is_empty() && !is_last(part),
            Stage::LastReport => is_last(part),
            Stage::Ending => is_last(whole) && objects.links.len() < self.had.links.len(),
        }
    }
}
