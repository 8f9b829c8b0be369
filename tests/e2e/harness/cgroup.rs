//! Cgroups for tests.

use std::fs;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{DEADLINE, patience};

/// Mount point of cgroup v2.
fn mounted() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().map(|line| line.split(' '));
    let fields = mounts.map(|mut words| (words.nth(1), words.next()));
    let mut found = fields.filter(|(_, kind)| *kind == Some("cgroup2"));
    let found = found.next().and_then(|(place, _)| place);
    found.expect("this test needs cgroups of version 2").into()
}

/// The cgroup of a container, named as Docker does, within a parent cgroup. Removed on drop.
pub(crate) struct Cgroup {
    outer: String,
    pub(crate) id: String,
}

impl Cgroup {
    /// # Panics
    ///
    /// If cgroups cannot be created.
    pub(crate) fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        super::require_bpf();
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let id = format!("{number:04x}{:08x}", process::id()).repeat(6)[..64].to_owned();
        let cgroup = Self {
            outer: format!("/gpuprobe-test-{}-{number}.slice", process::id()),
            id,
        };
        fs::create_dir_all(cgroup.folder()).expect("this test must be able to make cgroups");
        cgroup
    }

    /// The parent cgroup.
    pub(crate) fn outer(&self) -> &str {
        &self.outer
    }

    /// Path below the root of the hierarchy.
    pub(crate) fn path(&self) -> String {
        format!("{}/docker-{}.scope", self.outer, self.id)
    }

    /// Path in the file system.
    pub(crate) fn folder(&self) -> PathBuf {
        mounted().join(self.path().trim_start_matches('/'))
    }

    /// Shell lines that move the script into this cgroup.
    pub(crate) fn enter(&self) -> String {
        let procs = self.folder().join("cgroup.procs");
        format!("echo 0 >{} ;", procs.display())
    }

    /// A command that runs `words` in this cgroup.
    pub(crate) fn words(&self, words: &[&str]) -> Vec<String> {
        let script = format!("{} exec \"$@\"", self.enter());
        let shell = ["sh", "-c", &script, "sh"];
        let words = shell.iter().chain(words);
        words.map(|&word| word.to_owned()).collect()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let folder = self.folder();
        // cgroup.kill is unknown to older kernels; children of tests are killed anyway.
        let _ = fs::write(folder.join("cgroup.kill"), "1");
        let end = Instant::now() + DEADLINE * patience();
        while fs::remove_dir(&folder).is_err() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = fs::remove_dir(folder.parent().unwrap());
    }
}
