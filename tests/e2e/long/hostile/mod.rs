//! Hostile users: whatever their programs and files contain, other processes are traced as usual.

mod calls;
mod collector;
mod files;
mod forks;
mod lost;
mod memory;
mod mounts;
mod names;
mod together;
mod watch;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::child::Guarded;
use crate::harness::talk::Talk;

/// A user without rights.
const USER: u32 = 65_534;

/// Compiles C or assembly.
fn cc(arguments: &[&OsStr]) {
    let mut command = Command::new("cc");
    let made = command.args(["-O0", "-w"]).args(arguments).output();
    let made = made.expect("cc can be run");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
}

/// A file of `tests/e2e/programs/hostile`.
fn source(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs/hostile");
    folder.join(name)
}

/// A program of these sources, in `folder`.
fn program(folder: &Path, name: &str, sources: &[&Path]) -> PathBuf {
    let path = folder.join(name);
    let sources = sources.iter().map(|source| source.as_os_str());
    let flags = ["-o".as_ref(), path.as_os_str()].into_iter();
    let libraries = ["-ldl".as_ref()];
    cc(&flags.chain(sources).chain(libraries).collect::<Vec<_>>());
    path
}

/// A program that runs one command per line.
struct Attacker {
    child: Guarded,
    talk: Talk,
}

impl Attacker {
    /// Waits for the line that says it is ready.
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Guarded::spawn(command).unwrap();
        let mut talk = Talk::new(&mut child);
        assert_eq!(talk.hear(), "ready");
        Self { child, talk }
    }

    fn say(&mut self, what: &str) {
        self.talk.send(what);
        assert_eq!(self.talk.hear(), "done");
    }
}

/// Tells a thread to stop, also when the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
