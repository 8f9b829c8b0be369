//! Recordings of real runs: they agree with what was reported live, survive being killed, and a
//! full disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::child::state_of;
use crate::harness::gpuprobe::BINARY;
use crate::harness::report::number;
use crate::harness::{Backend, Gpuprobe, Setup, Workload, alone, standin, wait_for};

const ALL: [&str; 3] = ["--memleak", "--cudatrace", "--bandwidth-util"];

/// What `gpuprobe ARGUMENTS` writes.
fn written(arguments: &[&str]) -> String {
    let output = Command::new(BINARY).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn analysed(file: &Path, name: &str) -> Value {
    let file = file.to_str().unwrap();
    let json = written(&["report", file, "--analysis", name, "--format", "json"]);
    serde_json::from_str(&json).unwrap()
}

fn open(file: &Path) -> Connection {
    Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

fn count(file: &Path, what: &str) -> i64 {
    open(file)
        .query_row(&format!("SELECT count(*) FROM {what}"), [], |row| {
            row.get(0)
        })
        .unwrap()
}

fn is_sound(file: &Path) -> bool {
    let check: String = open(file)
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    check == "ok"
}

struct Recording {
    _folder: TempDir,
    file: PathBuf,
}

impl Recording {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("run.sqlite");
        Self {
            _folder: folder,
            file,
        }
    }

    fn text(&self) -> String {
        self.file.to_str().unwrap().to_owned()
    }
}

/// The analyses of `file` say what the last live report says, and a replay is the same bytes.
fn agree(file: &Path, live: &Value, live_text: &str) {
    let memleak = &live["memleak"];
    let leaked = analysed(file, "leakage");
    let peak = analysed(file, "watermark");
    let total = |found: &Value, key: &str| number(&found["totals"]["total"], key);
    assert_eq!(total(&leaked, "bytes"), number(memleak, "live_bytes"));
    assert_eq!(
        total(&leaked, "allocations"),
        number(memleak, "live_allocations")
    );
    assert_eq!(total(&peak, "bytes"), number(memleak, "peak_bytes"));
    assert_eq!(
        count(file, "GPUPROBE_UNMATCHED_FREES").cast_unsigned(),
        number(memleak, "unknown_frees")
    );
    let lost: serde_json::Map<_, _> = live["lost"]
        .as_object()
        .unwrap()
        .clone()
        .into_iter()
        .filter(|(_, n)| *n != 0)
        .collect();
    assert_eq!(leaked["lost"], Value::Object(lost));
    let mut live: Vec<_> = addresses(
        memleak["processes"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|p| p["threads"].as_array().unwrap())
            .flat_map(|t| t["allocations"].as_array().unwrap()),
    );
    let mut recorded = addresses(leaked["allocations"].as_array().unwrap());
    live.sort();
    recorded.sort();
    assert_eq!(live, recorded);
    assert_eq!(
        written(&["replay", file.to_str().unwrap(), "--format", "json"]),
        live_text
    );
}

fn addresses<'a>(allocations: impl IntoIterator<Item = &'a Value>) -> Vec<(String, u64)> {
    let one = |a: &Value| {
        (
            a["address"].as_str().unwrap().to_owned(),
            number(a, "bytes"),
        )
    };
    allocations.into_iter().map(one).collect()
}

#[test]
fn root_record_and_live_agree() {
    for backend in Backend::ALL {
        let recording = Recording::new();
        let mut gpuprobe = Setup::command([standin().program_text(backend)])
            .modes(ALL)
            .interval("200ms")
            .args(["--record".to_owned(), recording.text()])
            .start();
        gpuprobe.talk.ready();
        if backend == Backend::Dlopen {
            gpuprobe.talk.say(&format!("load {}", standin().runtime()));
        }
        gpuprobe.talk.say("alloc 8388608 3");
        gpuprobe.talk.say("launch 0 1000");
        gpuprobe.talk.say("graph 5 23");
        gpuprobe.talk.say("copy d2h 1048576 5");
        gpuprobe.talk.say("set 4096 6");
        gpuprobe.talk.say("free 0 2");
        gpuprobe.talk.say("alloc 777 4");
        gpuprobe.talk.say("exit");
        let last = gpuprobe.final_report();
        last.assert_nothing_lost();
        let text = fs::read_to_string(&gpuprobe.reports).unwrap();
        agree(&recording.file, &last, &text);
        // Whatever is called is there, once.
        let memleak = &last["memleak"];
        let calls = number(memleak, "alloc_calls") + number(memleak, "free_calls");
        let recorded = "CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId WHERE \
            s.value IN ('cudaMalloc', 'cudaFree', 'cuMemAlloc_v2', 'cuMemFree_v2')";
        assert_eq!(count(&recording.file, recorded).cast_unsigned(), calls);
        let launched = "(SELECT 1 FROM GPUPROBE_LAUNCHES WHERE launches = 1000 AND isGraph = 0)";
        assert_eq!(count(&recording.file, launched), 1);
        assert!(!recording.file.with_extension("sqlite-wal").exists());
        let page: Value =
            serde_json::from_str(&written(&["report", &recording.text(), "--format", "json"]))
                .unwrap();
        let work = &last["cudatrace"];
        for key in ["launches", "graph_launches"] {
            assert_eq!(page["kernels"][key], work[key], "{key}");
        }
        let copied = |of: &Value, count: &str| -> Vec<_> {
            let list = of.as_array().unwrap().iter();
            let row = |c: &Value| (c["direction"].clone(), c["mode"].clone(), c[count].clone());
            list.map(row).map(|row| format!("{row:?}")).collect()
        };
        let directions = &last["bandwidth_util"]["directions"];
        assert_eq!(
            copied(&page["copies"], "count"),
            copied(directions, "calls")
        );
    }
}

#[test]
fn root_losses_are_recorded() {
    let _alone = alone();
    let recording = Recording::new();
    // The workload floods a ring that is not read while gpuprobe is stopped.
    let mut workload = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::pid(workload.pid)
        .args(["--record".to_owned(), recording.text()])
        .start();
    let pid = gpuprobe.child.pid();
    gpuprobe.child.signal(Signal::SIGSTOP);
    wait_for("gpuprobe to stop", || {
        (state_of(pid) == Some('T')).then_some(())
    });
    workload.say("race 2 120000 4096");
    gpuprobe.child.signal(Signal::SIGCONT);
    let last = gpuprobe.stop();
    assert!(last.lost("memory") > 0);
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    agree(&recording.file, &last, &text);
    workload.say("exit");
}

#[test]
fn root_record_alone_reports_nothing() {
    let recording = Recording::new();
    let program = standin().program_text(Backend::Shared);
    let script = "printf 'alloc 4096 5\\nfree 0 2\\nexit\\n' | \"$0\"";
    let output = Command::new(BINARY)
        .args([
            "record",
            "-o",
            &recording.text(),
            "--",
            "sh",
            "-c",
            script,
            &program,
        ])
        .output()
        .unwrap();
    assert!(output.status.success());
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        !stdout.contains("LEAKED") && !stdout.contains("schema"),
        "{stdout}"
    );
    let leaked = analysed(&recording.file, "leakage");
    assert_eq!(
        leaked["totals"]["total"],
        json!({"bytes": 3 * 4096, "allocations": 3})
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(" calls in "), "{said}");
}

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

#[test]
fn root_a_killed_recording_has_all_but_the_last_second() {
    let recording = Recording::new();
    let mut workload = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::pid(workload.pid)
        .args(["--record".to_owned(), recording.text()])
        .start();
    workload.say("alloc 1048576 100");
    let calls = "CUPTI_ACTIVITY_KIND_RUNTIME";
    wait_for("the calls in the recording", || {
        (count(&recording.file, calls) == 100).then_some(())
    });
    gpuprobe.child.signal(Signal::SIGKILL);
    gpuprobe.child.wait();
    assert!(is_sound(&recording.file));
    let leaked = analysed(&recording.file, "leakage");
    assert_eq!(leaked["totals"]["total"]["bytes"], 100 << 20);
    assert!(written(&["report", &recording.text()]).contains("note: the recording has no end"));
    workload.say("exit");
}

/// A file system of a few MiB.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new(size: &str) -> Self {
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
fn root_threads_that_race_are_recorded_in_the_order_of_the_ledger() {
    let _alone = alone();
    let recording = Recording::new();
    let program = standin().program_text(Backend::Driver);
    let mut gpuprobe = Setup::command([program])
        .args(["--record".to_owned(), recording.text()])
        .start();
    gpuprobe.talk.ready();
    gpuprobe.talk.say("alloc 4096 3");
    gpuprobe.talk.say("race 4 20000 64");
    gpuprobe.talk.say("exit");
    let last = gpuprobe.final_report();
    last.assert_nothing_lost();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    agree(&recording.file, &last, &text);
    let found = analysed(&recording.file, "leakage");
    for odd in ["double_allocations", "unmatched_frees", "size_mismatches"] {
        assert_eq!(found["findings"][odd], 0, "{odd}");
    }
}

#[test]
fn root_every_kind_is_recorded() {
    let recording = Recording::new();
    let program = standin().program_text(Backend::Shared);
    let mut gpuprobe = Setup::command([program])
        .args(["--record".to_owned(), recording.text()])
        .start();
    gpuprobe.talk.ready();
    for line in [
        "alloc 1048576 3",
        "pitched 1000 100",
        "managed 1048576",
        "pinned 65536",
        "async 1000 2",
        "vcreate 2097152",
        "free 0",
        "exit",
    ] {
        gpuprobe.talk.say(line);
    }
    let last = gpuprobe.final_report();
    last.assert_nothing_lost();
    let memleak = &last["memleak"];
    let leaked = analysed(&recording.file, "leakage");
    let live = json!({"bytes": memleak["live_bytes"], "allocations": memleak["live_allocations"]});
    assert_eq!(leaked["totals"]["total"], live);
    let peak = analysed(&recording.file, "watermark");
    assert_eq!(peak["totals"]["total"]["bytes"], memleak["peak_bytes"]);
    for (kind, events) in [("Device", 8), ("Managed", 1), ("Pinned", 1)] {
        let of_kind = format!(
            "CUDA_GPU_MEMORY_USAGE_EVENTS e JOIN ENUM_CUDA_MEM_KIND k ON k.id = e.memKind \
             WHERE k.label = '{kind}'"
        );
        assert_eq!(count(&recording.file, &of_kind), events, "{kind}");
    }
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    let replayed = written(&["replay", &recording.text(), "--format", "json"]);
    assert_eq!(replayed, text);
}
