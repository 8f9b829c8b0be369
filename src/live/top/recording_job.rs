//! Files that keys ask for: flame graphs, and recordings.
//!
//! A thread of its own keeps the capabilities of the start, which files in folders of others and a further gpuprobe
//! need; the tracing thread and that of the screen drop theirs.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use gpuprobe_os::{files, say};

enum RecordingTask {
    Write(PathBuf, Vec<u8>),
    Record(u32),
}

/// Passes tasks to the thread.
#[derive(Debug)]
pub(super) struct RecordingJob {
    tasks: Sender<RecordingTask>,
    thread: JoinHandle<()>,
}

impl RecordingJob {
    /// Starts the thread; must be called before the capabilities are dropped.
    pub(super) fn start() -> Result<Self> {
        let (tasks, taken) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("gpuprobe-files".to_owned())
            .spawn(move || run(&taken))
            .context("cannot start the thread that writes files")?;
        Ok(Self { tasks, thread })
    }

    /// Writes `bytes` into the file `path`.
    pub(super) fn write(&self, path: PathBuf, bytes: Vec<u8>) {
        let _ = self.tasks.send(RecordingTask::Write(path, bytes));
    }

    /// Starts a recording of process `pid`, or stops the one that is being made.
    pub(super) fn record(&self, pid: u32) {
        let _ = self.tasks.send(RecordingTask::Record(pid));
    }

    /// Stops a recording, and waits until it is complete.
    pub(super) fn end(self) {
        drop(self.tasks);
        let _ = self.thread.join();
    }
}

/// A gpuprobe that records, and the thread that reads its messages.
struct Recording {
    child: Child,
    said: JoinHandle<()>,
}

fn run(tasks: &Receiver<RecordingTask>) {
    let mut recording: Option<Recording> = None;
    for task in tasks {
        match task {
            RecordingTask::Write(path, bytes) => write(&path, &bytes),
            RecordingTask::Record(pid) => {
                if recording.take().is_some_and(Recording::stop) {
                    continue;
                }
                match Recording::start(pid) {
                    Ok(new) => recording = Some(new),
                    Err(error) => say(format_args!("{error:#}")),
                }
            }
        }
    }
    if let Some(recording) = recording {
        recording.stop();
    }
}

fn write(path: &Path, bytes: &[u8]) {
    let written = files::create(path).and_then(|mut file| file.write_all(bytes));
    let shown = path.display();
    match written {
        Ok(()) => say(format_args!("flame graph in {shown}")),
        Err(error) => say(format_args!("cannot write to {shown}: {error}")),
    }
}

impl Recording {
    fn start(pid: u32) -> Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .args(["record", "--memleak", "--cudatrace", "--bandwidth-util"])
            .args(["--pid", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a recording")?;
        let lines = child.stderr.take().map(BufReader::new);
        let said = thread::Builder::new()
            .name("gpuprobe-told".to_owned())
            .spawn(move || {
                let lines = lines.into_iter().flat_map(BufRead::lines);
                for line in lines.map_while(Result::ok) {
                    say(line.strip_prefix("gpuprobe: ").unwrap_or(&line));
                }
            })
            .context("cannot start a thread")?;
        Ok(Self { child, said })
    }

    /// Ends the recording, and waits until it is complete. Returns whether it had not ended itself.
    fn stop(mut self) -> bool {
        let is_running = matches!(self.child.try_wait(), Ok(None));
        if is_running {
            let pid = Pid::from_raw(self.child.id().cast_signed());
            let _ = kill(pid, Signal::SIGINT);
            let _ = self.child.wait();
        }
        let _ = self.said.join();
        is_running
    }
}
