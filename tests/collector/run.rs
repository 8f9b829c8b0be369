//! Runs a workload with the collector and reads the batches that it delivered.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use gpuprobe::probe::library::CollectorLibrary;
use gpuprobe_wire::{
    ActivityKinds, Batch, BatchHeader, SETTINGS_VARIABLE, WireRecord, WireSettings, flags,
};
use tempfile::TempDir;

use crate::harness::standin::standin;

/// Timeout of a workload.
const LONGEST: Duration = Duration::from_secs(60);

/// Path of the collector library, written once below `target`: statics are never dropped, so `cargo
/// clean` removes it.
fn collector() -> &'static Path {
    static COLLECTOR: OnceLock<PathBuf> = OnceLock::new();
    COLLECTOR.get_or_init(|| {
        let library = CollectorLibrary::write().unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (new, own) = (
            TempDir::new_in(folder).unwrap(),
            folder.join("collector.so"),
        );
        // Atomically: a concurrent test run may have it open.
        fs::copy(&library.path, new.path().join("new")).unwrap();
        fs::rename(new.path().join("new"), &own).unwrap();
        own
    })
}

/// Configuration of a run.
pub(crate) struct CollectorSetup {
    command: Command,
    folder: TempDir,
}

impl CollectorSetup {
    /// A run of the stand-in workload `program` with `commands`.
    pub(crate) fn new(program: &str, commands: &str) -> Self {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let standin = standin();
        let mut command = Command::new(standin.path(program));
        if !commands.is_empty() {
            command.args(["-c", commands]);
        }
        let settings = WireSettings {
            kinds: ActivityKinds::USUAL,
            flush_ms: 20,
            ..WireSettings::default()
        };
        command
            .env("CUDA_INJECTION64_PATH", standin.path("libspy.so"))
            .env("SPY_COLLECTOR", collector())
            .env("SPY_OUTPUT", folder.path().join("batches"))
            .env("GPUPROBE_CUPTI", standin.path("cupti/libcupti.so.13"))
            .env(SETTINGS_VARIABLE, settings.to_string())
            .env_remove("LD_LIBRARY_PATH")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self { command, folder }
    }

    pub(crate) fn variable(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn faults(self, faults: &str) -> Self {
        self.variable("STANDIN_CUPTI_FAULTS", faults)
    }

    pub(crate) fn version(self, version: &str) -> Self {
        self.variable("STANDIN_CUPTI_VERSION", version)
    }

    pub(crate) fn settings(self, settings: WireSettings) -> Self {
        self.variable(SETTINGS_VARIABLE, settings.to_string())
    }

    /// Collects only these kinds of records.
    pub(crate) fn kinds(self, kinds: &str) -> Self {
        self.settings(WireSettings {
            kinds: kinds.parse().unwrap(),
            flush_ms: 20,
            ..WireSettings::default()
        })
    }

    pub(crate) fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Runs the workload to its exit.
    pub(crate) fn run(self) -> CollectorRun {
        self.start().end()
    }

    /// Starts the workload; further commands can be written to its standard input.
    pub(crate) fn start(mut self) -> RunningWorkload {
        let mut child = self.command.spawn().unwrap();
        let stdin = child.stdin.take();
        RunningWorkload {
            child,
            stdin,
            folder: self.folder,
        }
    }
}

/// A running workload.
pub(crate) struct RunningWorkload {
    child: Child,
    stdin: Option<ChildStdin>,
    folder: TempDir,
}

impl Drop for RunningWorkload {
    fn drop(&mut self) {
        // The process has exited unless the test failed.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl RunningWorkload {
    pub(crate) fn stdin(&mut self) -> &mut ChildStdin {
        self.stdin.as_mut().unwrap()
    }

    /// Waits until the records delivered so far satisfy `enough`.
    pub(crate) fn until(&self, enough: impl Fn(&Handed) -> bool) {
        let deadline = Instant::now() + LONGEST;
        while !enough(&Handed::read(self.folder.path())) {
            assert!(Instant::now() < deadline, "it never came");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The next line of standard error; lines before it are discarded.
    pub(crate) fn read_stderr_line(&mut self, line: &mut String) {
        let stderr = self.child.stderr.take().unwrap();
        BufReader::new(stderr).read_line(line).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Closes standard input and waits for the exit.
    pub(crate) fn end(mut self) -> CollectorRun {
        drop(self.stdin.take());
        let stdout = read_in_thread(self.child.stdout.take());
        let stderr = read_in_thread(self.child.stderr.take());
        let deadline = Instant::now() + LONGEST;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the program does not end");
            std::thread::sleep(Duration::from_millis(2));
        };
        CollectorRun {
            status,
            stdout: stdout.join().unwrap(),
            stderr: stderr.join().unwrap(),
            handed: Handed::read(self.folder.path()),
        }
    }
}

fn read_in_thread(
    stream: Option<impl std::io::Read + Send + 'static>,
) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut stream) = stream {
            stream.read_to_string(&mut text).unwrap();
        }
        text
    })
}

/// The output of a workload that has exited.
pub(crate) struct CollectorRun {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) handed: Handed,
}

impl CollectorRun {
    /// The program's own counts, by name.
    pub(crate) fn truth(&self, field: &str) -> u64 {
        let done = self
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("done "));
        let done = done.unwrap_or_else(|| panic!("no end in {:?}", self.stdout));
        let done: serde_json::Value = serde_json::from_str(done).unwrap();
        done[field]
            .as_u64()
            .unwrap_or_else(|| panic!("no {field} in {done}"))
    }

    /// Asserts that the program succeeded and that every self-check it reports passed.
    pub(crate) fn unharmed(self) -> Self {
        assert!(self.status.success(), "{}: {}", self.status, self.stderr);
        assert!(!self.stdout.contains("error"), "{}", self.stdout);
        assert!(!self.stdout.contains("gpuprobe"), "{}", self.stdout);
        self
    }

    /// Asserts that standard error is one line that contains `text`.
    pub(crate) fn says(self, text: &str) -> Self {
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        assert!(self.stderr.starts_with("gpuprobe: "), "{}", self.stderr);
        assert!(self.stderr.contains(text), "{text:?} in {:?}", self.stderr);
        self
    }

    /// Asserts that standard error is empty.
    pub(crate) fn silent(self) -> Self {
        assert_eq!(self.stderr, "");
        self
    }
}

/// Records and batches that the collector delivered.
#[derive(Default)]
pub(crate) struct Handed {
    pub(crate) headers: Vec<BatchHeader>,
    pub(crate) records: Vec<WireRecord>,
    pub(crate) texts: HashMap<u32, String>,
    pub(crate) functions: HashMap<(u32, u32), String>,
}

impl Handed {
    fn read(folder: &Path) -> Self {
        let bytes = fs::read(folder.join("batches")).unwrap_or_default();
        let mut handed = Self::default();
        let mut left = bytes.as_slice();
        while !left.is_empty() {
            let batch = Batch::parse(left).unwrap();
            left = &left[size_of::<BatchHeader>() + batch.header.bytes as usize..];
            handed.add(&batch);
        }
        handed
    }

    fn add(&mut self, batch: &Batch<'_>) {
        let mut records = 0;
        // A second collector, in another process or after an exec.
        if batch.header.sequence == 0 {
            self.texts.clear();
            self.functions.clear();
        }
        for item in batch.records() {
            let item = item.unwrap();
            records += 1;
            match item.record {
                WireRecord::Text(text) => {
                    let known = self.texts.insert(text.id, item.text_lossy().into());
                    assert_eq!(known, None, "a text was sent twice");
                }
                WireRecord::CallbackName(name) => {
                    let key = (name.domain, name.cbid);
                    let known = self.functions.insert(key, item.text_lossy().into());
                    assert_eq!(known, None, "a function was named twice");
                }
                record => self.records.push(record),
            }
        }
        assert_eq!(records, batch.header.records);
        self.headers.push(batch.header);
    }

    /// Asserts that all batches of the single process arrived and that the last one is marked as
    /// last.
    pub(crate) fn complete(&self) -> &Self {
        let mut before = 0;
        for (number, header) in (0u64..).zip(&self.headers) {
            assert_eq!(header.sequence, number);
            assert_eq!(header.records_before, before);
            before += u64::from(header.records);
        }
        let lasts = self.headers.iter().filter(|h| h.flags & flags::LAST != 0);
        assert_eq!(lasts.count(), 1);
        assert_ne!(self.last().flags & flags::LAST, 0);
        self
    }

    pub(crate) fn last(&self) -> &BatchHeader {
        self.headers.last().expect("nothing was handed over")
    }

    pub(crate) fn all<T>(&self, select: impl Fn(&WireRecord) -> Option<T>) -> Vec<T> {
        self.records.iter().filter_map(select).collect()
    }
}

/// The records of one kind: `of!(handed, Kernel)`.
macro_rules! of {
    ($handed:expr, $kind:ident) => {
        $handed.all(|record| match record {
            gpuprobe_wire::WireRecord::$kind(record) => Some(*record),
            _ => None,
        })
    };
}
pub(crate) use of;
