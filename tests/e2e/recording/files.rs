//! Files of recordings: when they are created, and when they are complete.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;

use super::{Recording, analysed, count, is_sound, written};
use crate::harness::gpuprobe::BINARY;
use crate::harness::{Backend, Gpuprobe, Setup, Workload, standin};

#[test]
fn root_an_existing_file_is_left_alone() {
    let recording = Recording::new();
    fs::write(&recording.file, "precious").unwrap();
    let mut gpuprobe = Setup::command(["true"])
        .on_stdout()
        .args(["--record".to_owned(), recording.text()])
        .spawn();
    assert_ne!(gpuprobe.exit_code(), 0);
    let said = gpuprobe.said();
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(
        said[0].contains("exists; a recording goes into a new file"),
        "{said:#?}"
    );
    assert_eq!(fs::read(&recording.file).unwrap(), b"precious");
}

/// Events older than this are on the disk.
const ON_DISK: Duration = Duration::from_secs(1);

/// Kills a gpuprobe that records a series of calls. Returns the number of calls made until
/// [`ON_DISK`] before the kill, and the number in the recording.
fn killed_while_recording() -> (u64, u64) {
    let recording = Recording::new();
    let mut workload = Workload::start(Backend::Shared);
    let setup = Setup::pid(workload.pid);
    let mut gpuprobe = setup.args(["--record", &recording.text()]).start();
    let begun = Instant::now();
    let mut made = Vec::new();
    while begun.elapsed() < 2 * ON_DISK {
        workload.say("alloc 4096");
        made.push(Instant::now());
    }
    let killed = Instant::now();
    gpuprobe.child.signal(Signal::SIGKILL);
    gpuprobe.child.wait();
    assert!(is_sound(&recording.file));
    assert!(written(&["report", &recording.text()]).contains("note: the recording has no end"));
    let old = made.iter().filter(|&&time| killed - time > ON_DISK).count() as u64;
    // While devices are learnt, the runtime's driver calls are recorded, too.
    let calls = "CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass = 0";
    let recorded = count(&recording.file, calls).cast_unsigned();
    let leaked = analysed(&recording.file, "leakage");
    assert_eq!(leaked["totals"]["total"]["bytes"], recorded * 4096);
    assert!(
        old > 0 && recorded <= made.len() as u64,
        "{recorded} of {old}"
    );
    (old, recorded)
}

#[test]
fn root_killed_recording_has_all_but_the_last_second() {
    // On a busy machine gpuprobe may be scheduled late, but rarely in every round.
    let rounds = (0..5).map(|_| killed_while_recording());
    let mut missing = rounds.map(|(old, recorded)| old.saturating_sub(recorded));
    let found: Vec<_> = missing
        .by_ref()
        .take_while(|missing| *missing > 0)
        .collect();
    assert!(
        found.len() < 5,
        "older than {ON_DISK:?} and missing: {found:?}"
    );
}

/// A file system of a few MiB.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new(size: &str) -> Self {
        crate::harness::require_bpf();
        let folder = TempDir::new().unwrap();
        let options = format!("size={size}");
        let none: Option<&str> = None;
        mount(
            none,
            folder.path(),
            Some("tmpfs"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .unwrap();
        Self(folder)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

#[test]
fn root_a_full_disk_stops_the_recording_only() {
    let disk = SmallDisk::new("8m");
    let file = disk.0.path().join("run.sqlite");
    let mut workload = Workload::start(Backend::Shared);
    let record = ["--record".to_owned(), file.to_str().unwrap().to_owned()];
    let mut gpuprobe = Setup::pid(workload.pid).args(record).start();
    let stopped = |gpuprobe: &Gpuprobe| {
        let said = gpuprobe.stderr.so_far();
        said.iter()
            .filter(|l| l.contains("recording has stopped"))
            .count()
    };
    let mut allocations = 0u64;
    while stopped(&gpuprobe) == 0 {
        assert!(allocations < 2_000_000, "8 MiB hold all of it");
        workload.say("alloc 64 5000");
        allocations += 5000;
    }
    workload.say("alloc 64 1000");
    let last = gpuprobe.stop();
    last.assert_nothing_lost();
    last.assert_holds(workload.pid, (allocations + 1000) * 64, allocations + 1000);
    assert_eq!(stopped(&gpuprobe), 1);
    assert!(
        gpuprobe
            .stderr
            .so_far()
            .iter()
            .any(|line| line.contains("the disk is full"))
    );
    assert!(is_sound(&file));
    let recorded = analysed(&file, "leakage")["totals"]["total"]["allocations"]
        .as_u64()
        .unwrap();
    assert!(
        (5000..=allocations).contains(&recorded),
        "{recorded} of {allocations}"
    );
    assert!(
        written(&["report", file.to_str().unwrap()])
            .contains("stopped before the run did: the disk is full")
    );
    workload.say("exit");
}

#[test]
fn root_a_command_that_cannot_be_started_leaves_no_recording() {
    let recording = Recording::new();
    let mut gpuprobe = Setup::command(["/nonexistent/program"])
        .on_stdout()
        .args(["--record".to_owned(), recording.text()])
        .spawn();
    assert_eq!(gpuprobe.exit_code(), 127);
    assert!(!recording.file.exists());
}

#[test]
fn root_record_alone_reports_nothing_and_names_the_file_after_its_target() {
    let folder = TempDir::new().unwrap();
    let mut recording = Command::new(BINARY)
        .args(["record", "--"])
        .arg(standin().program(Backend::Shared))
        .current_dir(folder.path())
        .env_remove("SUDO_UID")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = recording.stdin.take().unwrap();
    std::io::Write::write_all(&mut orders, b"alloc 4096 5\nfree 0 2\nexit\n").unwrap();
    let done = recording.wait_with_output().unwrap();
    let [said, told] = [done.stderr, done.stdout].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(done.status.success(), "{said}");
    assert!(said.contains(" calls in "), "{said}");
    let reports = ["LEAKED", "schema"];
    assert!(!reports.iter().any(|text| told.contains(text)), "{told}");
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    let [file] = &files[..] else {
        panic!("{files:?}");
    };
    let file = file.as_ref().unwrap().file_name().into_string().unwrap();
    assert!(
        file.starts_with("gpuprobe-workload-20") && file.ends_with(".sqlite"),
        "{file}"
    );
    let written = said.lines().last().unwrap();
    assert!(
        written.starts_with("gpuprobe: recorded ") && written.ends_with(&file),
        "{said}"
    );
    let during = said
        .lines()
        .find_map(|line| line.strip_prefix("gpuprobe: recording into "));
    assert_eq!(during.unwrap(), file);
    let leaked = analysed(&folder.path().join(&file), "leakage");
    let live = json!({"bytes": 3 * 4096, "allocations": 3});
    assert_eq!(leaked["totals"]["total"], live);
}
