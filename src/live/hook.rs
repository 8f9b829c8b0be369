//! The `--on-oom` command, which runs for each incident.
//!
//! A separate thread starts one at a time and waits for it, so that tracing does not block. The thread
//! keeps the capabilities of the start: the tracing thread drops its own. Hooks run as the user who
//! called sudo.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::fchown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::NamedTempFile;

use super::command::Restored;
use gpuprobe_os::privileges::invoker;
use gpuprobe_os::say;

/// Maximum number of incidents in the queue.
const MAX_WAITING: usize = 16;
/// Minimum time between the starts of two hooks.
const EVERY: Duration = Duration::from_secs(1);
/// Run time after which a hook is killed.
const AT_MOST: Duration = Duration::from_secs(60);
/// Interval of checks for the end of a hook.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// What `--on-oom` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnOom {
    /// A snapshot of PyTorch's memory.
    Snapshot,
    /// This command: words in which `{pid}` and `{file}` are replaced. No shell is involved.
    Run(Vec<String>),
}

impl OnOom {
    /// The word `snapshot`, or a command, which is split at blanks outside of quotes, as a shell does.
    ///
    /// # Errors
    /// Returns an error if there is no word, or a quote is not closed.
    pub fn parse(text: &str) -> Result<Self> {
        if text == "snapshot" {
            return Ok(Self::Snapshot);
        }
        let words = shlex::split(text).context("a quote is not closed")?;
        if words.is_empty() {
            bail!("no command is given");
        }
        Ok(Self::Run(words))
    }
}

/// The words of a command for an incident of process `pid`, described in `file`.
fn replaced(words: &[String], pid: u32, file: &Path) -> Vec<String> {
    let (pid, file) = (pid.to_string(), file.to_string_lossy());
    // The path comes last: placeholders in it are not replaced.
    let replaced = |word: &String| word.replace("{pid}", &pid).replace("{file}", &file);
    words.iter().map(replaced).collect()
}

/// An incident for which the hook is to run: its number, its process, and a description.
type Job = (u64, u32, String);

/// Runs the hooks of a session. Dropping it waits for the queued ones, [`AT_MOST`] for all of them.
#[derive(Debug)]
pub(super) struct Hooks {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// When no other hook is started; set at the end of the session.
    ends: Arc<OnceLock<Instant>>,
}

impl Hooks {
    /// Starts the thread that runs `command`; must be called before the capabilities are dropped.
    ///
    /// # Errors
    /// Returns an error if the user who called sudo cannot be looked up, or no thread can be started.
    pub(super) fn start(command: Vec<String>, as_root: bool) -> Result<Self> {
        let (jobs, queue) = sync_channel(MAX_WAITING);
        let ends = Arc::default();
        let runner = Runner {
            command,
            restored: Restored::new(as_root)?,
            ends: Arc::clone(&ends),
        };
        let thread = thread::Builder::new()
            .name("gpuprobe-hook".to_owned())
            .spawn(move || runner.run(&queue))
            .context("cannot start the thread that runs --on-oom")?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            ends,
        })
    }

    /// Queues the hook for an incident of `pid` that `json` describes; dropped if the queue is full.
    pub(super) fn run_for(&mut self, incident: u64, pid: u32, json: String) {
        let job = (incident, pid, json);
        if let Some(Err(_)) = self.jobs.as_ref().map(|jobs| jobs.try_send(job)) {
            say(format_args!(
                "warning: --on-oom not run for incident #{incident}: {MAX_WAITING} incidents are queued"
            ));
        }
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.jobs = None;
        let _ = self.ends.set(Instant::now() + AT_MOST);
        let thread = self.thread.take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            say("error: the thread that runs --on-oom panicked");
        }
    }
}

/// State of the hook thread.
struct Runner {
    command: Vec<String>,
    restored: Restored,
    ends: Arc<OnceLock<Instant>>,
}

impl Runner {
    /// Runs hooks until the session ends.
    fn run(&self, queue: &Receiver<Job>) {
        let mut next = Instant::now();
        for (incident, pid, json) in queue {
            let done = if self.ends.get().is_some_and(|ends| Instant::now() > *ends) {
                Err(anyhow!("not run: the session ended before its turn"))
            } else {
                thread::sleep(next.saturating_duration_since(Instant::now()));
                next = Instant::now() + EVERY;
                self.run_one(pid, &json)
            };
            if let Err(error) = done {
                say(format_args!(
                    "warning: --on-oom for incident #{incident}: {error:#}"
                ));
            }
        }
    }

    fn run_one(&self, pid: u32, json: &str) -> Result<()> {
        let file = incident_file(json).context("cannot write the incident file")?;
        let words = replaced(&self.command, pid, file.path());
        let (program, arguments) = words.split_first().context("no command")?;
        // Reports may go to standard output.
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(stderr);
        // Signals from the terminal are for gpuprobe only.
        command.process_group(0);
        self.restored.prepare(&mut command);
        let child = command.spawn();
        let mut child = child.with_context(|| format!("cannot start {program}"))?;
        let status = wait(&mut child).with_context(|| format!("cannot wait for {program}"))?;
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("{program} ended with {status}"),
            None => bail!("{program} was killed: it took more than {AT_MOST:?}"),
        }
    }
}

/// Waits for a hook. After [`AT_MOST`], kills its process group and returns `None`.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + AT_MOST;
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(POLL_EVERY);
    }
    killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL)?;
    child.wait()?;
    Ok(None)
}

/// Writes an incident into a new file, which only the user as whom the hook runs may read; removed on drop.
fn incident_file(json: &str) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    let mut file = builder.prefix("gpuprobe-oom-").suffix(".json").tempfile()?;
    if let Some(user) = invoker() {
        fchown(file.as_file(), Some(user.uid), Some(user.gid))?;
    }
    writeln!(file, "{json}")?;
    Ok(file)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn words(command: &str, file: &str) -> Vec<String> {
        let OnOom::Run(words) = OnOom::parse(command).unwrap() else {
            return Vec::new();
        };
        replaced(&words, 574, Path::new(file))
    }

    #[test]
    fn a_command_is_split_like_in_a_shell() {
        assert_eq!(
            words(
                "kubectl annotate 'my pod' pid={pid} \"oom {file}\"",
                "/t/a b"
            ),
            ["kubectl", "annotate", "my pod", "pid=574", "oom /t/a b"]
        );
        // File names are not interpreted, and replacements not replaced again.
        assert_eq!(
            words("sh -c 'cat \"$1\"' sh {file}", "/t/$(reboot); {pid} '\"`"),
            ["sh", "-c", "cat \"$1\"", "sh", "/t/$(reboot); {pid} '\"`"]
        );
        assert_eq!(words("a{pid}{pid}{x}{", "f"), ["a574574{x}{"]);
    }

    #[test]
    fn an_empty_or_unclosed_command_is_rejected() {
        assert!(OnOom::parse("").is_err());
        assert!(OnOom::parse("  ").is_err());
        assert!(OnOom::parse("echo 'x").is_err());
    }
}
