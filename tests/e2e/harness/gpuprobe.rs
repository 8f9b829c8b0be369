//! gpuprobe as a child process.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::{Uid, chown};
use tempfile::TempDir;

use super::child::{Guarded, shell_code};
use super::report::number;
use super::talk::Talk;
use super::transcript::Transcript;
use super::{Backend, Report, Truth, copy_program, require_bpf, standin, wait_for};
use crate::validator::check_all;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_gpuprobe");

/// Exit status of a run that traced nothing and whose command, if any, succeeded.
pub(crate) const NOTHING: i32 = 3;

/// Folder for recordings of the runs, if this variable is set.
const RECORD_TO: &str = "GPUPROBE_TEST_RECORD_TO";

/// What gpuprobe prints about a file, as in `replay FILE --format csv`. JSON is checked against its schema.
pub(crate) fn output_of(arguments: &[&str]) -> String {
    let output = Command::new(BINARY).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    let written = String::from_utf8(output.stdout).unwrap();
    if arguments.contains(&"json") {
        check_all(&written);
    }
    written
}

/// Options of a gpuprobe to start. By default it reports memory and writes only the last report, in
/// JSON, to a file.
pub(crate) struct Setup {
    wrapper: Vec<String>,
    arguments: Vec<String>,
    command: Vec<String>,
    environment: Vec<(String, String)>,
    interval: Option<String>,
    modes: Vec<&'static str>,
    format: String,
    to_file: bool,
    user: Option<u32>,
    takes_stacks: bool,
}

impl Setup {
    /// Traces every process of the host.
    pub(crate) fn everything() -> Self {
        require_bpf();
        Self {
            wrapper: Vec::new(),
            arguments: Vec::new(),
            command: Vec::new(),
            environment: Vec::new(),
            interval: Some("1h".to_owned()),
            modes: vec!["--memleak"],
            format: "json".to_owned(),
            to_file: true,
            user: None,
            takes_stacks: true,
        }
    }

    /// Traces a running process.
    pub(crate) fn pid(pid: u32) -> Self {
        Self::pids([pid])
    }

    /// Traces running processes.
    pub(crate) fn pids(pids: impl IntoIterator<Item = u32>) -> Self {
        let pids = pids.into_iter().map(|pid| pid.to_string());
        Self::everything().args(pids.flat_map(|pid| ["--pid".to_owned(), pid]))
    }

    /// [`Self::pids`] without call stacks.
    pub(crate) fn pids_without_stacks(pids: impl IntoIterator<Item = u32>) -> Self {
        Self::pids(pids).without_stacks()
    }

    /// Starts and traces a command.
    pub(crate) fn command<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        let mut setup = Self::everything();
        setup.command.extend(command.into_iter().map(Into::into));
        setup
    }

    /// Starts and traces the workload of `backend`.
    pub(crate) fn workload(backend: Backend) -> Self {
        Self::command([standin().program_text(backend)])
    }

    /// [`Self::pid`] without call stacks, which halves the time that the kernel takes to load the
    /// programs.
    pub(crate) fn pid_without_stacks(pid: u32) -> Self {
        Self::pid(pid).without_stacks()
    }

    /// [`Self::command`] without call stacks.
    pub(crate) fn command_without_stacks<S: Into<String>>(
        command: impl IntoIterator<Item = S>,
    ) -> Self {
        Self::command(command).without_stacks()
    }

    pub(crate) fn without_stacks(self) -> Self {
        let takes_stacks = false;
        Self {
            takes_stacks,
            ..self
        }
    }

    pub(crate) fn args<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// The selected reports; memory if not called.
    pub(crate) fn modes<const N: usize>(mut self, modes: [&'static str; N]) -> Self {
        self.modes = modes.to_vec();
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Executes gpuprobe through `wrapper`, as in `setpriv --option gpuprobe ...`.
    pub(crate) fn wrapped<S: Into<String>>(mut self, wrapper: impl IntoIterator<Item = S>) -> Self {
        self.wrapper = wrapper.into_iter().map(Into::into).collect();
        self
    }

    /// Runs gpuprobe as this user, with these capabilities, as docs/security.md describes.
    pub(crate) fn run_as(mut self, uid: u32, capabilities: &str) -> Self {
        self.user = Some(uid);
        self.wrapped([
            "setpriv".to_owned(),
            format!("--reuid={uid}"),
            format!("--regid={uid}"),
            "--clear-groups".to_owned(),
            format!("--inh-caps=-all,{capabilities}"),
            format!("--ambient-caps=-all,{capabilities}"),
        ])
    }

    pub(crate) fn interval(mut self, interval: &str) -> Self {
        self.interval = Some(interval.to_owned());
        self
    }

    /// Passes no `--interval`.
    pub(crate) fn no_interval(mut self) -> Self {
        self.interval = None;
        self
    }

    pub(crate) fn format(mut self, format: &str) -> Self {
        format.clone_into(&mut self.format);
        self
    }

    /// Writes reports to standard output, which a command shares, unless the arguments select a
    /// file.
    pub(crate) fn on_stdout(mut self) -> Self {
        self.to_file = false;
        self
    }

    fn stacks(&self) -> &[&str] {
        let is_said = self.arguments.iter().any(|word| word == "--stacks");
        match self.takes_stacks || is_said {
            true => &[],
            false => &["--stacks", "off"],
        }
    }

    /// Arguments that record the run, for `tests/snapshots` ([`RECORD_TO`]).
    fn recording(&self) -> Vec<OsString> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let records = self.arguments.iter().any(|word| word.contains("record"));
        let Some(folder) = env::var_os(RECORD_TO).filter(|_| !records && self.user.is_none())
        else {
            return Vec::new();
        };
        let test = thread::current()
            .name()
            .unwrap_or_default()
            .replace("::", "-");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(&folder).join(format!("{test}.{number}.sqlite"));
        vec!["--record".into(), path.into()]
    }

    /// Starts gpuprobe without waiting for it to attach.
    pub(crate) fn spawn(self) -> Gpuprobe {
        let folder = TempDir::new().unwrap();
        let reports = folder.path().join("reports");
        let mut words: Vec<&OsStr> = self.wrapper.iter().map(OsStr::new).collect();
        // The build directory may be closed to other users.
        let copy = folder.path().join("gpuprobe");
        words.push(match self.user {
            Some(uid) => {
                chown(folder.path(), Some(Uid::from_raw(uid)), None).unwrap();
                copy_program(BINARY, &copy);
                copy.as_os_str()
            }
            None => OsStr::new(BINARY),
        });
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args(&self.modes)
            .args(self.interval.iter().flat_map(|i| ["--interval", i]))
            .args(["--format", &self.format])
            .args(&self.arguments)
            .args(self.stacks())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for name in ["CUDA_VISIBLE_DEVICES", "GPUPROBE_LOG", "PKEXEC_UID"] {
            if !self.environment.iter().any(|(set, _)| set == name) {
                command.env_remove(name);
            }
        }
        if !self.environment.iter().any(|(name, _)| name == "SUDO_UID") {
            // The tests may run under sudo; their child processes have to stay root.
            command.env_remove("SUDO_UID").env_remove("SUDO_GID");
        }
        if self.to_file {
            command.arg("-o").arg(&reports);
        } else if !self.command.is_empty() && !self.arguments.iter().any(|word| word == "-o") {
            command.args(["-o", "-"]);
        }
        command.args(self.recording());
        if !self.command.is_empty() {
            command.arg("--").args(&self.command);
        }
        let mut child = Guarded::spawn(&mut command).expect("gpuprobe starts");
        let stderr = Transcript::of(child.streams().stderr.take().expect("a pipe"));
        let talk = Talk::new(&mut child);
        Gpuprobe {
            child,
            stderr,
            talk,
            reports,
            read: Mutex::default(),
            _folder: folder,
        }
    }

    /// Starts gpuprobe and waits until it traces.
    pub(crate) fn start(self) -> Gpuprobe {
        let gpuprobe = self.spawn();
        gpuprobe.stderr.line_starting("gpuprobe: tracing");
        gpuprobe
    }

    /// [`Self::start`] with a command that is a workload; returns its PID, too.
    pub(crate) fn started(self) -> (Gpuprobe, u32) {
        let mut gpuprobe = self.start();
        let pid = gpuprobe.talk.ready();
        (gpuprobe, pid)
    }

    /// Runs `script` in the command, a workload, and waits for the end of both.
    pub(crate) fn run(self, script: &str) -> Run {
        let (mut gpuprobe, pid) = self.started();
        let replies = gpuprobe.talk.play(script);
        let truth = gpuprobe.talk.done();
        gpuprobe.wait();
        Run {
            gpuprobe,
            pid,
            truth,
            replies,
        }
    }
}

/// A run whose command was a workload.
pub(crate) struct Run {
    pub(crate) gpuprobe: Gpuprobe,
    pub(crate) pid: u32,
    pub(crate) truth: Truth,
    pub(crate) replies: Vec<String>,
}

impl Run {
    /// The last report.
    pub(crate) fn report(&mut self) -> Report {
        self.gpuprobe.final_report()
    }

    /// The reports as they were written.
    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.gpuprobe.reports).unwrap()
    }
}

pub(crate) struct Gpuprobe {
    pub(crate) child: Guarded,
    pub(crate) stderr: Transcript,
    /// Standard input and output, which are the command's if there is one.
    pub(crate) talk: Talk,
    pub(crate) reports: PathBuf,
    /// The part of that file that was read: its length in bytes, and the reports in it.
    read: Mutex<(u64, Vec<Report>)>,
    _folder: TempDir,
}

impl Gpuprobe {
    /// The reports written so far.
    pub(crate) fn reports(&self) -> Vec<Report> {
        self.read_reports().1.clone()
    }

    /// Reads the reports that were written since the last call; returns all of them.
    fn read_reports(&self) -> MutexGuard<'_, (u64, Vec<Report>)> {
        let mut guard = self.read.lock().unwrap();
        let (offset, reports) = &mut *guard;
        let mut text = String::new();
        if let Ok(mut file) = fs::File::open(&self.reports) {
            file.seek(SeekFrom::Start(*offset)).unwrap();
            file.read_to_string(&mut text).unwrap();
        }
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        *offset += whole as u64;
        let lines = text[..whole].lines();
        reports.extend(lines.filter_map(Report::parse_unless_copy));
        guard
    }

    /// The number of functions and libraries that it reports as attached at the start.
    pub(crate) fn announced(&self) -> (u64, u64) {
        let line = self.stderr.line_starting("gpuprobe: tracing");
        let counts = line.rsplit_once(": ").expect("counts").1;
        let mut numbers = counts.split(' ').filter_map(|word| word.parse().ok());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    /// Waits for a report that satisfies `wanted`.
    pub(crate) fn report_where(&self, what: &str, wanted: impl Fn(&Report) -> bool) -> Report {
        wait_for(what, || {
            let (_, reports) = &*self.read_reports();
            reports.iter().find(|report| wanted(report)).cloned()
        })
    }

    /// Makes allocations in the workload `pid` until a report has one; returns the time that took. All
    /// later calls are seen. (That it is shown does not suffice: functions that set the device are
    /// probed first.)
    pub(crate) fn until_it_sees(&self, pid: u32, workload: &mut Talk) -> Duration {
        let start = Instant::now();
        wait_for("an allocation to be seen", || {
            workload.say("alloc 1");
            let (_, reports) = &*self.read_reports();
            let shown = reports.last()?.entries(pid);
            let mut held = shown.iter().map(|process| number(process, "live_bytes"));
            held.any(|bytes| bytes != 0).then_some(())
        });
        start.elapsed()
    }

    /// Waits for the next report after those written so far.
    pub(crate) fn next_report(&self) -> Report {
        self.next_report_while(|| ())
    }

    /// Calls `look` again and again until the next report is there.
    pub(crate) fn next_report_while(&self, mut look: impl FnMut()) -> Report {
        let seen = self.read_reports().1.len();
        wait_for("the next report", || {
            look();
            self.read_reports().1.get(seen).cloned()
        })
    }

    pub(crate) fn interrupt(&self) {
        self.child.signal(Signal::SIGINT);
    }

    /// Waits for the exit; returns the last report.
    pub(crate) fn final_report(&mut self) -> Report {
        self.wait();
        let mut reports = self.reports();
        let Some(last) = reports.pop() else {
            panic!("no report; standard error says {:#?}", self.stderr.so_far());
        };
        assert!(last.is_final(), "the last report says that it is not");
        assert!(
            !reports.iter().any(Report::is_final),
            "several last reports"
        );
        last
    }

    /// Stops the run with SIGINT; returns the last report.
    pub(crate) fn stop(&mut self) -> Report {
        self.interrupt();
        self.final_report()
    }

    /// Waits for the exit; asserts that the program did not panic.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait();
        let said = self.stderr.so_far();
        assert!(!said.iter().any(|l| l.contains("panicked")), "{said:#?}");
        status
    }

    /// Waits for the exit; returns the exit status as a shell reports it.
    pub(crate) fn exit_code(&mut self) -> i32 {
        shell_code(self.wait())
    }

    /// All of standard error, after the exit.
    pub(crate) fn said(&mut self) -> Vec<String> {
        self.wait();
        self.stderr.to_end()
    }
}
