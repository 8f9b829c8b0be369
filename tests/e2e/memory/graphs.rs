//! Memory of graph nodes: it is live from a launch until a free.

use super::{Rows, left, only};
use crate::harness::Backend::{self, Driver, PerThread, Shared};

#[test]
fn root_graph_memory_is_live_from_a_launch() {
    let mut rows = Rows::start(&[]);
    let launched: &[&str] = &[
        "gtrim => nothing",
        "gdestroy 0 => nothing",
        "glaunch 0 => graph 4096 in 1",
        "glaunch 0; kfree 0 => nothing",
        "glaunch 0; afree 0 1 plain => nothing",
        "glaunch 0; kfree 0; glaunch 0 => graph 4096 in 1",
        "glaunch 0; gdestroy 0; gtrim => graph 4096 in 1",
        "glaunch 0; gdestroy 0; kfree 0 => nothing",
        "gfree 0 $galloc; glaunch 0 3 => nothing",
        "gnew; gfree 1 $galloc; glaunch 0; glaunch 1 => nothing",
        "gnew; gfree 1 $galloc; glaunch 0; glaunch 1; glaunch 0 => graph 4096 in 1",
        "gnew; galloc 1 512; glaunch 0; glaunch 1 => graph 4608 in 2",
    ];
    rows.after(&[Driver], "gnew; galloc 0 4096; ", launched);
    rows.after(&[Driver], "gnew; galloc 0 4096 node; ", launched);
    rows.after(&[Shared], "gnew; galloc 0 4096 node2; ", launched);
    rows.after(
        &[Backend::Static, PerThread],
        "gnew; galloc 0 4096; ",
        &launched[4..10],
    );
    for backend in [Shared, Driver] {
        // Launches of a graph whose memory is live fail. They are no memory calls.
        rows.play(
            backend,
            "gnew; galloc 0 4096; glaunch 0 3",
            |report, row| {
                assert_eq!(row.truth.failed, 2);
                left("graph 4096 in 1")(report, row);
            },
        );
        rows.uncounted -= 2;
    }
    let script = "gnew; galloc 0 4096; glaunch 0; alloc 512";
    rows.play(Shared, script, |report, row| {
        left("device 512 in 1, graph 4096 in 1")(report, row);
        assert_eq!((row.truth.allocs, row.truth.frees), (1, 0));
        report.assert_holds(row.pid, 4608, 2);
        let memory = only(report, row.pid, "graph");
        assert_eq!(memory["api"], "cuGraphAddMemAllocNode");
        assert_eq!(memory["device"], 0);
    });
    rows.end();
}

#[test]
fn root_captured_memory_takes_effect_at_the_launch() {
    let mut rows = Rows::start(&[]);
    // Nodes are added in three ways.
    rows.table(
        &Backend::LINKED,
        &[
            "gnew; galloc 0 1000; galloc 0 200 node; galloc 0 30 node2; glaunch 0 => graph 1230 in 3",
            "gnew; galloc 0 1000; gfree 0 $galloc node2; galloc 0 200 node; \
                 gfree 0 $galloc; galloc 0 30 node2; gfree 0 $galloc node; galloc 0 4; glaunch 0 => graph 4 in 1",
        ],
    );
    let captured = "gcapture; galloc 0 4096; galloc 0 8192; gfree 0 $galloc; gendcapture 0; ";
    let launches: &[&str] = &[
        "gtrim => nothing",
        "glaunch 0 => graph 4096 in 1",
        "glaunch 0; kfree 0; glaunch 0 => graph 4096 in 1",
        "glaunch 0; kfree 0; async 64 => async 64 in 1",
    ];
    rows.after(&Backend::LINKED, captured, launches);
    // Calls of other threads and streams meanwhile are not captured.
    rows.table(
        &[Shared, Driver],
        &[
            "stream; thread a; gcapture; galloc 0 4096; @a async 64 stream=0; @a async 8; \
             galloc 0 1024; gendcapture 0; glaunch 0; join a => async 72 in 2, graph 5120 in 2",
        ],
    );
    let captures: &[&str] = &[
        // Nodes of an invalidated capture are not in the next graph.
        "gcapture; galloc 0 1000; fail cuStreamEndCapture 1 901; !gendcapture 0; \
             gcapture; galloc 1 500; gendcapture 1; glaunch 1 => graph 500 in 1",
        // One thread, two streams.
        "gcapture; gcapture; galloc 0 1000; galloc 1 500; gendcapture 0; gendcapture 1; \
             glaunch 1 => graph 500 in 1",
        // A stream that is not captured, of a thread that captures another.
        "gcapture; async 700; gendcapture 0 => async 700 in 1",
        // A stream that joins the capture, and is no longer captured afterwards.
        "gcapture; galloc 0 100; gfork 0; galloc 0 30; gendcapture 0; glaunch 0; \
             gcapture; async 8; gfork 1; galloc 1 2000; gendcapture 1 => async 8 in 1, graph 130 in 2",
        // An abandoned capture.
        "gcapture; galloc 0 100; gdrop 0; stream; async 700 stream=0; async 8 => async 708 in 2",
    ];
    rows.table(&[Shared, Driver], captures);
    rows.end();
}
