//! Flame graphs and recordings of live memory by call stack.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::harness::gpuprobe::output_of;
use crate::harness::{Report, Setup, standin};

/// The weights of a folded profile by functions, outermost first, sorted.
fn folded(path: &Path) -> Vec<(String, u64)> {
    let text = fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), weight.parse().unwrap())
    };
    let mut lines: Vec<_> = text.lines().map(line).collect();
    lines.sort();
    lines
}

/// The last report of a program of call paths that runs these commands.
fn traced(options: &[&str], commands: &[&str]) -> Report {
    let program = standin().path("paths_bare").to_str().unwrap().to_owned();
    let setup = Setup::command([program]).args(options.iter().copied());
    let (mut gpuprobe, _) = setup.started();
    gpuprobe.talk.play(&commands.join("; "));
    gpuprobe.talk.send("exit");
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    report
}

fn reported(recording: &str, arguments: &[&str]) -> String {
    output_of(&[&["report", recording], arguments].concat())
}

#[test]
fn root_flame_graph_total_equals_the_ledger() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (live, svg, recording) = (file("live.folded"), file("live.svg"), file("run.sqlite"));
    let report = traced(
        &[
            "--folded",
            &live,
            "--flamegraph",
            &svg,
            "--pprof",
            &file("live.pb.gz"),
            "--record",
            &recording,
        ],
        &["all 4 512", "call 3 5 100000 2", "pairs 3 5 1000"],
    );
    let held = report.totals().live_bytes;
    assert_eq!(held, 16 * 512 + 200_000);
    let lines = folded(Path::new(&live));
    assert_eq!(lines.iter().map(|(_, bytes)| bytes).sum::<u64>(), held);
    let of_path = lines.iter().find(|(_, bytes)| *bytes == 200_000);
    let (stack, _) = of_path.unwrap_or_else(|| panic!("{lines:#?}"));
    let own: Vec<_> = stack.split(';').filter(|name| *name != "go_on").collect();
    let path = ["main", "carry_out", "right", "left", "right", "bottom"];
    assert!(own.windows(path.len()).any(|some| some == path), "{own:?}");
    assert!(fs::read_to_string(svg).unwrap().contains("carry_out"));
    // The recording of the run gives the same.
    let recorded = file("recorded.folded");
    reported(&recording, &["--folded", &recorded]);
    assert_eq!(folded(Path::new(&recorded)), lines);
    // The nsys-compatible table has every whole stack, too.
    let leakage = ["--analysis", "leakage", "--group", "--format", "json"];
    let chains = reported(&recording, &leakage);
    let chains: serde_json::Value = serde_json::from_str(&chains).unwrap();
    assert_eq!(chains["totals"]["total"]["bytes"], held);
}
