//! Launches captured into graphs, and graph launches.

use super::{LAUNCHES, graphs, name, ran_and_captured, table};
use crate::harness::report::number;
use crate::harness::{Backend, Report, Setup, Workload};

/// Captured launches by kernel number.
fn check_captured(report: &Report, pid: u32, expected: [u64; 4]) {
    for (number_of, captured) in expected.into_iter().enumerate() {
        let kernel = report.kernel(pid, name(number_of));
        let found = [
            number(kernel, "launches"),
            number(kernel, "captured_launches"),
        ];
        assert_eq!(found, [0, captured], "{kernel}");
    }
}

/// A script; launches, run and captured; graphs and their launches.
type Capture = (&'static str, [u64; 2], Option<[u64; 2]>);

/// Captures in which streams join by events, end and are destroyed.
const CAPTURES: [Capture; 5] = [
    // A capture has exactly the launches of its streams.
    (
        "stream; stream; thread other; launch 0 1 stream=0; capture 0; launch 0 10 stream=0; \
         @other launch 1 100 stream=1; @other launch 1 20 stream=0; endcapture 0; launch 0 2 stream=0; \
         graphlaunch 0 23; graphlaunch 0 17 stream=1",
        [103, 30],
        Some([1, 40]),
    ),
    // A stream that joined a capture and is destroyed does not end it. The new one has its handle.
    (
        "stream; stream; event; capture 0; record 0 0; waitevent 1 0; launch 0 2 stream=1; \
         streamdestroy 1; launch 0 4 stream=0; stream; launch 0 8 stream=2; launch 0 16 stream=0; \
         endcapture 0; launch 0 32 stream=0",
        [8 + 32, 2 + 4 + 16],
        None,
    ),
    // An event that is recorded again joins where it was recorded last: first, event 0 is not captured and its
    // waiter joins no capture; in the end, event 1 was recorded in a capture that has ended.
    (
        "stream; stream; stream; event; event; capture 0; record 0 0; record 1 0; record 0 2; \
         waitevent 1 0; launch 0 2 stream=1; waitevent 1 1; launch 0 4 stream=1; launch 0 8 stream=0; \
         endcapture 0; waitevent 2 1; launch 0 16 stream=2; launch 0 32 stream=1",
        [2 + 16 + 32, 4 + 8],
        None,
    ),
    // A graphics API runs what is captured for it.
    (
        "stream; stream; launch 0 1 stream=0; cig begin 0; launch 0 4 stream=0; launch 0 2 stream=1; \
         cig end 0; launch 0 8 stream=0; capture 0; launch 0 16 stream=0; endcapture 0; graphlaunch 0 3",
        [1 + 2 + 8, 4 + 16],
        Some([1, 3]),
    ),
    // Concurrent captures of two streams end separately.
    (
        "stream; stream; thread other; capture 0; @other capture 1; launch 0 1 stream=0; \
         @other launch 0 2 stream=1; endcapture 0; @other launch 0 4 stream=1; launch 0 8 stream=0; \
         @other endcapture 1; @other launch 0 16 stream=1; graphlaunch 0 5; graphlaunch 1 6",
        [24, 7],
        Some([2, 11]),
    ),
];

#[test]
fn root_graph_launches_and_captured_launches_are_exact() {
    use Backend::{Driver, Shared, Static};
    let mut rows = Vec::new();
    for backend in [Shared, Static, Driver] {
        rows.push(("", backend, "graph 5 23"));
        rows.push(("", backend, "graph 10 3 fork"));
        rows.extend(CAPTURES.map(|(script, ..)| ("", backend, script)));
    }
    let (report, rows) = table(&[], &rows);
    for of_backend in rows.chunks(2 + CAPTURES.len()) {
        let [one, forked, captures @ ..] = of_backend else {
            panic!("no rows");
        };
        assert_eq!(graphs(&report, one.pid), [1, 23]);
        check_captured(&report, one.pid, [2, 1, 1, 1]);
        assert_eq!(graphs(&report, forked.pid), [1, 3]);
        check_captured(&report, forked.pid, [3, 3, 2, 2]);
        for (row, (script, expected, of_graphs)) in captures.iter().zip(CAPTURES) {
            let found = ran_and_captured(&report, row.pid);
            assert_eq!(found, expected, "{script}");
            let launched = [row.truth.launches, row.truth.captured];
            assert_eq!(launched, expected, "{script}");
            if let Some(expected) = of_graphs {
                assert_eq!(graphs(&report, row.pid), expected, "{script}");
            }
        }
        let exact = &captures[0];
        assert_eq!(exact.replies[8], "0 nodes=30");
        for (kernel, launches, captured) in [(0, 3, 10), (1, 100, 20)] {
            let kernel = report.kernel(exact.pid, name(kernel));
            assert_eq!(kernel["launches"], launches);
            assert_eq!(kernel["captured_launches"], captured);
        }
    }
}

#[test]
fn root_late_attach_distinguishes_graph_launches() {
    let mut workload = Workload::start(Backend::Driver);
    workload.play("graph 3 4; launch 0 6");
    let mut gpuprobe = Setup::pid(workload.pid).modes(LAUNCHES).start();
    workload.play("graph 5 23; launch 0 7");
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    assert_eq!(report.launches(), [7, 23, 5]);
    let kernel = report.kernel(workload.pid, name(0));
    assert_eq!(kernel["launches"], 7);
    assert_eq!(kernel["captured_launches"], 2);
}
