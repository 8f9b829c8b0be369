//! JSON reports and their invariants.

use std::collections::BTreeMap;
use std::ops::Deref;

use serde_json::{Value, json};

use super::Truth;
use crate::validator::check;

/// Reports as they were written, without what only a live run knows: what it costs.
pub(crate) fn without_costs(written: &str) -> String {
    let lines = written.lines().map(|line| {
        let parts = line.split_once("\"tracing_costs\":");
        let parts = parts.and_then(|(before, rest)| Some((before, rest.split_once("}],")?.1)));
        parts.map_or(format!("{line}\n"), |(before, after)| {
            format!("{before}{after}\n")
        })
    });
    lines.collect()
}

/// Totals over all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) alloc_calls: u64,
    pub(crate) free_calls: u64,
    pub(crate) failed_calls: u64,
    pub(crate) unknown_frees: u64,
    pub(crate) live_bytes: u64,
    pub(crate) live_allocations: u64,
}

impl From<Truth> for Totals {
    /// The totals that a tracer attached from the start sees.
    fn from(truth: Truth) -> Self {
        Self {
            alloc_calls: truth.allocs,
            free_calls: truth.frees,
            failed_calls: truth.failed,
            unknown_frees: 0,
            live_bytes: truth.bytes,
            live_allocations: truth.live,
        }
    }
}

/// A report that has passed the schema and the checks of its sums.
#[derive(Clone, Debug)]
pub(crate) struct Report(pub(super) Value);

impl Deref for Report {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

pub(crate) fn number(value: &Value, key: &str) -> u64 {
    let number = value[key].as_u64();
    number.unwrap_or_else(|| panic!("no number {key} in {value}"))
}

pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().expect("a list")
}

/// GPU memory, host memory and shared memory are disjoint.
const BYTES: [&str; 3] = ["live_bytes", "host_bytes", "imported_bytes"];
const ALLOCATIONS: [&str; 3] = [
    "live_allocations",
    "host_allocations",
    "imported_allocations",
];

fn sum(value: &Value, keys: [&str; 3]) -> u64 {
    keys.into_iter().map(|key| number(value, key)).sum()
}

/// All memory has a kind; GPU memory has a device and an owner.
fn check_kinds(value: &Value) {
    let kinds = value["kinds"].as_object().expect("an object");
    let of_kinds = |key: &str| kinds.values().map(|k| number(k, key)).sum::<u64>();
    let of_devices = |key: &str| list(value, "devices").iter().map(|d| number(d, key)).sum();
    for (key, keys) in [("bytes", BYTES), ("allocations", ALLOCATIONS)] {
        assert_eq!(of_kinds(key), sum(value, keys), "{key} of kinds in {value}");
        let gpu: u64 = of_devices(key);
        assert_eq!(gpu, number(value, keys[0]), "{key} of devices in {value}");
        let owned: u64 = list(value, "owners").iter().map(|o| number(o, key)).sum();
        assert_eq!(owned, gpu, "{key} of owners in {value}");
    }
}

impl Report {
    pub(crate) fn parse(line: &str) -> Self {
        Self::parse_unless_copy(line).expect("a report, not a single copy")
    }

    /// Parses a report; `None` for a line of `--per-call`.
    pub(crate) fn parse_unless_copy(line: &str) -> Option<Self> {
        let report = Self(serde_json::from_str(line).expect("a line of JSON"));
        check(&report);
        if report.get("copy").is_some() {
            return None;
        }
        if report.get("memleak").is_some() {
            report.check_sums();
        }
        report.check_work_sums();
        Some(report)
    }

    /// Asserts that each level is the sum of the level below it.
    fn check_sums(&self) {
        let adds_up = |whole: &Value, parts: &[Value]| {
            for key in BYTES.into_iter().chain(ALLOCATIONS) {
                let sum: u64 = parts.iter().map(|part| number(part, key)).sum();
                assert_eq!(number(whole, key), sum, "{key} of {whole}");
            }
        };
        adds_up(&self["memleak"], list(&self["memleak"], "processes"));
        check_kinds(&self["memleak"]);
        for process in list(&self["memleak"], "processes") {
            adds_up(process, list(process, "threads"));
            check_kinds(process);
            assert!(number(process, "peak_bytes") >= number(process, "live_bytes"));
            for thread in list(process, "threads") {
                let listed = list(thread, "allocations");
                let bytes: u64 = listed.iter().map(|a| number(a, "bytes")).sum();
                let omitted = number(thread, "omitted_allocations");
                let whole = (sum(thread, BYTES), sum(thread, ALLOCATIONS));
                let parts = (
                    bytes + number(thread, "omitted_bytes"),
                    listed.len() as u64 + omitted,
                );
                assert_eq!(whole, parts, "allocations of thread {}", thread["tid"]);
            }
        }
    }

    pub(crate) fn is_final(&self) -> bool {
        self["final"] == true
    }

    pub(crate) fn totals(&self) -> Totals {
        let memleak = &self["memleak"];
        Totals {
            alloc_calls: number(memleak, "alloc_calls"),
            free_calls: number(memleak, "free_calls"),
            failed_calls: number(memleak, "failed_calls"),
            unknown_frees: number(memleak, "unknown_frees"),
            live_bytes: number(memleak, "live_bytes"),
            live_allocations: number(memleak, "live_allocations"),
        }
    }

    pub(crate) fn lost(&self, what: &str) -> u64 {
        number(&self["lost"], what)
    }

    pub(crate) fn assert_nothing_lost(&self) {
        let lost = self["lost"].as_object().expect("an object");
        assert!(!lost.is_empty());
        assert!(lost.values().all(|count| *count == 0), "lost: {lost:?}");
    }

    /// Asserts that nothing of these processes was lost. A host-wide tracer sees every program of the host: losses
    /// of others are counted under their names.
    pub(crate) fn assert_nothing_lost_of(&self, pids: impl IntoIterator<Item = u32>) {
        // Absent if nothing at all was lost.
        let rows = self["lost_by_user"].as_array();
        let rows = rows.map_or(&[][..], Vec::as_slice);
        for pid in pids {
            assert!(rows.iter().all(|row| row["pid"] != pid), "{rows:#?}");
        }
        for (what, count) in self["lost"].as_object().expect("an object") {
            // Python's frames of others that were gone before they were read have no name.
            if what == "python" {
                continue;
            }
            let theirs = rows.iter().filter(|row| row["what"] == what.as_str());
            let theirs: u64 = theirs.map(|row| number(row, "count")).sum();
            assert_eq!(*count, theirs, "{what} of nobody: {}", self["lost"]);
        }
    }

    /// Asserts that nothing was lost but call stacks or parts of them: of new call paths only a
    /// limited number of stacks is copied at a time, which is reported.
    pub(crate) fn assert_no_call_lost(&self) {
        let lost = self["lost"].as_object().expect("an object").iter();
        let calls = lost.filter(|(name, count)| !name.ends_with("stacks") && **count != 0);
        assert_eq!(calls.count(), 0, "lost: {}", self["lost"]);
    }

    /// Asserts that nothing was lost and that the totals are these.
    pub(crate) fn assert_totals(&self, expected: impl Into<Totals>) {
        self.assert_nothing_lost();
        assert_eq!(self.totals(), expected.into());
    }

    /// [`Self::assert_totals`] for everything the program did, and that live memory has these
    /// kinds.
    pub(crate) fn assert_kinds(&self, truth: Truth) {
        self.assert_totals(truth);
        let memleak = &self["memleak"];
        assert_eq!(memleak["kinds"], truth.kinds());
        let (host, imported) = (truth.host(), truth.kind("imported"));
        for (key, expected) in [
            ("null_frees", truth.nullfrees),
            ("host_bytes", host.bytes),
            ("host_allocations", host.allocations),
            ("imported_bytes", imported.bytes),
            ("imported_allocations", imported.allocations),
        ] {
            assert_eq!(memleak[key], expected, "{key}");
        }
    }

    /// Calls by allocating function.
    pub(crate) fn assert_calls(&self, expected: &[(&str, u64)]) {
        let expected: BTreeMap<_, _> = expected.iter().copied().collect();
        assert_eq!(self["memleak"]["calls"], json!(expected));
    }

    /// All entries of a process: one for each program that it executed.
    pub(crate) fn entries(&self, pid: u32) -> Vec<&Value> {
        let processes = list(&self["memleak"], "processes").iter();
        processes.filter(|p| p["pid"] == pid).collect()
    }

    /// The only entry of a process.
    pub(crate) fn process(&self, pid: u32) -> &Value {
        let entries = self.entries(pid);
        assert_eq!(entries.len(), 1, "entries of {pid} in {}", self.0);
        entries[0]
    }

    pub(crate) fn thread(&self, pid: u32, tid: u32) -> &Value {
        let mut threads = list(self.process(pid), "threads").iter();
        let thread = threads.find(|t| t["tid"] == tid);
        thread.unwrap_or_else(|| panic!("no thread {tid} in {}", self.process(pid)))
    }

    /// All allocations of a process.
    pub(crate) fn allocations(&self, pid: u32) -> Vec<&Value> {
        let threads = list(self.process(pid), "threads").iter();
        threads.flat_map(|t| list(t, "allocations")).collect()
    }

    /// Asserts that the process holds this many bytes in this many allocations.
    pub(crate) fn assert_holds(&self, pid: u32, bytes: u64, allocations: u64) {
        let process = self.process(pid);
        let held = (
            number(process, "live_bytes"),
            number(process, "live_allocations"),
        );
        assert_eq!(held, (bytes, allocations), "held by {pid} in {}", self.0);
    }
}
