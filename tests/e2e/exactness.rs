//! Every call is counted once, by every API layer and attach mode.

use crate::harness::report::Totals;
use crate::harness::{Backend, OwnCopy, Report, Session, Setup, Workload, host_wide};

const EIGHT_MIB: u64 = 8 << 20;

/// Three blocks of 8 MiB, two of them freed.
fn leak_one(talk: &mut crate::harness::talk::Talk) {
    talk.say("alloc 8388608 3");
    talk.say("free 0 2");
}

fn check_leak(report: &Report, pid: u32, backend: Backend) {
    report.assert_holds(pid, EIGHT_MIB, 1);
    assert_eq!(report.process(pid)["peak_bytes"], 3 * EIGHT_MIB);
    assert_eq!(report.process(pid)["comm"], backend.program());
    assert_eq!(report.process(pid)["uid"], 0);
    let block = report.allocations(pid)[0];
    assert_eq!(block["bytes"], EIGHT_MIB);
    assert_eq!(block["api"], backend.allocates_with());
    assert_eq!(block["kind"], "device");
    assert_eq!(report.thread(pid, pid)["comm"], backend.program());
}

/// Asserts that the report has every backend's calls and no others.
fn check_sum(report: &Report) {
    report.assert_totals(Totals {
        alloc_calls: 12,
        free_calls: 8,
        live_bytes: 4 * EIGHT_MIB,
        live_allocations: 4,
        ..Totals::default()
    });
    report.assert_calls(&[("cudaMalloc", 6), ("cuMemAlloc_v2", 6)]);
}

fn load_if_needed(copy: &OwnCopy, backend: Backend, talk: &mut crate::harness::talk::Talk) {
    if backend == Backend::Dlopen {
        talk.say(&format!("load {}", copy.standin().runtime()));
    }
}

pub(crate) fn started_by_us(kind: &str) {
    let copy = OwnCopy::for_attach(kind);
    let mut session = Session::start(|setup| setup.without_stacks().args(["--attach", kind]));
    let run = Backend::ALL.map(|backend| {
        let mut member = session.program(&copy.standin().program_text(backend));
        load_if_needed(&copy, backend, &mut member);
        leak_one(&mut member);
        (backend, session.done(member).pid)
    });
    let (report, truth) = session.end();
    report.assert_totals(truth);
    check_sum(&report);
    for (backend, pid) in run {
        check_leak(&report, pid, backend);
        assert_eq!(report.process(pid)["exited"], true);
    }
}

pub(crate) fn attached_late(kind: &str) {
    let copy = OwnCopy::for_attach(kind);
    let mut workloads = Backend::ALL.map(|backend| {
        let mut workload = Workload::of(&copy, backend);
        load_if_needed(&copy, backend, &mut workload);
        // The static runtime opens the driver at its first call.
        workload.say("freenull");
        (backend, workload)
    });
    let pids = workloads
        .each_ref()
        .map(|(_, workload)| workload.pid.to_string());
    let setup = Setup::everything().without_stacks();
    let setup = setup.args(pids.iter().flat_map(|pid| ["--pid", pid]));
    let mut gpuprobe = setup.args(["--attach", kind]).start();
    for (_, workload) in &mut workloads {
        leak_one(workload);
    }
    let report = gpuprobe.stop();
    check_sum(&report);
    for (backend, workload) in &workloads {
        check_leak(&report, workload.pid, *backend);
        assert_eq!(report.process(workload.pid)["exited"], false);
    }
}

pub(crate) fn host_wide_with(kind: &str) {
    let _shared = host_wide();
    let copy = OwnCopy::for_attach(kind);
    let start = |backend| {
        let mut workload = Workload::of(&copy, backend);
        load_if_needed(&copy, backend, &mut workload);
        workload
    };
    let mut workloads: Vec<_> = Backend::ALL.map(|b| (b, start(b))).into();
    for (_, workload) in &mut workloads {
        workload.say("freenull");
    }
    let mut gpuprobe = Setup::everything().args(["--attach", kind]).start();
    // Their libraries are already attached to: they are traced from their first call.
    workloads.extend(Backend::ALL.map(|b| (b, start(b))));
    for (_, workload) in &mut workloads {
        leak_one(workload);
    }
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    for (backend, workload) in &mut workloads {
        check_leak(&report, workload.pid, *backend);
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
