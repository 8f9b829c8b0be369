//! Flame graphs and recordings of live memory by call stack.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::harness::gpuprobe::BINARY;
use crate::harness::report::number;
use crate::harness::{Setup, standin};

/// The weights of a folded profile by functions, outermost first.
fn folded(path: &std::path::Path) -> Vec<(String, u64)> {
    let text = fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), weight.parse().unwrap())
    };
    text.lines().map(line).collect()
}

#[test]
fn root_flame_graph_total_equals_the_ledger() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let program = standin().path("paths_bare").to_str().unwrap().to_owned();
    let options = [
        ("--folded", file("live.folded")),
        ("--flamegraph", file("live.svg")),
        ("--pprof", file("live.pb.gz")),
        ("--record", file("run.sqlite")),
    ];
    let options = options
        .iter()
        .flat_map(|(name, value)| [*name, value.as_str()]);
    let mut gpuprobe = Setup::command([program]).args(options).start();
    gpuprobe.talk.ready();
    gpuprobe.talk.say("all 4 512");
    gpuprobe.talk.say("call 3 5 100000 2");
    gpuprobe.talk.say("pairs 3 5 1000");
    gpuprobe.talk.send("exit");
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    let live = report.totals().live_bytes;
    assert_eq!(live, 16 * 512 + 200_000);
    let lines = folded(&folder.path().join("live.folded"));
    assert_eq!(lines.iter().map(|(_, bytes)| bytes).sum::<u64>(), live);
    let of_path = lines.iter().find(|(_, bytes)| *bytes == 200_000);
    let (stack, _) = of_path.unwrap_or_else(|| panic!("{lines:#?}"));
    let own: Vec<_> = stack.split(';').filter(|name| *name != "go_on").collect();
    let path = ["main", "carry_out", "right", "left", "right", "bottom"];
    assert!(own.windows(path.len()).any(|some| some == path), "{own:?}");
    let svg = fs::read_to_string(folder.path().join("live.svg")).unwrap();
    assert!(svg.contains("carry_out"));
    // The recording of the run gives the same.
    let made = Command::new(BINARY)
        .args([
            "report",
            &file("run.sqlite"),
            "--folded",
            &file("recorded.folded"),
        ])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut recorded = folded(&folder.path().join("recorded.folded"));
    let mut lines = lines;
    recorded.sort();
    lines.sort();
    assert_eq!(recorded, lines);
    // The nsys-compatible table has every whole stack, too.
    let chains = Command::new(BINARY)
        .args([
            "report",
            &file("run.sqlite"),
            "--analysis",
            "leakage",
            "--group",
            "--format",
            "json",
        ])
        .output()
        .unwrap();
    let chains: serde_json::Value = serde_json::from_slice(&chains.stdout).unwrap();
    assert_eq!(chains["totals"]["total"]["bytes"], live);
}

#[test]
fn root_peak_profile_equals_the_recordings() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let program = standin().path("paths_bare").to_str().unwrap().to_owned();
    let (live, recording) = (file("live.folded"), file("run.sqlite"));
    let options = [
        "--folded", &live, "--weight", "peak", "--record", &recording,
    ];
    let mut gpuprobe = Setup::command([program]).args(options).start();
    gpuprobe.talk.ready();
    gpuprobe.talk.say("all 4 512");
    // Each is freed again: the peak is while the last of them is live.
    gpuprobe.talk.say("pairs 3 5 1000");
    gpuprobe.talk.send("exit");
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    let peak = number(&report["memleak"], "peak_bytes");
    assert!(peak > report.totals().live_bytes, "{peak}");
    let mut lines = folded(&folder.path().join("live.folded"));
    assert_eq!(lines.iter().map(|(_, bytes)| bytes).sum::<u64>(), peak);
    let made = Command::new(BINARY)
        .args(["report", &recording, "--weight", "peak"])
        .args(["--folded", &file("recorded.folded")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut recorded = folded(&folder.path().join("recorded.folded"));
    recorded.sort();
    lines.sort();
    assert_eq!(recorded, lines);
}
