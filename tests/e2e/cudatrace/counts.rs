//! Every launch is counted once, with the kernel's name and shape, by every API layer and attach
//! mode.

use serde_json::json;

use super::{KERNELS, LAUNCHES, traced};
use crate::harness::talk::Talk;
use crate::harness::{Backend, OwnCopy, Report, Session, Setup, Workload, host_wide, said};

const BACKENDS: [Backend; 3] = [Backend::Shared, Backend::Static, Backend::Driver];

/// Makes 3,000 launches; returns the launched handles.
fn launch_three(talk: &mut Talk) -> [String; 3] {
    [
        "launch 0 1000 grid=80,1,1 block=128,1,1",
        "launch 1 1250 grid=7,65535,3 block=32,4,2",
        "launch 2 750 grid=2147483647,5,65535 block=1,1024,1",
    ]
    .map(|command| said(&talk.say(command), "handle").to_owned())
}

fn check(report: &Report, pid: u32, backend: Backend, handles: &[String; 3], exited: bool) {
    let expected = [
        (1, 1250, [7, 65535, 3], [32, 4, 2]),
        (0, 1000, [80, 1, 1], [128, 1, 1]),
        (2, 750, [2_147_483_647, 5, 65535], [1, 1024, 1]),
    ];
    let kernels = report.kernels(pid);
    assert_eq!(kernels.len(), 3, "{kernels:#?}");
    for ((number, launches, grid, block), kernel) in expected.into_iter().zip(kernels) {
        let (mangled, name) = KERNELS[number];
        let found = json!([
            kernel["mangled"],
            kernel["name"],
            kernel["handle"],
            kernel["launches"],
            kernel["captured_launches"],
            kernel["grid"],
            kernel["block"],
            kernel["api"],
            kernel["comm"],
            kernel["uid"],
            kernel["exited"],
        ]);
        let expected = json!([
            mangled,
            name,
            handles[number],
            launches,
            0,
            grid,
            block,
            "cuLaunchKernel",
            backend.program(),
            0,
            exited,
        ]);
        assert_eq!(found, expected);
    }
}

/// Asserts that the report has the launches of all backends and no others.
fn check_sum(report: &Report) {
    report.assert_nothing_lost();
    assert_eq!(report.launches(), [9000, 0, 0]);
    report.assert_launch_calls(&[("cuLaunchKernel", 9000)]);
}

pub(crate) fn started_by_us(kind: &str) {
    let copy = OwnCopy::for_attach(kind);
    let mut session = Session::start(|setup| setup.modes(LAUNCHES).args(["--attach", kind]));
    let run = BACKENDS.map(|backend| {
        let mut member = session.program(&copy.standin().program_text(backend));
        let handles = launch_three(&mut member);
        (backend, handles, session.done(member))
    });
    let (report, truth) = session.end();
    assert_eq!(truth.launches, 9000);
    check_sum(&report);
    for (backend, handles, ended) in run {
        check(&report, ended.pid, backend, &handles, true);
    }
}

pub(crate) fn attached_late(kind: &str) {
    let copy = OwnCopy::for_attach(kind);
    // Their names are queried before gpuprobe attaches.
    let mut workloads = BACKENDS.map(|backend| (backend, Workload::of(&copy, backend)));
    for (_, workload) in &mut workloads {
        workload.play("launch 0 5 grid=1,1,1; launch 1 5 grid=1,1,1; launch 2 5 grid=1,1,1");
    }
    let pids = workloads
        .each_ref()
        .map(|(_, workload)| workload.pid.to_string());
    let pids = pids.iter().flat_map(|pid| ["--pid", pid]);
    let setup = Setup::everything().modes(LAUNCHES).args(pids);
    let mut gpuprobe = setup.args(["--attach", kind]).start();
    let handles = workloads
        .each_mut()
        .map(|(_, workload)| launch_three(workload));
    let report = gpuprobe.stop();
    check_sum(&report);
    for ((backend, workload), handles) in workloads.iter_mut().zip(&handles) {
        assert_eq!(workload.status().launches, 3015);
        check(&report, workload.pid, *backend, handles, false);
    }
}

pub(crate) fn host_wide_with(kind: &str) {
    let _shared = host_wide();
    let copy = OwnCopy::for_attach(kind);
    let mut early: Vec<_> = BACKENDS.map(|b| (b, Workload::of(&copy, b))).into();
    for (_, workload) in &mut early {
        workload.say("launch 0");
    }
    let mut gpuprobe = Setup::everything()
        .modes(LAUNCHES)
        .args(["--attach", kind])
        .start();
    early.extend(BACKENDS.map(|b| (b, Workload::of(&copy, b))));
    let handles: Vec<_> = early.iter_mut().map(|(_, w)| launch_three(w)).collect();
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    for ((backend, workload), handles) in early.iter().zip(&handles) {
        check(&report, workload.pid, *backend, handles, false);
    }
}

#[test]
fn root_launches_of_a_command_are_exact() {
    ["session", "multi"].into_iter().for_each(started_by_us);
}

#[test]
fn root_late_attach_launches_are_exact() {
    ["session", "multi"].into_iter().for_each(attached_late);
}

#[test]
fn root_host_wide_launches_are_exact() {
    ["session", "multi"].into_iter().for_each(host_wide_with);
}

#[test]
fn root_every_launch_function_is_seen_in_the_driver() {
    let commands = [
        "launch 0 10 via=kernel grid=1,2,3 block=4,5,6",
        "launch 1 20 via=ex grid=7,8,9 block=10,11,9",
        "launch 2 30 via=coop grid=13,14,15 block=16,17,3",
        "launch 0 40 via=ptsz",
        "launch 1 50 via=ex-ptsz",
        "launch 2 60 via=coop-ptsz",
    ];
    let traced = traced(Backend::Driver, &[], &commands);
    traced.report.assert_launch_calls(&[
        ("cuLaunchKernel", 50),
        ("cuLaunchKernelEx", 70),
        ("cuLaunchCooperativeKernel", 90),
    ]);
    for (number, launches, api, grid, block) in [
        (0, 50, "cuLaunchKernel", [1, 2, 3], [4, 5, 6]),
        (1, 70, "cuLaunchKernelEx", [7, 8, 9], [10, 11, 9]),
        (
            2,
            90,
            "cuLaunchCooperativeKernel",
            [13, 14, 15],
            [16, 17, 3],
        ),
    ] {
        let kernel = traced.report.kernel(traced.pid, super::name(number));
        assert_eq!(kernel["launches"], launches);
        assert_eq!(kernel["api"], api);
        assert_eq!(kernel["grid"], json!(grid));
        assert_eq!(kernel["block"], json!(block));
    }
}

#[test]
fn root_grid_and_block_are_from_the_first_launch() {
    let commands = [
        "launch 3 1 via=ex grid=1,2,3 block=4,5,6",
        "launch 3 9 via=kernel grid=7,7,7 block=8,8,8",
        "launch 3 9 via=ex grid=9,9,9 block=9,9,9",
    ];
    let traced = traced(Backend::Driver, &[], &commands);
    let kernel = traced.report.kernel(traced.pid, super::name(3));
    assert_eq!(kernel["launches"], 19);
    assert_eq!(kernel["grid"], json!([1, 2, 3]));
    assert_eq!(kernel["block"], json!([4, 5, 6]));
}
