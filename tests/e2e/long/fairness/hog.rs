//! Programs of a user who wants everything.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::harness::child::Guarded;
use crate::harness::standin::compiled;
use crate::harness::talk::Talk;

/// `programs/hog.c`, run by a user.
pub(crate) struct Hog {
    _child: Guarded,
    talk: Talk,
    pub(crate) pid: u32,
}

impl Hog {
    pub(crate) fn start(uid: u32, what: &str, count: u64) -> Self {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        let program: &Path = PROGRAM.get_or_init(|| compiled("hog"));
        let mut command = Command::new(program);
        command
            .args([&uid.to_string(), what, &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = Guarded::spawn(&mut command).expect("the program starts");
        let mut talk = Talk::new(&mut child);
        let pid = talk.ready();
        Self {
            _child: child,
            talk,
            pid,
        }
    }

    /// Starts the flood.
    pub(crate) fn begin(&mut self) {
        self.talk.send("go");
    }

    /// Waits until the flood is over; returns the number of its successful calls so far.
    pub(crate) fn made(&mut self) -> u64 {
        let said = self.talk.hear();
        said.strip_prefix("made ").unwrap().parse().unwrap()
    }

    pub(super) fn take(&mut self) -> u64 {
        self.begin();
        self.made()
    }
}

/// A program with code that was made at run time, and its perf map until this is dropped.
pub(super) struct Jitted {
    pub(super) hog: Hog,
    map: PathBuf,
}

impl Jitted {
    pub(super) fn start(user: u32, functions: u64) -> Self {
        let hog = Hog::start(user, "jitted", functions);
        let map: PathBuf = format!("/tmp/perf-{}.map", hog.pid).into();
        // Another user's, of a process that had this id: the program could not write to it.
        let _ = fs::remove_file(&map);
        Self { hog, map }
    }
}

impl Drop for Jitted {
    fn drop(&mut self) {
        // There is none if it failed before.
        let _ = fs::remove_file(&self.map);
    }
}
