//! The `--on-oom` command, which runs for each incident.
//!
//! A separate thread starts one at a time and waits for it, so that tracing does not block. The thread
//! keeps the capabilities of the start: the tracing thread drops its own. Hooks run as the user who
//! called sudo.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::command::Restored;
use gpuprobe_os::{files, say};

/// Maximum number of incidents in the queue.
const MAX_WAITING: usize = 16;
/// Minimum time between the starts of two hooks.
const EVERY: Duration = Duration::from_secs(1);
/// Run time after which a hook is killed.
const AT_MOST: Duration = Duration::from_secs(60);
/// Interval of checks for the end of a hook.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// The `--on-oom` command: words in which `{pid}` and `{file}` are replaced. No shell is involved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCommand {
    words: Vec<String>,
}

impl HookCommand {
    /// Splits `text` at blanks outside of quotes, as a shell does.
    ///
    /// # Errors
    /// Returns an error if there is no word, or a quote is not closed.
    pub fn parse(text: &str) -> Result<Self> {
        let words = shlex::split(text).context("a quote is not closed")?;
        if words.is_empty() {
            bail!("no command is given");
        }
        Ok(Self { words })
    }

    /// The words for an incident of process `pid`, described in `file`.
    fn words(&self, pid: u32, file: &Path) -> Vec<String> {
        let (pid, file) = (pid.to_string(), file.to_string_lossy());
        let with = |word: &String| substitute(word, &[("{pid}", &pid), ("{file}", &file)]);
        self.words.iter().map(with).collect()
    }
}

/// `word` with each placeholder replaced; replacements are not scanned again.
fn substitute(word: &str, values: &[(&str, &str)]) -> String {
    let mut done = String::new();
    let mut rest = word;
    while !rest.is_empty() {
        let found = values.iter().find_map(|(name, value)| {
            let rest = rest.strip_prefix(name)?;
            Some((*value, rest))
        });
        let (value, after) = found.unwrap_or_else(|| {
            let first = rest.chars().next().map_or(0, char::len_utf8);
            rest.split_at(first)
        });
        done += value;
        rest = after;
    }
    done
}

/// An incident for which the hook is to run.
#[derive(Debug)]
struct Job {
    incident: u64,
    pid: u32,
    json: String,
}

/// Runs the hooks of a session.
#[derive(Debug)]
pub(super) struct Hooks {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    is_ending: Arc<AtomicBool>,
    /// Incidents dropped because the queue was full.
    left_out: u64,
}

impl Hooks {
    /// Starts the thread that runs `command`; must be called before the capabilities are dropped.
    ///
    /// # Errors
    /// Returns an error if the user who called sudo cannot be looked up, or no thread can be started.
    pub(super) fn start(command: HookCommand, as_root: bool) -> Result<Self> {
        let restored = Restored::new(as_root)?;
        let (jobs, taken) = sync_channel(MAX_WAITING);
        let is_ending = Arc::new(AtomicBool::new(false));
        let runner = Runner {
            command,
            restored,
            is_ending: Arc::clone(&is_ending),
            next: Instant::now(),
        };
        let thread = thread::Builder::new()
            .name("gpuprobe-hook".to_owned())
            .spawn(move || runner.run(&taken))
            .context("cannot start the thread that runs --on-oom")?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            is_ending,
            left_out: 0,
        })
    }

    /// Queues the hook for an incident of `pid` that `json` describes; dropped if the queue is full.
    pub(super) fn run_for(&mut self, incident: u64, pid: u32, json: String) {
        let Some(jobs) = &self.jobs else { return };
        let job = Job {
            incident,
            pid,
            json,
        };
        if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) = jobs.try_send(job) {
            self.left_out += 1;
            if self.left_out == 1 {
                say(format_args!(
                    "warning: --on-oom not run for incident #{}: {MAX_WAITING} incidents are queued; \
                     further ones are counted",
                    job.incident
                ));
            }
        }
    }

    /// Waits for the queued hooks, [`AT_MOST`] for all of them.
    pub(super) fn finish(&mut self) {
        self.jobs = None;
        self.is_ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            say("error: the thread that runs --on-oom panicked");
        }
        if self.left_out > 0 {
            let left_out = std::mem::take(&mut self.left_out);
            say(format_args!(
                "--on-oom not run for {left_out} incidents: the queue was full"
            ));
        }
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.finish();
    }
}

/// State of the hook thread.
struct Runner {
    command: HookCommand,
    restored: Restored,
    is_ending: Arc<AtomicBool>,
    /// Earliest start of the next hook.
    next: Instant,
}

impl Runner {
    fn run(mut self, jobs: &Receiver<Job>) {
        let mut ends: Option<Instant> = None;
        let mut left_out = 0;
        for job in jobs {
            thread::sleep(self.next.saturating_duration_since(Instant::now()));
            self.next = Instant::now() + EVERY;
            if self.is_ending.load(Ordering::Relaxed) {
                ends.get_or_insert_with(|| Instant::now() + AT_MOST);
            }
            if ends.is_some_and(|ends| Instant::now() > ends) {
                left_out += 1;
                continue;
            }
            if let Err(error) = self.run_one(&job) {
                say(format_args!(
                    "warning: --on-oom for incident #{}: {error:#}",
                    job.incident
                ));
            }
        }
        if left_out > 0 {
            say(format_args!(
                "--on-oom not run for {left_out} incidents: the session ended before their turn"
            ));
        }
    }

    fn run_one(&self, job: &Job) -> Result<()> {
        let file = HookFile::write(job).context("cannot write the incident file")?;
        let words = self.command.words(job.pid, &file.0);
        let mut child = self.spawn(&words)?;
        let status = wait(&mut child).with_context(|| format!("cannot wait for {}", words[0]))?;
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("{} ended with {status}", words[0]),
            None => bail!("{} was killed: it took more than {AT_MOST:?}", words[0]),
        }
    }

    fn spawn(&self, words: &[String]) -> Result<Child> {
        let (program, arguments) = words.split_first().context("no command")?;
        // Reports may go to standard output.
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(stderr);
        // Signals from the terminal are for gpuprobe only.
        command.process_group(0);
        let environment: HashMap<_, _> = self.restored.environment().collect();
        command.envs(environment);
        let restore = self.restored.again();
        // SAFETY: it makes system calls only, which are async-signal-safe, and allocates nothing;
        // everything it uses was made before the fork.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || restore.restore());
        }
        command
            .spawn()
            .with_context(|| format!("cannot start {program}"))
    }
}

/// Waits for a hook. After [`AT_MOST`], kills its process group and returns `None`.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + AT_MOST;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > until {
            let group = i32::try_from(child.id()).map(Pid::from_raw);
            if let Ok(group) = group {
                let _ = killpg(group, Signal::SIGKILL);
            }
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL_EVERY);
    }
}

/// The incident file of a hook, removed on drop.
struct HookFile(PathBuf);

impl HookFile {
    /// Creates the file, readable only by the user as whom the hook runs.
    fn write(job: &Job) -> io::Result<Self> {
        let own_pid = std::process::id();
        let folder = std::env::temp_dir();
        for number in 0.. {
            let name = format!("gpuprobe-oom-{own_pid}-{}-{number}.json", job.incident);
            let path = folder.join(name);
            let (mut file, _) = match files::create_new(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < 100 => continue,
                made => made?,
            };
            let told = Self(path);
            file.set_permissions(Permissions::from_mode(0o600))?;
            writeln!(file, "{}", job.json)?;
            return Ok(told);
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

impl Drop for HookFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::debug!("cannot remove {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn words(command: &str, file: &str) -> Vec<String> {
        let command = HookCommand::parse(command).unwrap();
        command.words(574, Path::new(file))
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
        assert!(HookCommand::parse("").is_err());
        assert!(HookCommand::parse("  ").is_err());
        assert!(HookCommand::parse("echo 'x").is_err());
    }
}
