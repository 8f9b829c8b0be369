//! Kernel names.

use super::{KERNELS, LAUNCHES, name, traced, traced_by};
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
fn root_short_lived_process_has_kernel_names() {
    let program = standin().program_text(Backend::Driver);
    let run = format!("{program} -c 'launch 0 5; launch 3 7; exit' >&2\n").repeat(20);
    let mut gpuprobe = Setup::command(["sh", "-c", &run]).modes(LAUNCHES).start();
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    assert_eq!(report.launches(), [240, 0, 0]);
    let kernels = crate::harness::report::list(&report["cudatrace"], "kernels");
    for (number, launches) in [(0, 5), (3, 7)] {
        let named = kernels.iter().filter(|kernel| {
            kernel["name"] == name(number)
                && kernel["mangled"] == KERNELS[number].0
                && kernel["launches"] == launches
                && kernel["exited"] == true
        });
        assert_eq!(named.count(), 20, "{kernels:#?}");
    }
    assert_eq!(kernels.len(), 40);
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
fn root_passed_names_do_not_depend_on_the_handle() {
    for layout in ["driver", "other", "text", "wrong"] {
        for backend in [Backend::Shared, Backend::Static, Backend::Driver] {
            let setup = Setup::command([standin().program_text(backend)]).env(LAYOUT, layout);
            let commands = ["launch 0 5", "launch 1 6", "launch 2 7"];
            let traced = traced_by(setup, &commands);
            let mut expected = [(name(0), 5), (name(1), 6), (name(2), 7)];
            expected.sort_unstable();
            assert_eq!(
                traced.report.launched(traced.pid),
                expected,
                "{layout} {backend:?}"
            );
        }
    }
}

#[test]
fn root_handle_without_a_passed_name_has_its_own() {
    // cuKernelGetFunction creates a handle whose name is not queried.
    for (layout, named) in [
        ("driver", true),
        ("other", false),
        ("text", false),
        ("wrong", false),
    ] {
        let setup = Setup::command([standin().program_text(Backend::Driver)]);
        let commands = ["module _Z5givenPf via=function", "launch _Z5givenPf 8"];
        let traced = traced_by(setup.env(LAYOUT, layout), &commands);
        let handle = said(&traced.replies[1], "handle");
        if named {
            let kernel = traced.report.kernel(traced.pid, "given(float*)");
            assert_eq!(kernel["handle"], handle);
            assert_eq!(kernel["launches"], 8);
        } else {
            check_unnamed(&traced.report, traced.pid, handle, 8);
        }
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
fn root_reused_handle_has_its_new_name() {
    for via in ["module", "library", "function"] {
        let mut workload = Workload::start(Backend::Driver);
        workload.say(&format!("module _Z3oldPf via={via}"));
        let mut gpuprobe = Setup::pid(workload.pid).modes(LAUNCHES).start();
        let old = workload.say("launch _Z3oldPf 5");
        workload.say("unload 0");
        workload.say(&format!("module _Z3newPf via={via}"));
        let new = workload.say("launch _Z3newPf 7");
        assert_eq!(said(&old, "handle"), said(&new, "handle"));
        let report = gpuprobe.stop();
        report.assert_nothing_lost();
        let expected = [("new(float*)", 7), ("old(float*)", 5)];
        assert_eq!(report.launched(workload.pid), expected, "via={via}");
    }
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

#[test]
fn root_library_kernels_are_named_by_every_load_function() {
    for via in ["module", "library", "function"] {
        let module = format!("module _Z1aPf _Z1bPi plain via={via}");
        let commands = [&module, "launch all 4", "launch plain 3"];
        let traced = traced(Backend::Driver, &[], &commands);
        let expected = [("a(float*)", 4), ("b(int*)", 4), ("plain", 7)];
        assert_eq!(traced.report.launched(traced.pid), expected, "via={via}");
    }
}
