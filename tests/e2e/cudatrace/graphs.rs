//! Launches captured into graphs, and graph launches.

use serde_json::json;

use super::{LAUNCHES, name, traced};
use crate::harness::report::{list, number};
use crate::harness::{Backend, Setup, Workload};

/// Captured launches by kernel number.
fn check_captured(report: &crate::harness::Report, pid: u32, expected: [u64; 4]) {
    for (number_of, captured) in expected.into_iter().enumerate() {
        let kernel = report.kernel(pid, name(number_of));
        let found = [
            number(kernel, "launches"),
            number(kernel, "captured_launches"),
        ];
        assert_eq!(found, [0, captured], "{kernel}");
    }
}

#[test]
fn root_a_graph_of_5_kernels_launched_23_times_is_23_graph_launches() {
    for backend in [Backend::Shared, Backend::Static, Backend::Driver] {
        let traced = traced(backend, &[], &["graph 5 23"]);
        assert_eq!(traced.report.launches(), [0, 23, 5], "{backend:?}");
        check_captured(&traced.report, traced.pid, [2, 1, 1, 1]);
        let graphs = &traced.report["cudatrace"]["graphs"];
        let expected = json!([{ "pid": traced.pid, "graphs": 1, "launches": 23 }]);
        assert_eq!(*graphs, expected);
    }
}

#[test]
fn root_late_attach_distinguishes_graph_launches() {
    let mut workload = Workload::start(Backend::Driver);
    workload.say("graph 3 4");
    workload.say("launch 0 6");
    let mut gpuprobe = Setup::pid(workload.pid).modes(LAUNCHES).start();
    workload.say("graph 5 23");
    workload.say("launch 0 7");
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    assert_eq!(report.launches(), [7, 23, 5]);
    let kernel = report.kernel(workload.pid, name(0));
    assert_eq!(kernel["launches"], 7);
    assert_eq!(kernel["captured_launches"], 2);
}

#[test]
fn root_streams_that_join_a_capture_are_part_of_it() {
    for backend in [Backend::Shared, Backend::Driver] {
        let traced = traced(backend, &[], &["graph 10 3 fork"]);
        assert_eq!(traced.report.launches(), [0, 3, 10]);
        check_captured(&traced.report, traced.pid, [3, 3, 2, 2]);
    }
}

#[test]
fn root_capture_has_exactly_the_launches_of_its_streams() {
    for backend in [Backend::Shared, Backend::Driver] {
        let commands = [
            "stream",
            "stream",
            "thread other",
            "launch 0 1 stream=0",
            "capture 0",
            "launch 0 10 stream=0",
            "@other launch 1 100 stream=1",
            "@other launch 1 20 stream=0",
            "endcapture 0",
            "launch 0 2 stream=0",
            "graphlaunch 0 23",
            "graphlaunch 0 17 stream=1",
        ];
        let traced = traced(backend, &[], &commands);
        assert_eq!(traced.replies[8], "0 nodes=30");
        assert_eq!(traced.report.launches(), [103, 40, 30]);
        for (kernel, launches, captured) in [(0, 3, 10), (1, 100, 20)] {
            let kernel = traced.report.kernel(traced.pid, name(kernel));
            assert_eq!(kernel["launches"], launches);
            assert_eq!(kernel["captured_launches"], captured);
        }
    }
}

/// Runs commands in which launches run or are captured, as the workload has it; returns the number
/// of each.
fn ran_and_captured(commands: &[&str]) -> Vec<[u64; 2]> {
    let both = [Backend::Shared, Backend::Driver].map(|backend| {
        let traced = traced(backend, &[], commands);
        let [ran, _, captured] = traced.report.launches();
        [ran, captured]
    });
    both.to_vec()
}

#[test]
fn root_a_stream_that_joined_a_capture_and_is_destroyed_does_not_end_it() {
    let found = ran_and_captured(&[
        "stream",
        "stream",
        "event",
        "capture 0",
        "record 0 0",
        "waitevent 1 0",
        "launch 0 2 stream=1",
        "streamdestroy 1",
        "launch 0 4 stream=0",
        // The new stream has the handle of the destroyed one.
        "stream",
        "launch 0 8 stream=2",
        "launch 0 16 stream=0",
        "endcapture 0",
        "launch 0 32 stream=0",
    ]);
    assert_eq!(found, [[8 + 32, 2 + 4 + 16]; 2]);
}

#[test]
fn root_an_event_that_is_recorded_again_joins_where_it_was_recorded_last() {
    let found = ran_and_captured(&[
        "stream",
        "stream",
        "stream",
        "event",
        "event",
        "capture 0",
        "record 0 0",
        "record 1 0",
        // Not captured: a stream that waits for this event joins no capture.
        "record 0 2",
        "waitevent 1 0",
        "launch 0 2 stream=1",
        "waitevent 1 1",
        "launch 0 4 stream=1",
        "launch 0 8 stream=0",
        "endcapture 0",
        // Recorded in a capture that has ended.
        "waitevent 2 1",
        "launch 0 16 stream=2",
        "launch 0 32 stream=1",
    ]);
    assert_eq!(found, [[2 + 16 + 32, 4 + 8]; 2]);
}

#[test]
fn root_concurrent_captures_of_two_streams_end_separately() {
    let commands = [
        "stream",
        "stream",
        "thread other",
        "capture 0",
        "@other capture 1",
        "launch 0 1 stream=0",
        "@other launch 0 2 stream=1",
        "endcapture 0",
        "@other launch 0 4 stream=1",
        "launch 0 8 stream=0",
        "@other endcapture 1",
        "@other launch 0 16 stream=1",
        "graphlaunch 0 5",
        "graphlaunch 1 6",
    ];
    let traced = traced(Backend::Driver, &[], &commands);
    assert_eq!(traced.report.launches(), [24, 11, 7]);
    let graphs = list(&traced.report["cudatrace"], "graphs");
    assert_eq!(graphs.len(), 1);
    assert_eq!(graphs[0]["graphs"], 2);
}
