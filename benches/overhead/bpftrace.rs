//! An equivalent bpftrace script for comparison.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::programs::Workload;

/// A running `scripts/bench/ledger.bt` that traces a process.
pub(crate) struct Bpftrace(Child);

impl Bpftrace {
    /// Whether bpftrace is installed.
    pub(crate) fn is_there() -> bool {
        let version = Command::new("bpftrace").arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    }

    /// Attaches to `library` in `target`, and returns once calls are counted.
    pub(crate) fn attach(library: &Path, target: &mut Workload) -> Result<Self> {
        let script = script(library)?;
        let mut child = Command::new("bpftrace")
            .env("BPFTRACE_MAP_KEYS_MAX", "1000000")
            .args(["-p", &target.pid().to_string(), "-e", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let bpftrace = Self(child);
        for line in lines {
            if line?.strip_prefix("@calls: ").is_some_and(|n| n != "0") {
                return Ok(bpftrace);
            }
            target.time_pairs(10)?;
        }
        bail!("bpftrace ended: run scripts/bench/ledger.bt by hand to see why")
    }
}

fn script(library: &Path) -> Result<String> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../scripts/bench/ledger.bt"]
        .iter()
        .collect();
    let text = std::fs::read_to_string(path)?;
    let library = library.to_str().context("an unusual path")?;
    Ok(text.replace("__LIBRARY__", library))
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        // SIGKILL, because it prints all of its maps at SIGINT.
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}
