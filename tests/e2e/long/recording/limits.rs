//! Size limits of recordings.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs::process::Process;
use serde_json::Value;

use crate::harness::child::raw;
use crate::harness::report::{list, number};
use crate::harness::{Backend, Gpuprobe, Setup, Workload, wait_for};
use crate::recording::{Recording, addresses, allocations, analysed, is_sound, written};

const MIB: u64 = 1 << 20;
/// Tolerance of the file size: a transaction, and the queued rows.
const MORE: u64 = 12 * MIB;

#[test]
fn root_full_recording_stops_and_tracing_goes_on() {
    let recording = Recording::new();
    let mut workload = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::pid(workload.pid)
        .args(["--record", &recording.text(), "--max-file-size", "4M"])
        .start();
    let mut allocations = 0;
    wait_for("the recording to be full", || {
        workload.say("alloc 64 2000");
        allocations += 2000;
        let said = gpuprobe.stderr.so_far();
        let stopped = said
            .iter()
            .filter(|line| line.contains("recording has stopped"));
        let stopped: Vec<_> = stopped.collect();
        assert!(stopped.len() < 2, "{stopped:?}");
        stopped
            .first()
            .map(|line| assert!(line.contains("its --max-file-size"), "{line}"))
    });
    workload.say("alloc 64 1000");
    let last = gpuprobe.stop();
    last.assert_nothing_lost();
    last.assert_holds(workload.pid, (allocations + 1000) * 64, allocations + 1000);
    assert!(is_sound(&recording.file));
    let bytes = fs::metadata(&recording.file).unwrap().len();
    assert!((4 * MIB..4 * MIB + MORE).contains(&bytes), "{bytes}");
    let text = written(&["report", &recording.text()]);
    let expected = "stopped before the run did: it has reached its --max-file-size";
    assert!(text.contains(expected), "{text}");
    workload.say("exit");
}

/// Live bytes by the functions of a call site.
fn by_stack(memleak: &Value) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for site in list(memleak, "processes")
        .iter()
        .flat_map(|p| list(p, "sites"))
    {
        let functions = list(site, "stack").iter();
        let functions: Vec<_> = functions.map(|f| f["function"].as_str().unwrap()).collect();
        let live = number(site, "live_bytes") + number(site, "host_bytes");
        if live > 0 {
            *sums.entry(functions.join(";")).or_default() += live;
        }
    }
    sums
}

/// Traces into files of 4 MiB, of which two are kept.
fn rotating(recording: &Recording, pid: u32) -> Setup {
    Setup::pid(pid)
        .args(["--record", &recording.text(), "--max-file-size", "4M"])
        .args(["--rotate", "2"])
        .interval("250ms")
}

/// The path of a file after the first.
fn part(recording: &Recording, number: u32) -> PathBuf {
    let name = format!("run.{number}.sqlite");
    recording.file.with_file_name(name)
}

/// Whether the thread that writes the recording waits for more.
fn writer_waits(gpuprobe: u32) -> bool {
    let process = Process::new(raw(gpuprobe).as_raw()).unwrap();
    let mut threads = process
        .tasks()
        .unwrap()
        .filter_map(|thread| thread.ok()?.stat().ok());
    threads.any(|thread| thread.comm == "gpuprobe-record" && thread.state == 'S')
}

/// Works until there are three files.
fn work_until_the_third_file(
    recording: &Recording,
    workload: &mut Workload,
    gpuprobe: &Gpuprobe,
    work: impl Fn(u32) -> String,
) {
    let mut turn = 0;
    wait_for("the third file", || {
        turn += 1;
        workload.say(&work(turn));
        // What is read from the ring by then is written, on a slow disk, too.
        gpuprobe.next_report();
        wait_for("the writer", || {
            writer_waits(gpuprobe.child.pid()).then_some(())
        });
        part(recording, 2).exists().then_some(())
    });
}

/// Allocates and frees.
fn churn(_turn: u32) -> String {
    "churn 2 2000 64 500".to_owned()
}

/// A program that holds memory from the start and works until there are three files; the last of
/// them has the same live memory as the last live report.
fn goes_on(backend: Backend, first: &[&str], work: impl Fn(u32) -> String) {
    let recording = Recording::new();
    let mut workload = Workload::start(backend);
    let mut gpuprobe = rotating(&recording, workload.pid).start();
    for command in first {
        workload.say(command);
    }
    let part = |number| part(&recording, number);
    work_until_the_third_file(&recording, &mut workload, &gpuprobe, work);
    workload.say("free 3");
    let last = gpuprobe.stop();
    last.assert_nothing_lost();
    let left: Vec<_> = fs::read_dir(recording.file.parent().unwrap())
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    let number = (2..).find(|number| !part(number + 1).exists()).unwrap();
    let (before, file) = (part(number - 1), part(number));
    assert!(left.len() == 2 && before.exists(), "{left:?}");
    for file in &left {
        assert!(is_sound(file));
        let bytes = fs::metadata(file).unwrap().len();
        assert!(bytes < 4 * MIB + MORE, "{bytes}");
    }
    holds_what_is_live(&file, &last["memleak"]);
    let called = |name| first.iter().filter(|call| call.starts_with(name)).count();
    let carried = contexts(&file);
    let destroyed = carried.iter().filter(|(_, end)| end.is_some()).count();
    let expected = (called("ctx create"), called("ctx destroy"));
    assert_eq!((carried.len(), destroyed), expected, "{carried:?}");
    assert_eq!(carried, contexts(&before));
    let middle = written(&["report", before.to_str().unwrap()]);
    assert!(!middle.contains("stopped before"), "{middle}");
    workload.say("exit");
}

#[test]
fn root_rotated_files_in_roots_folder_belong_to_the_user_of_sudo() {
    let recording = Recording::new();
    let mut workload = Workload::start(Backend::Shared);
    let mut gpuprobe = rotating(&recording, workload.pid)
        .env("SUDO_UID", "65534")
        .env("SUDO_GID", "65533")
        .start();
    work_until_the_third_file(&recording, &mut workload, &gpuprobe, churn);
    gpuprobe.stop().assert_nothing_lost();
    let folder = recording.file.parent().unwrap();
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let owners: Vec<_> = files
        .map(|file| file.metadata().unwrap())
        .map(|file| (file.uid(), file.gid()))
        .collect();
    assert_eq!(owners, [(65_534, 65_533); 2]);
    workload.say("exit");
}

#[test]
fn root_rotated_recording_starts_with_the_live_allocations() {
    let first = ["alloc 4096 300", "managed 8192 7", "hostalloc 100 5"];
    goes_on(Backend::Shared, &first, churn);
}

#[test]
fn root_rotated_recording_has_handles_and_mappings() {
    goes_on(Backend::Driver, &["alloc 4096 30"], |turn| {
        format!("vrandom {turn} 4000 threads=2")
    });
}

#[test]
fn root_rotated_recording_has_the_contexts_of_earlier_files() {
    let two = [
        "ctx create",
        "ctx pop",
        "ctx create",
        "ctx pop",
        "ctx destroy 1",
    ];
    goes_on(Backend::Driver, &two, churn);
}

/// Creation and destruction of the contexts in a recording.
fn contexts(file: &Path) -> Vec<(Option<i64>, Option<i64>)> {
    let connection = rusqlite::Connection::open(file).unwrap();
    let mut statement = connection
        .prepare("SELECT t0, t1 FROM GPUPROBE_CONTEXTS ORDER BY rowid")
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

fn holds_what_is_live(file: &Path, live: &Value) {
    let leaked = analysed(file, "leakage");
    assert_eq!(leaked["lost"]["recording"], 0);
    let total = |key: &str| number(&leaked["totals"]["total"], key);
    assert_eq!(total("bytes"), number(live, "live_bytes"));
    assert_eq!(total("allocations"), number(live, "live_allocations"));
    let recorded = &leaked["memleak"];
    // Physical memory has no address; the tables have a number.
    let [mut ours, mut theirs] = [recorded, live].map(|memleak| {
        let all = allocations(memleak);
        addresses(all.filter(|one| one["kind"] != "vmm"))
    });
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs);
    assert_eq!(by_stack(recorded), by_stack(live));
    for (key, of) in [("comm", recorded), ("uid", recorded)] {
        let said = |memleak: &Value| list(memleak, "processes")[0][key].clone();
        assert_eq!(said(of), said(live), "{key}");
    }
    let replayed = written(&["replay", file.to_str().unwrap(), "--format", "json"]);
    let replayed: Value = serde_json::from_str(replayed.lines().last().unwrap()).unwrap();
    for key in [
        "live_bytes",
        "live_allocations",
        "host_bytes",
        "host_allocations",
    ] {
        assert_eq!(replayed["memleak"][key], live[key], "{key}");
    }
    assert_eq!(by_stack(&replayed["memleak"]), by_stack(live));
}
