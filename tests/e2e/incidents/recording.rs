//! Incidents in recordings: a replay and a report say the same as the live run.

use std::path::Path;
use std::process::Command;

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use tempfile::TempDir;

use super::{MIB, incidents, said};
use crate::harness::gpuprobe::BINARY;
use crate::harness::{Backend, Nvml, Setup, Workload};
use crate::validator::check_all;

/// Output of `gpuprobe ARGUMENTS`.
fn written(arguments: &[&str]) -> String {
    let output = Command::new(BINARY).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Function, bytes, failed calls, outcome, and used bytes of the GPU of each row.
fn rows(file: &Path) -> Vec<(String, u64, u64, String, Option<u64>)> {
    let file = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let sql = "SELECT api, requested, attempts, outcome, gpuUsed FROM GPUPROBE_INCIDENTS \
               ORDER BY id";
    let mut rows = file.prepare(sql).unwrap();
    let row = |row: &rusqlite::Row<'_>| {
        let number = |index| {
            let number = row.get::<_, Option<i64>>(index);
            number.map(|number| number.map(i64::cast_unsigned))
        };
        Ok((
            row.get(0)?,
            number(1)?.unwrap(),
            number(2)?.unwrap(),
            row.get(3)?,
            number(4)?,
        ))
    };
    rows.query_map([], row)
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

#[test]
fn root_recorded_incidents_match_the_live_ones() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("run.sqlite");
    let text = file.to_str().unwrap();
    let nvml = Nvml::with_gpus(1);
    let mut program = Workload::start(Backend::Shared);
    let other = Workload::start(Backend::Shared);
    nvml.says(&[(0, program.pid, 30 * MIB), (0, other.pid, 50 * MIB)]);
    let setup = nvml.given_to(Setup::pid(program.pid));
    let mut gpuprobe = setup.args(["--record", text]).start();
    program.play(
        "alloc 1048576 3; fail cudaMalloc 2 2; alloc 4096; alloc 4096; alloc 4096; \
         fail cudaMallocAsync 1 2; async 8192; fail cudaMallocPitch 1 2; pitched 100 10",
    );
    program.done();
    let report = gpuprobe.final_report();
    let live = incidents(&report);
    assert_eq!(live.len(), 3);
    let used = Some(80 * MIB);
    assert_eq!(
        rows(&file),
        [
            ("cudaMalloc".into(), 4096, 2, "retried".into(), used),
            ("cudaMallocAsync".into(), 8192, 1, "continued".into(), used),
            ("cudaMallocPitch".into(), 1000, 1, "ended".into(), used),
        ]
    );
    for arguments in [
        &["report", text, "--format", "json"][..],
        &["replay", text, "--last", "--format", "json"],
    ] {
        let json = written(arguments);
        check_all(&json);
        let found: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(found["incidents"], report["incidents"], "{arguments:?}");
        assert_eq!(found["out_of_memory"], report["out_of_memory"]);
    }
    // The same text, once the outcome is known.
    let live = said(&mut gpuprobe);
    for arguments in [&["report", text][..], &["replay", text, "--last"]] {
        let found = written(arguments);
        let found: Vec<_> = found.lines().collect();
        let last = live
            .iter()
            .rposition(|line| line.starts_with("out of memory #3"));
        let told = live[last.unwrap()..]
            .iter()
            .take_while(|line| line.len() > 1);
        for line in told {
            assert!(
                found.contains(&line.as_str()),
                "{line} is not in {found:#?}"
            );
        }
    }
}
