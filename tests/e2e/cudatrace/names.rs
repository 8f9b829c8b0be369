//! Kernel names.

use super::{KERNELS, LAUNCHES, name, table};
use crate::harness::{Backend, Report, Setup, Workload, said};

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
    // Short-lived processes.
    let mut rows = vec![("", Backend::Driver, "launch 0 5; launch 3 7"); 20];
    // Names that a program passes do not depend on the handle; cuKernelGetFunction creates one
    // whose name is not queried.
    for (_, settings) in &layouts {
        let settings = settings.as_str();
        rows.extend(backends.map(|b| (settings, b, "launch 0 5; launch 1 6; launch 2 7")));
        let script = "module _Z5givenPf via=function; launch _Z5givenPf 8";
        rows.push((settings, Backend::Driver, script));
    }
    let ways = ["module", "library", "function"].map(|via| {
        let several = "module _Z1aPf _Z1bPi plain VIA; launch all 4; launch plain 3";
        let reused = "module _Z3oldPf VIA; launch _Z3oldPf 5; unload 0; module _Z3newPf VIA; \
                      launch _Z3newPf 7";
        [several, reused].map(|script| script.replace("VIA", &format!("via={via}")))
    });
    let ways = ways.iter().flatten();
    rows.extend(ways.map(|script| ("", Backend::Driver, script.as_str())));
    let (report, rows) = table(&[], &rows);
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
fn root_names_of_a_handle_are_dropped_where_they_are_impossible_or_contradicted() {
    let of_layout = |layout| {
        let settings = [(LAYOUT, layout)];
        Workload::spawn(&mut Workload::command(Backend::Driver, &settings))
    };
    let [mut other, mut text, mut wrong] = ["other", "text", "wrong"].map(of_layout);
    let mut reused = Workload::start(Backend::Driver);
    for workload in [&mut other, &mut text, &mut reused] {
        workload.say("launch 0");
    }
    wrong.play("launch 0; launch 1");
    let pids = [&other, &text, &wrong, &reused].map(|workload| workload.pid);
    let setup = Setup::pids_without_stacks(pids).modes(LAUNCHES);
    let mut gpuprobe = setup.interval("20ms").start();

    let first = said(&wrong.say("launch 0 5"), "handle").to_owned();
    // No contradiction has been seen yet.
    let report = gpuprobe.report_where("the first launches", |r| r.launches() == [5, 0, 0]);
    let named = report.launched(wrong.pid);
    assert_eq!(named, [("otherKernel(float*, int)", 5)]);
    // A name that the program passes needs no handle.
    wrong.say("module _Z5givenPf via=module");
    let second = said(&wrong.say("launch 1 3"), "handle").to_owned();
    wrong.say("launch _Z5givenPf 6");

    let impossible = [&mut other, &mut text].map(|workload| {
        let handle = said(&workload.say("launch 0 5"), "handle").to_owned();
        workload.play("module _Z5givenPf; launch _Z5givenPf 6");
        (workload.pid, handle)
    });
    // A handle that is used again and again has all of its names.
    for round in 0..50 {
        let kernel = format!("_Z9kernel_{round:02}Pf");
        let launches = round + 1;
        reused.play(&format!(
            "module {kernel}; launch {kernel} {launches}; unload {round}"
        ));
    }
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    check_unnamed(&report, wrong.pid, &second, 3);
    assert_eq!(report.kernels(wrong.pid).len(), 3);
    for (pid, handle) in impossible.into_iter().chain([(wrong.pid, first)]) {
        check_unnamed(&report, pid, &handle, 5);
        assert_eq!(report.kernel(pid, "given(float*)")["launches"], 6);
    }
    let names = (0..50).map(|round| format!("kernel_{round:02}(float*)"));
    let expected: Vec<_> = names.zip(1..).collect();
    let found = report.launched(reused.pid).into_iter();
    let found: Vec<_> = found
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
    assert_eq!(found, expected);
}
