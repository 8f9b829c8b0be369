//! The workload and gpuprobe as child processes.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::gpuprobe::gpuprobe;

/// Builds the stand-in libraries and returns their directory.
pub(crate) fn build_standin() -> Result<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let out = root.join("target/standin");
    let status = Command::new("make")
        .args(["-s", "-C"])
        .arg(root.join("tests/standin"))
        .arg(format!("OUT={}", out.display()))
        .status()?;
    if !status.success() {
        bail!("cannot build tests/standin");
    }
    Ok(out)
}

/// A running workload that is controlled by commands.
pub(crate) struct Workload {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Workload {
    pub(crate) fn start(program: &Path) -> Result<Self> {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().context("no stdin")?;
        let output = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut workload = Self {
            child,
            input,
            output,
        };
        workload.reply()?;
        Ok(workload)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn reply(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    pub(crate) fn run(&mut self, command: &str) -> Result<String> {
        writeln!(self.input, "{command}")?;
        let reply = self.reply()?;
        if !reply.starts_with("ok") {
            bail!("workload: {command}: {reply}");
        }
        Ok(reply)
    }

    /// Runs pairs of an allocation and a free; returns nanoseconds per pair.
    pub(crate) fn time_pairs(&mut self, pairs: u64) -> Result<f64> {
        let reply = self.run(&format!("timepairs {pairs} 4096"))?;
        Ok(field(&reply, "ns")? / pairs as f64)
    }
}

impl Workload {
    /// Runs pairs of an allocation and a free at the end of a call path (of
    /// `tests/standin/paths.c`); returns nanoseconds per pair.
    pub(crate) fn time_path(&mut self, depth: u32, pairs: u64) -> Result<f64> {
        let reply = self.run(&format!("pairs {depth} 0 {pairs}"))?;
        Ok(field(&reply, "ns")? / pairs as f64)
    }

    /// Copies 64 bytes to the device repeatedly; returns nanoseconds per copy.
    pub(crate) fn time_copies(&mut self, copies: u64) -> Result<f64> {
        let reply = self.run(&format!("copy h2d 64 {copies}"))?;
        Ok(field(&reply, "ns")? / copies as f64)
    }

    /// Launches a kernel repeatedly; returns nanoseconds per launch.
    pub(crate) fn time_launches(&mut self, launches: u64) -> Result<f64> {
        let reply = self.run(&format!("timelaunch {launches}"))?;
        Ok(field(&reply, "ns")? / launches as f64)
    }
}

/// The number after `name=` in a reply of the workload.
pub(crate) fn field(reply: &str, name: &str) -> Result<f64> {
    let found = reply
        .split_whitespace()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let text = found.with_context(|| format!("no {name}= in '{reply}'"))?;
    Ok(text.parse()?)
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gpuprobe that traces a process.
pub(crate) struct Gpuprobe {
    child: Child,
    _errors: BufReader<ChildStderr>,
    /// Time from its start until it reported that it was tracing.
    pub(crate) attach_time: Duration,
}

impl Gpuprobe {
    pub(crate) fn attach(pid: u32, options: &[&str]) -> Result<Self> {
        let mut with_mode = vec!["--memleak"];
        if !options.contains(&"--stacks") {
            with_mode.extend(["--stacks", "off"]);
        }
        with_mode.extend(options);
        Self::attach_modes(pid, &with_mode)
    }

    pub(crate) fn attach_modes(pid: u32, options: &[&str]) -> Result<Self> {
        Self::start(&[&["--pid", &pid.to_string()], options].concat())
    }

    /// Starts and traces `program`, which waits for commands until gpuprobe is interrupted.
    pub(crate) fn run(program: &Path) -> Result<Self> {
        let program = program.to_str().context("the path is UTF-8")?;
        Self::start(&["--memleak", "--stacks", "off", "--", program])
    }

    fn start(arguments: &[&str]) -> Result<Self> {
        let begin = Instant::now();
        let mut child = Command::new(gpuprobe())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut errors = BufReader::new(child.stderr.take().context("no stderr")?);
        let mut line = String::new();
        errors.read_line(&mut line)?;
        if !line.starts_with("gpuprobe: tracing") {
            bail!("gpuprobe said: {line}");
        }
        Ok(Self {
            child,
            _errors: errors,
            attach_time: begin.elapsed(),
        })
    }

    /// CPU time used so far, seconds.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()))?;
        let run_ns = text.split_whitespace().next().context("empty schedstat")?;
        Ok(run_ns.parse::<f64>()? / 1e9)
    }

    /// Resident memory, bytes: in total, and not backed by files.
    pub(crate) fn resident_bytes(&self) -> Result<(f64, f64)> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let bytes = |name| {
            let line = text.lines().find_map(|l| l.strip_prefix(name));
            let number = line.and_then(|l| l.split_whitespace().next());
            number
                .and_then(|n| n.parse::<f64>().ok())
                .map(|kib| kib * 1024.0)
        };
        let missing = "no resident memory in /proc/PID/status";
        Ok((
            bytes("VmRSS:").context(missing)?,
            bytes("RssAnon:").context(missing)?,
        ))
    }
}

impl Drop for Gpuprobe {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGINT);
        }
        let _ = self.child.wait();
    }
}
