//! Recordings of real runs: they agree with the live report and survive a kill and a full disk.

mod activity;
mod agreement;
mod files;
pub(crate) mod launches;
mod samples;
mod selection;
mod targets;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::gpuprobe::Run;
pub(crate) use crate::harness::gpuprobe::output_of as written;
use crate::harness::report::{number, without_costs};
use crate::harness::{Report, Setup};

const ALL: [&str; 3] = ["--memleak", "--cudatrace", "--bandwidth-util"];

pub(crate) fn analysed(file: &Path, name: &str) -> Value {
    json(&["report", file.to_str().unwrap(), "--analysis", name])
}

pub(crate) fn open(file: &Path) -> Connection {
    Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

pub(crate) fn count(file: &Path, what: &str) -> i64 {
    open(file)
        .query_row(&format!("SELECT count(*) FROM {what}"), [], |row| {
            row.get(0)
        })
        .unwrap()
}

pub(crate) fn is_sound(file: &Path) -> bool {
    let check: String = open(file)
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    check == "ok"
}

pub(crate) struct Recording {
    _folder: TempDir,
    pub(crate) file: PathBuf,
}

impl Recording {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("run.sqlite");
        Self {
            _folder: folder,
            file,
        }
    }

    pub(crate) fn text(&self) -> String {
        self.file.to_str().unwrap().to_owned()
    }
}

/// Records a run of a workload, in which nothing is lost; returns its last report, too.
fn recorded(setup: Setup, script: &str) -> (Recording, Report, Run) {
    let recording = Recording::new();
    let mut run = setup.args(["--record", &recording.text()]).run(script);
    let last = run.report();
    last.assert_nothing_lost();
    (recording, last, run)
}

/// JSON that `gpuprobe ARGUMENTS` prints.
fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&written(&[arguments, &["--format", "json"]].concat())).unwrap()
}

/// Asserts that the analyses of `file` agree with the last live report, and that a replay is the
/// same bytes.
pub(crate) fn agree(file: &Path, live: &Value, live_text: &str) {
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
    assert_eq!(leaked["lost"], live["lost"]);
    for key in [
        "alloc_calls",
        "free_calls",
        "failed_calls",
        "unknown_frees",
        "null_frees",
        "live_bytes",
        "live_allocations",
        "host_bytes",
        "host_allocations",
        "peak_bytes",
        "kinds",
        "calls",
    ] {
        assert_eq!(leaked["memleak"][key], memleak[key], "{key}");
    }
    let said = told(memleak);
    let listed = number(memleak, "live_allocations") as usize;
    assert!(listed == 0 || said.len() > listed, "{said:#?}");
    assert_eq!(told(&leaked["memleak"]), said);
    let mut live: Vec<_> = addresses(allocations(memleak));
    let mut recorded = addresses(allocations(&leaked["memleak"]));
    live.sort();
    recorded.sort();
    assert_eq!(live, recorded);
    assert_eq!(
        written(&["replay", file.to_str().unwrap(), "--format", "json"]),
        without_costs(live_text)
    );
}

/// The processes of a report without the fields that a file lacks: times that differ by clock
/// rounding, host numbers of devices, pools, and site numbers.
fn told(memleak: &Value) -> Vec<String> {
    let of = |one: &Value, keys: &[&str]| -> String {
        let text = |key: &&str| format!("{key} {}\n", one[*key]);
        keys.iter().map(text).collect()
    };
    const LIVE: [&str; 4] = [
        "live_bytes",
        "live_allocations",
        "host_bytes",
        "host_allocations",
    ];
    let mut told = Vec::new();
    for process in memleak["processes"].as_array().unwrap() {
        // Shared memory is not in the tables.
        if process["live_allocations"] == 0 && process["host_allocations"] == 0 {
            continue;
        }
        let name = of(process, &["pid", "uid", "comm"]);
        told.push(name.clone() + &of(process, &LIVE) + &of(process, &["exited", "kinds"]));
        for thread in process["threads"].as_array().unwrap() {
            let name = name.clone() + &of(thread, &["tid", "comm"]);
            told.push(name.clone() + &of(thread, &LIVE));
            for one in thread["allocations"].as_array().unwrap() {
                let keys = ["address", "bytes", "kind", "api", "name"];
                told.push(name.clone() + &of(one, &keys));
            }
        }
        for site in process["sites"].as_array().into_iter().flatten() {
            let sums = ["alloc_bytes", "alloc_calls", "freed_bytes", "free_calls"];
            let keys = ["api", "kinds", "complete", "stack"];
            told.push(name.clone() + &of(site, &LIVE) + &of(site, &sums) + &of(site, &keys));
        }
    }
    told.sort();
    told
}

/// All allocations in the memory section of a report.
fn allocations(memleak: &Value) -> impl Iterator<Item = &Value> {
    let processes = memleak["processes"].as_array().unwrap().iter();
    let threads = processes.flat_map(|p| p["threads"].as_array().unwrap());
    threads.flat_map(|t| t["allocations"].as_array().unwrap())
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
