//! Memory of graph nodes: it is live from a launch until a free.

use super::{MemoryRow, check, check_after, check_rows, only, traced};
use crate::harness::Backend::{self, Driver, PerThread, Shared};

#[test]
fn root_graph_node_memory_is_live_from_a_launch() {
    let rows: &[MemoryRow<'_>] = &[
        ("gtrim", &[]),
        ("gdestroy 0", &[]),
        ("glaunch 0", &[("graph", 4096, 1)]),
        ("glaunch 0; kfree 0", &[]),
        ("glaunch 0; afree 0 1 plain", &[]),
        ("glaunch 0; kfree 0; glaunch 0", &[("graph", 4096, 1)]),
        ("glaunch 0; gdestroy 0; gtrim", &[("graph", 4096, 1)]),
        ("glaunch 0; gdestroy 0; kfree 0", &[]),
        ("gfree 0 $galloc; glaunch 0 3", &[]),
        ("gnew; gfree 1 $galloc; glaunch 0; glaunch 1", &[]),
        (
            "gnew; gfree 1 $galloc; glaunch 0; glaunch 1; glaunch 0",
            &[("graph", 4096, 1)],
        ),
        (
            "gnew; galloc 1 512; glaunch 0; glaunch 1",
            &[("graph", 4608, 2)],
        ),
    ];
    check_after(&[Driver], "gnew; galloc 0 4096", rows);
    check_after(&[Driver], "gnew; galloc 0 4096 node", rows);
    check_after(&[Shared], "gnew; galloc 0 4096 node2", rows);
    check_after(
        &[Backend::Static, PerThread],
        "gnew; galloc 0 4096",
        &rows[4..10],
    );
}

#[test]
fn root_a_launch_that_fails_changes_nothing() {
    for backend in [Shared, Driver] {
        let (report, mut truth, _) = traced(backend, "gnew; galloc 0 4096; glaunch 0 3");
        // Launches of a graph whose memory is live fail. They are no memory calls.
        assert_eq!(truth.failed, 2);
        truth.failed = 0;
        check(&report, truth, &[("graph", 4096, 1)], "launched once");
    }
}

#[test]
fn root_nodes_are_added_in_three_ways() {
    check_rows(
        &Backend::LINKED,
        &[
            (
                "gnew; galloc 0 1000; galloc 0 200 node; galloc 0 30 node2; glaunch 0",
                &[("graph", 1230, 3)],
            ),
            (
                "gnew; galloc 0 1000; gfree 0 $galloc node2; galloc 0 200 node; \
                 gfree 0 $galloc; galloc 0 30 node2; gfree 0 $galloc node; galloc 0 4; glaunch 0",
                &[("graph", 4, 1)],
            ),
        ],
    );
}

#[test]
fn root_captured_allocations_take_effect_at_the_launch() {
    let captured = "gcapture; galloc 0 4096; galloc 0 8192; gfree 0 $galloc; gendcapture 0";
    let rows: &[MemoryRow<'_>] = &[
        ("gtrim", &[]),
        ("glaunch 0", &[("graph", 4096, 1)]),
        ("glaunch 0; kfree 0; glaunch 0", &[("graph", 4096, 1)]),
        ("glaunch 0; kfree 0; async 64", &[("async", 64, 1)]),
    ];
    check_after(&Backend::LINKED, captured, rows);
    // Calls of other threads and streams meanwhile are not captured.
    check_rows(
        &[Shared, Driver],
        &[(
            "stream; thread a; gcapture; galloc 0 4096; @a async 64 stream=0; @a async 8; \
             galloc 0 1024; gendcapture 0; glaunch 0; join a",
            &[("async", 72, 2), ("graph", 5120, 2)],
        )],
    );
}

#[test]
fn root_memory_captures_are_distinguished() {
    let rows: &[MemoryRow<'_>] = &[
        // Nodes of an invalidated capture are not in the next graph.
        (
            "gcapture; galloc 0 1000; fail cuStreamEndCapture 1 901; !gendcapture 0; \
             gcapture; galloc 1 500; gendcapture 1; glaunch 1",
            &[("graph", 500, 1)],
        ),
        // One thread, two streams.
        (
            "gcapture; gcapture; galloc 0 1000; galloc 1 500; gendcapture 0; gendcapture 1; \
             glaunch 1",
            &[("graph", 500, 1)],
        ),
        // A stream that is not captured, of a thread that captures another.
        ("gcapture; async 700; gendcapture 0", &[("async", 700, 1)]),
        // A stream that joins the capture, and is no longer captured afterwards.
        (
            "gcapture; galloc 0 100; gfork 0; galloc 0 30; gendcapture 0; glaunch 0; \
             gcapture; async 8; gfork 1; galloc 1 2000; gendcapture 1",
            &[("async", 8, 1), ("graph", 130, 2)],
        ),
        // An abandoned capture.
        (
            "gcapture; galloc 0 100; gdrop 0; stream; async 700 stream=0; async 8",
            &[("async", 708, 2)],
        ),
    ];
    check_rows(&[Shared, Driver], rows);
}

#[test]
fn root_graph_memory_is_gpu_memory() {
    let (report, truth, pid) = traced(Shared, "gnew; galloc 0 4096; glaunch 0; alloc 512");
    check(
        &report,
        truth,
        &[("device", 512, 1), ("graph", 4096, 1)],
        "both",
    );
    assert_eq!((truth.allocs, truth.frees), (1, 0));
    report.assert_holds(pid, 4608, 2);
    let memory = only(&report, pid, "graph");
    assert_eq!(memory["api"], "cuGraphAddMemAllocNode");
    assert_eq!(memory["device"], 0);
}
