//! A user whose capabilities gpuprobe has exchanges the file of its collector.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tempfile::TempDir;

use super::{Attacker, StopOnDrop, USER};
use crate::harness::breakpoints::code_differs;
use crate::harness::promises::OthersFile;
use crate::harness::{Backend, OwnCopy, Setup, alone, copy_program};

/// How often the attack is tried.
const ROUNDS: usize = 3;

/// The folders of collectors that belong to [`USER`], who cannot write to `/run`.
fn folders() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/tmp").unwrap().filter_map(Result::ok);
    let named =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("gpuprobe-"));
    let owned = named.filter(|entry| entry.metadata().is_ok_and(|folder| folder.uid() == USER));
    owned.map(|entry| entry.path())
}

/// Puts a link to `victim` in the place of each collector as soon as it is there, until told to stop.
/// Returns the number of exchanged files.
fn exchange(victim: &Path, away: &Path, stop: &AtomicBool) -> u32 {
    let mut exchanged = 0;
    while !stop.load(Ordering::Relaxed) {
        for folder in folders() {
            let file = folder.join("libgpuprobe-collector.so");
            let is_file = fs::symlink_metadata(&file).is_ok_and(|file| file.is_file());
            if is_file && fs::rename(&file, away.join(exchanged.to_string())).is_ok() {
                symlink(victim, &file).unwrap();
                exchanged += 1;
            }
        }
    }
    exchanged
}

#[test]
fn root_a_collector_that_is_exchanged_puts_no_breakpoint_into_another_file() {
    // The attacker keeps a processor busy.
    let _alone = alone();
    let copy = OwnCopy::for_everyone();
    let away = TempDir::new().unwrap();
    let victim = copy.standin().path("victim");
    copy_program("/bin/bash", &victim);
    let unwritten = OthersFile::of(&victim);
    // Has the victim's code mapped, where a breakpoint shows.
    let waiting = Attacker::start(Command::new(&victim).args(["-c", "echo ready; read line"]));
    // The attacker may come too late once.
    for _ in 0..ROUNDS {
        let stop = AtomicBool::new(false);
        let exchanged = thread::scope(|scope| {
            let stopped = StopOnDrop(&stop);
            let attacker = scope.spawn(|| exchange(&victim, away.path(), &stop));
            let mut gpuprobe = Setup::command([copy.standin().program_text(Backend::Shared)])
                .modes(["--activity"])
                .run_as(USER, "+bpf,+perfmon")
                .start();
            gpuprobe.talk.ready();
            assert_eq!(code_differs(waiting.child.pid(), "victim"), [false]);
            gpuprobe.talk.say("alloc 4096 3");
            assert_eq!(gpuprobe.talk.done().allocs, 3);
            drop(stopped);
            assert_eq!(gpuprobe.exit_code(), 0);
            attacker.join().unwrap()
        });
        assert_eq!(exchanged, 1);
        unwritten.assert_unwritten();
        folders().for_each(|folder| {
            let _gone = fs::remove_dir(folder);
        });
    }
}
