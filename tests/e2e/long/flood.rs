//! A process that sends more than a ring holds.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::harness::promises::{assert_ends, assert_reports_come};
use crate::harness::report::{list, number};
use crate::harness::{Backend, Setup, Workload, alone};
use crate::losses::pause;

#[test]
fn root_a_flood_of_one_process_is_counted_under_its_name_and_costs_others_nothing() {
    const KEPT: u64 = 40_000;
    let _alone = alone();
    let [mut victim, mut flood] = [Backend::Shared; 2].map(Workload::start);
    let mut gpuprobe = Setup::pid(victim.pid)
        .args(["--pid", &flood.pid.to_string(), "--stacks", "off"])
        .args(["--top", "5"])
        .interval("500ms")
        .start();
    // All calls wait in the ring, whichever process made them.
    pause(&gpuprobe);
    flood.say("race 2 300000 4096");
    victim.say(&format!("alloc 512 {KEPT}"));
    gpuprobe.child.signal(Signal::SIGCONT);
    assert_reports_come(&gpuprobe, Duration::from_millis(500), 2);
    let (made, comm) = (flood.status(), format!("/proc/{}/comm", flood.pid));
    let comm = fs::read_to_string(comm).unwrap();
    let report = assert_ends(&mut gpuprobe);
    report.assert_holds(victim.pid, 512 * KEPT, KEPT);
    let lost = report.lost("memory");
    let totals = report.totals();
    let calls = made.allocs + made.frees;
    assert!(lost > calls / 2, "{lost} of {calls}: it was to be too much");
    assert_eq!(totals.alloc_calls + totals.free_calls + lost, calls + KEPT);
    let rows = list(&report, "lost_by_user");
    for (what, count) in report["lost"].as_object().unwrap() {
        let its = rows.iter().filter(|row| row["what"] == what.as_str());
        let sum: u64 = its.map(|row| number(row, "count")).sum();
        assert_eq!(*count, sum, "{what}: {rows:#?}");
    }
    for row in rows {
        let name = (row["pid"].as_u64(), row["comm"].as_str());
        assert_eq!(
            name,
            (Some(flood.pid.into()), Some(comm.trim_end())),
            "{row}"
        );
    }
}
