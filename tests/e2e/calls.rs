//! Which calls are counted, and by which function.

use crate::harness::report::Totals;
use crate::harness::standin::compiled;
use crate::harness::{Backend, Session, Setup};

/// Rows that share a gpuprobe: backend, script, and allocations, frees, failures and frees of null.
const ROWS: [(Backend, &str, [u64; 4]); 8] = {
    use Backend::{Driver, Shared, Static};
    const BY_ANOTHER_THREAD: &str = "thread a; @a alloc 4096 1000; free 0 1000; join a";
    const IN_DRIVER: &str = "alloc 4096 2; fail cuMemAlloc_v2 5 2; alloc 8192 5; \
        fail cuMemFree_v2 2 700; free 0; free 0; freeaddr 0x123456000; freenull";
    const IN_RUNTIME: &str = "alloc 4096 2; fail cudaMalloc 5 2; alloc 8192 5; \
        fail cudaFree 2 700; free 0; free 0; freeaddr 0x123456000; freenull";
    [
        (Shared, BY_ANOTHER_THREAD, [1000, 1000, 0, 0]),
        (Static, BY_ANOTHER_THREAD, [1000, 1000, 0, 0]),
        (Driver, BY_ANOTHER_THREAD, [1000, 1000, 0, 0]),
        // Failed calls change only their count, in the runtime and in the driver below it.
        (Shared, IN_RUNTIME, [2, 0, 8, 1]),
        (Shared, IN_DRIVER, [2, 0, 8, 1]),
        (Static, IN_DRIVER, [2, 0, 8, 1]),
        (Driver, IN_DRIVER, [2, 0, 8, 1]),
        // The driver refuses allocations of no bytes.
        (Driver, "alloc 0 3", [0, 0, 3, 0]),
    ]
};

#[test]
fn root_calls_of_several_processes_are_exact() {
    let mut session = Session::start(Setup::without_stacks);
    let ended = ROWS.map(|(backend, script, counts)| {
        let ended = session.play("", backend, script);
        let truth = ended.truth;
        let found = [truth.allocs, truth.frees, truth.failed, truth.nullfrees];
        assert_eq!(found, counts, "{backend:?}: {script}");
        ended
    });
    let thread = "alloc 4096 10; thread f; @f free 2 3; join f; alloc 512 2";
    let only_frees = session.play("", Backend::Shared, thread);
    let (report, truth) = session.end();
    report.assert_totals(truth);
    report.assert_calls(&[("cudaMalloc", 1000 + 2 + 2 + 12), ("cuMemAlloc_v2", 2004)]);
    for (ended, (backend, ..)) in ended.iter().zip(ROWS) {
        report.assert_holds(ended.pid, ended.truth.bytes, ended.truth.live);
        let mut shown = report.allocations(ended.pid).into_iter();
        assert!(shown.all(|a| a["api"] == backend.allocates_with()));
    }
    for ended in &ended[..3] {
        assert_eq!(report.process(ended.pid)["peak_bytes"], 4_096_000);
    }
    // A thread that only frees and exits disturbs nothing: all live memory is the allocating one's.
    let pid = only_frees.pid;
    report.assert_holds(pid, 7 * 4096 + 1024, 9);
    assert_eq!(report.thread(pid, pid)["live_allocations"], 9);
    assert_eq!(report.process(pid)["threads"].as_array().unwrap().len(), 1);
}

#[test]
fn root_zero_byte_allocation_is_a_call_without_a_block() {
    let setup = Setup::workload(Backend::Shared).without_stacks();
    let mut run = setup.run("alloc 0 3; alloc 512; freenull");
    let (report, truth) = (run.report(), run.truth);
    assert_eq!((truth.allocs, truth.frees, truth.nullfrees), (1, 0, 1));
    report.assert_totals(Totals {
        alloc_calls: 4,
        ..truth.into()
    });
    report.assert_holds(run.pid, 512, 1);
}

#[test]
fn root_calls_after_a_longjmp_are_seen() {
    let script = "thread a; alloc 512; longjmp 5; alloc 512 2; @a longjmp 12; @a alloc 4096 3; \
                  free 0; join a";
    let mut session = Session::start(Setup::without_stacks);
    for backend in [Backend::Shared, Backend::Driver] {
        let truth = session.play("", backend, script).truth;
        assert_eq!((truth.allocs, truth.frees), (6, 1));
    }
    let (report, truth) = session.end();
    report.assert_totals(truth);
}

#[test]
fn root_calls_from_deeper_on_the_stack_than_a_longjmp_are_seen() {
    let program = compiled("longjmp").to_str().unwrap().to_owned();
    let mut gpuprobe = Setup::command_without_stacks([program]).start();
    assert_eq!(gpuprobe.exit_code(), 0);
    gpuprobe.final_report().assert_totals(Totals {
        alloc_calls: 16,
        live_bytes: 512 + 10 * 4096 + 5 * 100,
        live_allocations: 16,
        ..Totals::default()
    });
}
