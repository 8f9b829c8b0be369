//! Every call and every launch is counted once, by every API layer and attach mode.

use serde_json::json;

use crate::cudatrace::KERNELS;
use crate::harness::report::Totals;
use crate::harness::talk::Talk;
use crate::harness::{Backend, OwnCopy, Report, Session, Setup, Workload, host_wide, said};

const MODES: [&str; 2] = ["--memleak", "--cudatrace"];
const EIGHT_MIB: u64 = 8 << 20;

/// Allocates three blocks of 8 MiB, frees two of them, and makes 3,000 launches; returns the launched handles.
fn work(talk: &mut Talk) -> [String; 3] {
    talk.play("alloc 8388608 3; free 0 2");
    [
        "launch 0 1000 grid=80,1,1 block=128,1,1",
        "launch 1 1250 grid=7,65535,3 block=32,4,2",
        "launch 2 750 grid=2147483647,5,65535 block=1,1024,1",
    ]
    .map(|command| said(&talk.say(command), "handle").to_owned())
}

/// Asserts that a process has done this work.
fn check(report: &Report, pid: u32, backend: Backend, handles: &[String; 3], exited: bool) {
    report.assert_holds(pid, EIGHT_MIB, 1);
    let process = report.process(pid);
    assert_eq!(process["peak_bytes"], 3 * EIGHT_MIB);
    assert_eq!(process["comm"], backend.program());
    assert_eq!(process["uid"], 0);
    assert_eq!(process["exited"], exited);
    let block = report.allocations(pid)[0];
    assert_eq!(block["bytes"], EIGHT_MIB);
    assert_eq!(block["api"], backend.allocates_with());
    assert_eq!(block["kind"], "device");
    assert_eq!(report.thread(pid, pid)["comm"], backend.program());
    let expected = [
        (1, 1250, [7, 65535, 3], [32, 4, 2]),
        (0, 1000, [80, 1, 1], [128, 1, 1]),
        (2, 750, [2_147_483_647, 5, 65535], [1, 1024, 1]),
    ];
    let kernels = report.kernels(pid);
    assert_eq!(kernels.len(), 3, "{kernels:#?}");
    for ((number, launches, grid, block), kernel) in expected.into_iter().zip(kernels) {
        let (mangled, name) = KERNELS[number];
        for (key, expected) in [
            ("mangled", json!(mangled)),
            ("name", json!(name)),
            ("handle", json!(handles[number])),
            ("launches", json!(launches)),
            ("captured_launches", json!(0)),
            ("grid", json!(grid)),
            ("block", json!(block)),
            ("api", json!("cuLaunchKernel")),
            ("comm", json!(backend.program())),
            ("uid", json!(0)),
            ("exited", json!(exited)),
        ] {
            assert_eq!(kernel[key], expected, "{key} of {name}");
        }
    }
}

/// Asserts that the report has the work of one workload of each backend and nothing else.
fn check_sum(report: &Report) {
    report.assert_totals(Totals {
        alloc_calls: 12,
        free_calls: 8,
        live_bytes: 4 * EIGHT_MIB,
        live_allocations: 4,
        ..Totals::default()
    });
    report.assert_calls(&[("cudaMalloc", 6), ("cuMemAlloc_v2", 6)]);
    assert_eq!(report.launches(), [12_000, 0, 0]);
    report.assert_launch_calls(&[("cuLaunchKernel", 12_000)]);
}

fn load_if_needed(copy: &OwnCopy, backend: Backend, talk: &mut Talk) {
    if backend == Backend::Dlopen {
        talk.say(&format!("load {}", copy.standin().runtime()));
    }
}

fn started(copy: &OwnCopy, backend: Backend) -> Workload {
    let mut workload = Workload::of(copy, backend);
    load_if_needed(copy, backend, &mut workload);
    workload
}

/// The names of its kernels are queried before gpuprobe attaches.
fn started_early(copy: &OwnCopy, backend: Backend) -> Workload {
    let mut workload = started(copy, backend);
    // The static runtime opens the driver at its first call.
    workload.play("freenull; launch 0 5; launch 1 5; launch 2 5");
    workload
}

pub(crate) fn started_by_us(kind: &str) {
    let copy = OwnCopy::for_attach(kind);
    let mut session = Session::start(|setup| {
        let setup = setup.modes(MODES).without_stacks();
        setup.args(["--attach", kind])
    });
    let run = Backend::ALL.map(|backend| {
        let mut member = session.program(&copy.standin().program_text(backend));
        load_if_needed(&copy, backend, &mut member);
        let handles = work(&mut member);
        (backend, handles, session.done(member).pid)
    });
    let (report, truth) = session.end();
    report.assert_totals(truth);
    assert_eq!(truth.launches, 12_000);
    check_sum(&report);
    for (backend, handles, pid) in run {
        check(&report, pid, backend, &handles, true);
    }
}

pub(crate) fn attached_late(kind: &str) {
    let copy = OwnCopy::for_attach(kind);
    let mut workloads = Backend::ALL.map(|backend| started_early(&copy, backend));
    let setup =
        Setup::pids_without_stacks(workloads.iter().map(|workload| workload.pid)).modes(MODES);
    let mut gpuprobe = setup.args(["--attach", kind]).start();
    let handles = workloads.each_mut().map(|workload| work(workload));
    let report = gpuprobe.stop();
    check_sum(&report);
    for ((workload, backend), handles) in workloads.iter().zip(Backend::ALL).zip(&handles) {
        check(&report, workload.pid, backend, handles, false);
    }
}

pub(crate) fn host_wide_with(kind: &str) {
    let _shared = host_wide();
    let copy = OwnCopy::for_attach(kind);
    let mut workloads: Vec<_> = Backend::ALL.map(|b| started_early(&copy, b)).into();
    let setup = Setup::everything().modes(MODES);
    let mut gpuprobe = setup.args(["--attach", kind]).start();
    // Their libraries are already attached to: they are traced from their first call.
    workloads.extend(Backend::ALL.map(|backend| started(&copy, backend)));
    let handles: Vec<_> = workloads.iter_mut().map(|w| work(w)).collect();
    let report = gpuprobe.stop();
    report.assert_nothing_lost_of(workloads.iter().map(|workload| workload.pid));
    let backends = Backend::ALL.into_iter().cycle();
    for ((workload, backend), handles) in workloads.iter_mut().zip(backends).zip(&handles) {
        check(&report, workload.pid, backend, handles, false);
        let truth = workload.status();
        assert_eq!((truth.bytes, truth.live), (EIGHT_MIB, 1));
    }
}

#[test]
fn root_command_is_exact() {
    ["session", "multi"].into_iter().for_each(started_by_us);
}

#[test]
fn root_late_attach_is_exact() {
    ["session", "multi"].into_iter().for_each(attached_late);
}

#[test]
fn root_host_wide_is_exact() {
    ["session", "multi"].into_iter().for_each(host_wide_with);
}
