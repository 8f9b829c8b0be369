//! Which calls are counted, and by which function.

use crate::harness::report::Totals;
use crate::harness::standin::compiled;
use crate::harness::{Backend, Report, Setup, Truth, Workload, standin};

/// Runs commands under a tracer that was attached from the start.
fn traced(backend: Backend, arguments: &[&str], commands: &[&str]) -> (Report, Truth, u32) {
    let mut gpuprobe = Setup::command_without_stacks([standin().program_text(backend)])
        .args(arguments.iter().copied())
        .start();
    let pid = gpuprobe.talk.ready();
    for command in commands {
        gpuprobe.talk.say(command);
    }
    let truth = gpuprobe.talk.done();
    (gpuprobe.final_report(), truth, pid)
}

#[test]
fn root_frees_by_another_thread_leave_no_live_memory() {
    for backend in [Backend::Shared, Backend::Static, Backend::Driver] {
        let commands = ["thread a", "@a alloc 4096 1000", "free 0 1000", "join a"];
        let (report, truth, pid) = traced(backend, &[], &commands);
        assert_eq!((truth.allocs, truth.frees), (1000, 1000));
        report.assert_totals(truth);
        report.assert_calls(&[(backend.allocates_with(), 1000)]);
        report.assert_holds(pid, 0, 0);
        assert_eq!(report.process(pid)["peak_bytes"], 4_096_000);
    }
}

#[test]
fn root_thread_that_only_frees_and_exits_disturbs_nothing() {
    let commands = [
        "alloc 4096 10",
        "thread f",
        "@f free 2 3",
        "join f",
        "alloc 512 2",
    ];
    let (report, truth, pid) = traced(Backend::Shared, &[], &commands);
    report.assert_totals(truth);
    assert_eq!((truth.live, truth.bytes), (9, 7 * 4096 + 1024));
    // All live memory belongs to the allocating thread.
    assert_eq!(report.thread(pid, pid)["live_allocations"], 9);
    assert_eq!(report.process(pid)["threads"].as_array().unwrap().len(), 1);
}

#[test]
fn root_threads_are_distinguished_by_tid_and_name() {
    let mut gpuprobe =
        Setup::command_without_stacks([standin().program_text(Backend::Shared)]).start();
    let talk = &mut gpuprobe.talk;
    let pid = talk.ready();
    let loader: u32 = talk.ask("thread loader");
    let trainer: u32 = talk.ask("thread trainer");
    talk.say("alloc 1048576 2");
    talk.say("@loader alloc 2097152 3");
    talk.say("@trainer alloc 512 4");
    talk.say("join loader");
    talk.say("@trainer free 2 1");
    let truth = talk.done();
    let report = gpuprobe.final_report();
    report.assert_totals(truth);
    for (tid, comm, bytes, allocations) in [
        (loader, "loader", 2 * 2_097_152, 2),
        (pid, "workload", 2 * 1_048_576, 2),
        (trainer, "trainer", 4 * 512, 4),
    ] {
        let thread = report.thread(pid, tid);
        assert_eq!(thread["comm"], comm);
        assert_eq!(thread["live_bytes"], bytes);
        assert_eq!(thread["live_allocations"], allocations);
    }
    let order: Vec<_> = report.process(pid)["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["tid"])
        .collect();
    assert_eq!(order, [loader, pid, trainer], "largest first");
}

#[test]
fn root_failed_calls_change_only_their_count() {
    // In the runtime, and in the driver below it.
    for (backend, fails_in) in [
        (Backend::Shared, ["cudaMalloc", "cudaFree"]),
        (Backend::Shared, ["cuMemAlloc_v2", "cuMemFree_v2"]),
        (Backend::Static, ["cuMemAlloc_v2", "cuMemFree_v2"]),
        (Backend::Driver, ["cuMemAlloc_v2", "cuMemFree_v2"]),
    ] {
        let [fail_alloc, fail_free] = fails_in.map(|name| format!("fail {name}"));
        let commands = [
            "alloc 4096 2",
            &format!("{fail_alloc} 5 2"),
            "alloc 8192 5",
            &format!("{fail_free} 2 700"),
            "free 0",
            "free 0",
            "freeaddr 0x123456000",
            "freenull",
        ];
        let (report, truth, pid) = traced(backend, &[], &commands);
        assert_eq!(
            (truth.allocs, truth.frees, truth.failed, truth.nullfrees),
            (2, 0, 8, 1)
        );
        report.assert_totals(truth);
        report.assert_calls(&[(backend.allocates_with(), 2)]);
        report.assert_holds(pid, 8192, 2);
    }
}

#[test]
fn root_zero_byte_allocation_is_a_call_without_a_block() {
    let (report, truth, pid) = traced(
        Backend::Shared,
        &[],
        &["alloc 0 3", "alloc 512", "freenull"],
    );
    assert_eq!((truth.allocs, truth.frees, truth.nullfrees), (1, 0, 1));
    report.assert_totals(Totals {
        alloc_calls: 4,
        ..truth.into()
    });
    report.assert_holds(pid, 512, 1);
    // The driver refuses them.
    let (report, truth, _) = traced(Backend::Driver, &[], &["alloc 0 3"]);
    assert_eq!(truth.failed, 3);
    report.assert_totals(truth);
}

#[test]
fn root_late_attach_counts_frees_of_unknown_memory() {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("alloc 4096 5");
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid).start();
    workload.say("free 1 2");
    workload.say("alloc 512 2");
    workload.say("free 3 3");
    let report = gpuprobe.stop();
    assert_eq!(workload.status().live, 2);
    report.assert_totals(Totals {
        alloc_calls: 2,
        free_calls: 5,
        failed_calls: 0,
        unknown_frees: 4,
        live_bytes: 512,
        live_allocations: 1,
    });
    report.assert_holds(workload.pid, 512, 1);
}

#[test]
fn root_api_layer_can_be_selected() {
    let commands = ["alloc 4096 3", "free 0"];
    for (layer, symbol) in [
        ("auto", "cudaMalloc"),
        ("runtime", "cudaMalloc"),
        ("driver", "cuMemAlloc_v2"),
    ] {
        let (report, truth, pid) = traced(Backend::Shared, &["--api", layer], &commands);
        report.assert_totals(truth);
        report.assert_calls(&[(symbol, 3)]);
        assert!(report.allocations(pid).iter().all(|a| a["api"] == symbol));
    }
    let (report, _, pid) = traced(Backend::Driver, &["--api", "runtime"], &commands);
    report.assert_totals(Totals::default());
    assert!(
        report
            .entries(pid)
            .iter()
            .all(|p| p["live_allocations"] == 0)
    );
}

#[test]
fn root_calls_after_a_longjmp_are_seen() {
    for backend in [Backend::Shared, Backend::Driver] {
        let commands = [
            "thread a",
            "alloc 512",
            "longjmp 5",
            "alloc 512 2",
            "@a longjmp 12",
            "@a alloc 4096 3",
            "free 0",
            "join a",
        ];
        let (report, truth, _) = traced(backend, &[], &commands);
        assert_eq!((truth.allocs, truth.frees), (6, 1));
        report.assert_totals(truth);
    }
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
