//! Tensors of a Python program: their call sites are its lines.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::pytorch;
use super::snapshots::loaded;
use crate::harness::child::Guarded;
use crate::harness::gpuprobe::output_of;
use crate::harness::report::{list, number};
use crate::harness::talk::Talk;
use crate::harness::{Setup, standin};
use crate::pythons::{Python, pythons};

/// Function, file and line, innermost first.
type Frames = Vec<(String, String, u64)>;

/// Allocated and live tensors: counts and bytes.
type Sums = [u64; 4];

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The program's own figures by frames.
fn told(talk: &mut Talk) -> BTreeMap<Frames, Sums> {
    let mut sums: BTreeMap<Frames, Sums> = BTreeMap::new();
    loop {
        let line = talk.hear();
        if line == "done" {
            return sums;
        }
        let told: Value = serde_json::from_str(&line).unwrap();
        let frames = list(&told, "frames").iter();
        let frames = frames.map(|f| (text(&f[0]), text(&f[1]), f[2].as_u64().unwrap()));
        let bytes = number(&told, "size").next_multiple_of(512);
        let kept = u64::from(told["kept"] == true);
        let sums = sums.entry(frames.collect()).or_default();
        let one = [1, bytes, kept, kept * bytes];
        *sums = std::array::from_fn(|n| sums[n] + one[n]);
    }
}

/// The report's figures by frames.
fn found(sites: &[Value]) -> BTreeMap<Frames, Sums> {
    let one = |site: &Value| {
        let frames = list(site, "stack").iter();
        let frames = frames.filter(|frame| frame["language"] == "python");
        let frames = frames.map(|f| (text(&f["function"]), text(&f["file"]), number(f, "line")));
        let keys = [
            "alloc_calls",
            "alloc_bytes",
            "live_allocations",
            "live_bytes",
        ];
        (frames.collect(), keys.map(|key| number(site, key)))
    };
    let all: BTreeMap<_, _> = sites.iter().map(one).collect();
    assert_eq!(all.len(), sites.len(), "lines are one site");
    all
}

fn program(python: &Python) -> Guarded {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs/python/tensors.py");
    let mut command = Command::new(&python.program);
    command
        .arg("-B")
        .arg(source)
        .arg(standin().path("libc10_cuda.so"))
        .env("STANDIN_TORCH_BLOCKS", "6")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Guarded::spawn(&mut command).unwrap()
}

/// Live tensors by the frames of blocks in a snapshot.
fn in_snapshot(snapshot: &Value) -> BTreeMap<Frames, [u64; 2]> {
    let mut sums: BTreeMap<Frames, [u64; 2]> = BTreeMap::new();
    let segments = list(snapshot, "segments").iter();
    for block in segments.flat_map(|segment| list(segment, "blocks")) {
        if block["state"] == "active_allocated" {
            let frames = list(block, "frames").iter();
            let frames =
                frames.map(|f| (text(&f["name"]), text(&f["filename"]), number(f, "line")));
            let sums = sums.entry(frames.collect()).or_default();
            *sums = [sums[0] + 1, sums[1] + number(block, "size")];
        }
    }
    sums
}

#[test]
fn root_tensors_from_before_attach_have_the_lines_of_pytorchs_history() {
    for python in pythons() {
        let folder = tempfile::TempDir::new().unwrap();
        let [recording, now] = ["run.sqlite", "now.pickle"].map(|name| folder.path().join(name));
        let recording = recording.to_str().unwrap();
        let mut child = program(&python);
        let mut talk = Talk::new(&mut child);
        let pid = talk.ready();
        talk.send("");
        let live = |all: BTreeMap<Frames, Sums>| -> BTreeMap<Frames, [u64; 2]> {
            let live = all.into_iter().filter(|(_, sums)| sums[2] > 0);
            live.map(|(frames, sums)| (frames, [sums[2], sums[3]]))
                .collect()
        };
        let expected = live(told(&mut talk));

        let text = output_of(&[
            "snapshot",
            "--pid",
            &pid.to_string(),
            "-o",
            now.to_str().unwrap(),
        ]);
        assert_eq!(in_snapshot(&loaded(&now)), expected, "{text}");
        let mut gpuprobe = Setup::pid(pid)
            .interval("100ms")
            .args(["--record", recording])
            .start();
        gpuprobe.next_report();
        talk.send("");
        assert_eq!(talk.hear(), "freed");
        let report = gpuprobe.stop();
        let sites = list(&pytorch(&report, pid)[0], "sites");
        let mut held = sites.iter().filter(|site| site["live_bytes"] != 0);
        assert!(held.all(|site| site["api"] == "before attach"));
        assert_eq!(live(found(sites)), expected);

        let played = output_of(&["report", recording, "--format", "json"]);
        let played: Value = serde_json::from_str(&played).unwrap();
        let processes = list(&played["memleak"], "processes");
        assert_eq!(
            live(found(list(&processes[0]["pytorch"][0], "sites"))),
            expected
        );
        let exported = folder.path().join("run.pickle");
        output_of(&[
            "export",
            "--format",
            "torch",
            "-o",
            exported.to_str().unwrap(),
            recording,
        ]);
        assert_eq!(in_snapshot(&loaded(&exported)), expected);
    }
}

#[test]
fn root_tensors_of_python_have_source_lines() {
    let python = pythons()
        .pop()
        .expect("a version of CPython that is traced");
    let mut child = program(&python);
    let mut talk = Talk::new(&mut child);
    let pid = talk.ready();
    let mut json = Setup::pid(pid).start();
    let mut people = Setup::pid(pid).format("text").start();
    talk.send("");
    let told = told(&mut talk);
    let report = json.stop();
    report.assert_nothing_lost();
    let allocator = &pytorch(&report, pid)[0];
    assert_eq!(found(list(allocator, "sites")), told);
    let bytes: u64 = told.values().map(|sums| sums[3]).sum();
    assert_eq!(number(allocator, "allocated_bytes"), bytes);

    people.interrupt();
    assert_eq!(people.exit_code(), 0);
    let page = fs::read_to_string(&people.reports).unwrap();
    let mib = |key: &str| number(allocator, key) as f64 / f64::from(1 << 20);
    let head = format!(
        "PyTorch cuda:0    allocated {:.2} MiB of {:.2} MiB reserved ({:.1} %), in {} segments",
        mib("allocated_bytes"),
        mib("reserved_bytes"),
        mib("allocated_bytes") / mib("reserved_bytes") * 100.0,
        number(allocator, "segments")
    );
    assert!(page.contains(&head), "no '{head}' in:\n{page}");
    // The line that holds most is first.
    let (frames, sums) = told.iter().max_by_key(|(_, sums)| sums[3]).unwrap();
    let (kept, line) = (sums[3] as f64 / f64::from(1 << 20), frames[0].2);
    let row = page
        .lines()
        .find(|line| line.starts_with('T'))
        .expect("a site of tensors");
    assert!(row.contains(&format!("{kept:.2} MiB")), "{row}");
    assert!(
        row.contains(&format!("tensors.py:{line} {}", frames[0].0)),
        "{row}"
    );
}
