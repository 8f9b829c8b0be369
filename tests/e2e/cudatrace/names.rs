//! Kernel names.

use super::{KERNELS, LAUNCHES, name, traced_by, traced_together};
use crate::harness::{Backend, Report, Setup, Workload, said, standin};

const LAYOUT: &str = "STANDIN_HANDLE_LAYOUT";

/// A kernel without a name is shown by its handle.
fn check_unnamed(report: &Report, pid: u32, handle: &str, launches: u64) {
    let kernel = report.kernel(pid, handle);
    assert!(kernel["mangled"].is_null(), "{kernel}");
    assert_eq!(kernel["handle"], handle);
    assert_eq!(kernel["launches"], launches);
}

#[test]
fn root_kernels_of_a_command_have_their_names() {
    let backends = [Backend::Shared, Backend::Static, Backend::Driver];
    let layouts = ["driver", "other", "text", "wrong"].map(|l| (l, format!("{LAYOUT}={l}")));
    let mut rows: Vec<(&str, Backend, &[&str])> = Vec::new();
    // Short-lived processes.
    rows.extend([("", Backend::Driver, &["launch 0 5", "launch 3 7"][..]); 20]);
    // Names that a program passes do not depend on the handle; cuKernelGetFunction creates one
    // whose name is not queried.
    for (_, settings) in &layouts {
        for backend in backends {
            rows.push((
                settings,
                backend,
                &["launch 0 5", "launch 1 6", "launch 2 7"],
            ));
        }
        let commands = &["module _Z5givenPf via=function", "launch _Z5givenPf 8"];
        rows.push((settings, Backend::Driver, commands));
    }
    let ways = ["module", "library", "function"].map(|via| {
        let load = |kernels: &str| format!("module {kernels} via={via}");
        [
            load("_Z1aPf _Z1bPi plain"),
            load("_Z3oldPf"),
            load("_Z3newPf"),
        ]
    });
    let ways: Vec<_> = ways
        .iter()
        .map(|[several, old, new]| {
            (
                [several.as_str(), "launch all 4", "launch plain 3"],
                [
                    old.as_str(),
                    "launch _Z3oldPf 5",
                    "unload 0",
                    new.as_str(),
                    "launch _Z3newPf 7",
                ],
            )
        })
        .collect();
    for (several, reused) in &ways {
        rows.push(("", Backend::Driver, several));
        rows.push(("", Backend::Driver, reused));
    }
    let (report, rows) = traced_together(&[], &rows);
    let (short, rows) = rows.split_at(20);
    for row in short {
        for (number, launches) in [(0, 5), (3, 7)] {
            let kernel = report.kernel(row.pid, name(number));
            assert_eq!(kernel["mangled"], KERNELS[number].0);
            assert_eq!(kernel["launches"], launches);
            assert_eq!(kernel["exited"], true);
        }
        assert_eq!(report.kernels(row.pid).len(), 2);
    }
    let (by_layout, loaded) = rows.split_at(4 * layouts.len());
    for (rows, (layout, _)) in by_layout.chunks(4).zip(&layouts) {
        let mut expected = [(name(0), 5), (name(1), 6), (name(2), 7)];
        expected.sort_unstable();
        for row in &rows[..3] {
            assert_eq!(report.launched(row.pid), expected, "{layout}");
        }
        let handle = said(&rows[3].replies[1], "handle");
        if *layout == "driver" {
            let kernel = report.kernel(rows[3].pid, "given(float*)");
            assert_eq!(kernel["handle"], handle);
            assert_eq!(kernel["launches"], 8);
        } else {
            check_unnamed(&report, rows[3].pid, handle, 8);
        }
    }
    for rows in loaded.chunks(2) {
        let expected = [("a(float*)", 4), ("b(int*)", 4), ("plain", 7)];
        assert_eq!(report.launched(rows[0].pid), expected);
        // A handle that is used again has its new name.
        let [old, new] = [1, 4].map(|reply: usize| said(&rows[1].replies[reply], "handle"));
        assert_eq!(old, new);
        let expected = [("new(float*)", 7), ("old(float*)", 5)];
        assert_eq!(report.launched(rows[1].pid), expected);
    }
}

#[test]
fn root_impossible_names_of_a_handle_are_dropped() {
    for layout in ["other", "text"] {
        let settings = [(LAYOUT, layout)];
        let mut workload = Workload::spawn(&mut Workload::command(Backend::Driver, &settings));
        workload.say("launch 0");
        let mut gpuprobe = Setup::pid(workload.pid).modes(LAUNCHES).start();
        let reply = workload.say("launch 0 5");
        // A name that the program passes needs no handle.
        workload.say("module _Z5givenPf");
        workload.say("launch _Z5givenPf 6");
        let report = gpuprobe.stop();
        report.assert_nothing_lost();
        check_unnamed(&report, workload.pid, said(&reply, "handle"), 5);
        assert_eq!(report.kernel(workload.pid, "given(float*)")["launches"], 6);
    }
}

#[test]
fn root_wrong_names_are_dropped_at_the_first_contradiction() {
    let settings = [(LAYOUT, "wrong")];
    let mut workload = Workload::spawn(&mut Workload::command(Backend::Driver, &settings));
    workload.say("launch 0");
    workload.say("launch 1");
    let pid = workload.pid;
    let mut gpuprobe = Setup::pid(pid).modes(LAUNCHES).interval("50ms").start();
    let handle = said(&workload.say("launch 0 5"), "handle").to_owned();
    // No contradiction has been seen yet.
    let report = gpuprobe.report_where("the first launches", |r| r.launches() == [5, 0, 0]);
    let wrong = "otherKernel(float*, int)";
    assert_eq!(report.launched(pid), [(wrong, 5)]);
    workload.say("module _Z5givenPf via=module");
    let second = said(&workload.say("launch 1 3"), "handle").to_owned();
    workload.say("launch _Z5givenPf 6");
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    check_unnamed(&report, pid, &handle, 5);
    check_unnamed(&report, pid, &second, 3);
    assert_eq!(report.kernel(pid, "given(float*)")["launches"], 6);
    assert_eq!(report.kernels(pid).len(), 3);
}

#[test]
fn root_repeatedly_reused_handle_has_all_its_names() {
    let mut commands = Vec::new();
    for round in 0..50 {
        commands.push(format!("module _Z9kernel_{round:02}Pf"));
        commands.push(format!("launch _Z9kernel_{round:02}Pf {}", round + 1));
        commands.push(format!("unload {round}"));
    }
    let commands: Vec<_> = commands.iter().map(String::as_str).collect();
    let setup = Setup::command([standin().program_text(Backend::Driver)]);
    let traced = traced_by(setup.interval("20ms"), &commands);
    let launched = traced.report.launched(traced.pid);
    let expected: Vec<_> = (0..50u64)
        .map(|round| (format!("kernel_{round:02}(float*)"), round + 1))
        .collect();
    let expected: Vec<_> = expected.iter().map(|(n, c)| (n.as_str(), *c)).collect();
    assert_eq!(launched, expected);
}
