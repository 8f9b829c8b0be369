//! `--kind`: sums and lists have the selected kinds only.

use super::EVERY_KIND;
use crate::harness::report::{list, number};
use crate::harness::{Backend, Setup};

/// Asserts that the report has exactly the kinds in `names`.
fn check_filtered(arguments: &[&str], names: &[&str]) {
    let kinds = arguments.iter().flat_map(|kind| ["--kind", kind]);
    let mut run = Setup::workload(Backend::Shared).args(kinds).run(EVERY_KIND);
    let (report, truth) = (run.report(), run.truth);
    report.assert_nothing_lost();
    let mut expected = truth.kinds();
    expected
        .as_object_mut()
        .unwrap()
        .retain(|kind, _| names.contains(&kind.as_str()));
    let memleak = &report["memleak"];
    assert_eq!(memleak["kinds"], expected, "{arguments:?}");
    assert_eq!(report.process(run.pid)["kinds"], expected);
    let listed = report.allocations(run.pid);
    assert!(
        listed
            .iter()
            .all(|a| names.contains(&a["kind"].as_str().unwrap()))
    );
    let sum: u64 = names.iter().map(|name| truth.kind(name).bytes).sum();
    let keys = ["live_bytes", "host_bytes", "imported_bytes"];
    assert_eq!(
        keys.map(|key| number(memleak, key)).iter().sum::<u64>(),
        sum
    );
    // Calls are counted for all kinds.
    assert_eq!(memleak["alloc_calls"], truth.allocs);
    assert_eq!(memleak["free_calls"], truth.frees);
}

#[test]
fn root_only_selected_kinds_are_reported() {
    check_filtered(&["device,pinned"], &["device", "pinned"]);
    check_filtered(&["vmm", "imported,graph"], &["vmm", "imported", "graph"]);
    check_filtered(
        &["pitched,array,managed,registered,async,static"],
        &[
            "pitched",
            "array",
            "managed",
            "registered",
            "async",
            "static",
        ],
    );
}

#[test]
fn root_peaks_are_of_the_kinds_that_are_reported() {
    let setup = Setup::workload(Backend::Driver).args(["--kind", "managed"]);
    let report = setup.run("alloc 1000 5; managed 10 3; kfree 0 2").report();
    assert_eq!(report["memleak"]["peak_bytes"], 30);
    let process = &list(&report["memleak"], "processes")[0];
    assert_eq!(process["peak_bytes"], 30);
    assert_eq!(process["live_bytes"], 10);
}
