//! Throughput of copies whose calls wait for the copy.

use serde_json::Value;

use super::COPIES;
use crate::harness::talk::Talk;
use crate::harness::{Backend, Report, Setup, Workload, said, standin};

/// Bytes of a copy: at [`SLOW`] it takes so long that a lost time slice matters little.
const BYTES: u64 = 8 << 20;
/// Link speed so low that overhead beside the transfer does not matter.
const SLOW: [(&str, &str); 1] = [("STANDIN_COPY_GBPS", "0.1")];
const SLOW_BYTES_PER_SECOND: f64 = 0.1e9;

/// Makes 5 copies of [`BYTES`] in each direction; returns the workload's own measurement.
fn copy_both_ways(talk: &mut Talk) -> [f64; 2] {
    ["h2d", "d2h"].map(|direction| {
        let reply = talk.say(&format!("copy {direction} {BYTES} 5"));
        said(&reply, "bytes_per_second").parse().unwrap()
    })
}

fn float(value: &Value, key: &str) -> f64 {
    let number = value[key].as_f64();
    number.unwrap_or_else(|| panic!("no number {key} in {value}"))
}

fn check(report: &Report, pid: u32, measured: [f64; 2]) {
    report.assert_nothing_lost();
    assert_eq!(report["bandwidth_util"]["copies"], 10);
    assert_eq!(
        report.moved(pid),
        [("D2H", "sync", 5, 5 * BYTES), ("H2D", "sync", 5, 5 * BYTES)]
    );
    for (direction, measured) in ["H2D", "D2H"].into_iter().zip(measured) {
        let found = report.direction(pid, direction, "sync");
        let mean = float(found, "bytes_per_second");
        // The probes are within the workload's measurement and around the transfer.
        assert!(
            (measured * 0.999..=measured * 1.1).contains(&mean),
            "{mean} where the workload measured {measured}"
        );
        assert!(mean <= SLOW_BYTES_PER_SECOND * 1.0001, "{mean}");
        let peak = float(found, "peak_bytes_per_second");
        assert!(
            (mean..=SLOW_BYTES_PER_SECOND * 1.0001).contains(&peak),
            "{found}"
        );
        let seconds = float(found, "seconds");
        assert!(
            (5.0 * BYTES as f64 / seconds / mean - 1.0).abs() < 1e-9,
            "{found}"
        );
    }
}

pub(crate) fn started_by_us(kind: &str, backends: &[Backend]) {
    for backend in backends {
        let [(name, value)] = SLOW;
        let mut gpuprobe = Setup::command([standin().program_text(*backend)])
            .modes(COPIES)
            .args(["--attach", kind])
            .env(name, value)
            .start();
        let pid = gpuprobe.talk.ready();
        let measured = copy_both_ways(&mut gpuprobe.talk);
        gpuprobe.talk.done();
        check(&gpuprobe.final_report(), pid, measured);
    }
}

pub(crate) fn attached_late(kind: &str, backend: Backend, api: &str) {
    let mut workload = Workload::spawn(&mut Workload::command(backend, &SLOW));
    workload.say("copy h2d 512");
    let mut gpuprobe = Setup::pid(workload.pid)
        .modes(COPIES)
        .args(["--attach", kind, "--api", api])
        .start();
    let measured = copy_both_ways(&mut workload);
    check(&gpuprobe.stop(), workload.pid, measured);
}

#[test]
fn root_throughput_of_a_command_matches_the_workload() {
    started_by_us(
        "session",
        &[Backend::Driver, Backend::Shared, Backend::Static],
    );
    started_by_us("multi", &[Backend::Shared]);
}

#[test]
fn root_late_attach_throughput_matches_the_workload() {
    for (kind, backend, api) in [
        ("session", Backend::Shared, "runtime"),
        ("session", Backend::Static, "driver"),
        ("multi", Backend::Driver, "auto"),
        ("multi", Backend::Shared, "auto"),
    ] {
        attached_late(kind, backend, api);
    }
}
