//! Throughput of copies whose calls wait for the copy.

use serde_json::Value;

use super::COPIES;
use crate::harness::talk::Talk;
use crate::harness::{Backend, Report, Session, Setup, Workload, said};

/// Bytes of a copy: at [`SLOW`] it takes so long that a lost time slice matters little.
const BYTES: u64 = 8 << 20;
/// Link speed so low that overhead beside the transfer does not matter.
const SLOW: [(&str, &str); 1] = [("STANDIN_COPY_GBPS", "0.1")];
const SLOW_BYTES_PER_SECOND: f64 = 0.1e9;

/// Makes 3 copies of [`BYTES`] in each direction; returns the workload's own measurement.
fn copy_both_ways(talk: &mut Talk) -> [f64; 2] {
    ["h2d", "d2h"].map(|direction| {
        let reply = talk.say(&format!("copy {direction} {BYTES} 3"));
        said(&reply, "bytes_per_second").parse().unwrap()
    })
}

fn float(value: &Value, key: &str) -> f64 {
    let number = value[key].as_f64();
    number.unwrap_or_else(|| panic!("no number {key} in {value}"))
}

fn check(report: &Report, pid: u32, measured: [f64; 2]) {
    report.assert_nothing_lost();
    assert_eq!(
        report.moved(pid),
        [("D2H", "sync", 3, 3 * BYTES), ("H2D", "sync", 3, 3 * BYTES)]
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
            (3.0 * BYTES as f64 / seconds / mean - 1.0).abs() < 1e-9,
            "{found}"
        );
    }
}

pub(crate) fn started_by_us(kind: &str, backends: &[Backend]) {
    let [(name, value)] = SLOW;
    let mut session = Session::start(|setup| {
        let setup = setup.modes(COPIES).args(["--attach", kind]);
        setup.env(name, value)
    });
    let mut played = Vec::new();
    for backend in backends {
        let mut member = session.workload(*backend);
        let measured = copy_both_ways(&mut member);
        played.push((session.done(member).pid, measured));
    }
    let (report, _) = session.end();
    for (pid, measured) in played {
        check(&report, pid, measured);
    }
}

pub(crate) fn attached_late(kind: &str, backends: &[Backend], api: &str) {
    let start = |backend: &Backend| {
        let mut workload = Workload::spawn(&mut Workload::command(*backend, &SLOW));
        workload.say("copy h2d 512");
        workload
    };
    let mut workloads: Vec<_> = backends.iter().map(start).collect();
    let setup = Setup::pids_without_stacks(workloads.iter().map(|w| w.pid)).modes(COPIES);
    let mut gpuprobe = setup.args(["--attach", kind, "--api", api]).start();
    let measured: Vec<_> = workloads.iter_mut().map(|w| copy_both_ways(w)).collect();
    let report = gpuprobe.stop();
    for (workload, measured) in workloads.iter().zip(measured) {
        check(&report, workload.pid, measured);
    }
}

#[test]
fn root_throughput_of_a_command_matches_the_workload() {
    use Backend::{Driver, Shared, Static};
    started_by_us("session", &[Driver, Shared, Static]);
    started_by_us("multi", &[Shared]);
}

#[test]
fn root_late_attach_throughput_matches_the_workload() {
    attached_late("session", &[Backend::Shared], "runtime");
    attached_late("session", &[Backend::Static], "driver");
    attached_late("multi", &[Backend::Driver, Backend::Shared], "auto");
}
