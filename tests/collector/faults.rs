//! A misbehaving CUPTI costs records and never disturbs the program.

use std::collections::HashSet;

use gpuprobe_wire::{SETTINGS_VARIABLE, TEXT_MAX, WireSettings, flags};

use crate::harness::standin::standin;
use crate::run::{CollectorRun, CollectorSetup, of};

const WORK: &str = "module k; launch k 200; copy h2d 64 3; alloc 100";

fn with(faults: &str) -> CollectorRun {
    CollectorSetup::new("workload", WORK)
        .faults(faults)
        .run()
        .unharmed()
}

/// Asserts that nothing is collected and that exactly one message contains `text`.
fn off(setup: CollectorSetup, text: &str) {
    let run = setup.run().unharmed().says(text);
    assert_eq!(run.truth("launches"), 200);
    assert!(run.handed.headers.is_empty());
}

#[test]
fn program_runs_on_without_a_working_cupti() {
    let work = || CollectorSetup::new("workload", WORK);
    off(work().faults("in_use"), "another profiler");
    off(work().faults("in_use").version("11.8"), "another profiler");
    off(work().faults("not_initialized"), "NOT_INITIALIZED (15)");
    off(
        work().faults("no_callbacks"),
        "cuptiActivityRegisterCallbacks",
    );
    off(work().faults("old_version"), "older than 11.8");
    let kernels = work().kinds("kernel").faults("refused=10,refused=3");
    let run = kernels.run().unharmed().silent();
    // A second refusal replaces the first: CONCURRENT_KERNEL is enabled instead.
    assert_eq!(of!(run.handed, Kernel).len(), 200);
    let none = work().kinds("memset").faults("refused=2");
    off(none, "cuptiActivityEnable: CUPTI_ERROR_NOT_SUPPORTED (27)");
    let cupti = |file: &str| work().variable("GPUPROBE_CUPTI", standin().path(file));
    off(
        cupti("cupti_lacking/libcupti.so.13"),
        "missing symbol cuptiActivityRegisterCallbacks",
    );
    off(
        cupti("nowhere/libcupti.so.13"),
        "cannot open shared object file",
    );
    off(cupti("libcudart.so.12"), "missing symbol cuptiGetVersion");
}

#[test]
fn invalid_settings_are_reported_and_absent_ones_are_not() {
    let work = || CollectorSetup::new("workload", WORK);
    off(
        work().variable(SETTINGS_VARIABLE, "kinds=colors"),
        "\"colors\": expected one of",
    );
    let run = work().without(SETTINGS_VARIABLE).run().unharmed().silent();
    assert!(run.handed.headers.is_empty());
}

#[test]
fn serialised_kernel_records_are_the_fallback() {
    let setup = CollectorSetup::new("workload", WORK).kinds("kernel,memcpy");
    let run = setup.faults("refused=10").run().unharmed().silent();
    let kernels = of!(run.handed, Kernel);
    assert_eq!(kernels.len(), 200);
    assert!(kernels.iter().all(|kernel| kernel.concurrent == 0));
}

#[test]
fn unsupported_kind_is_reported_and_the_others_are_collected() {
    let run = with("refused=1").says("activity memcpy is not available");
    assert!(of!(run.handed, Memcpy).is_empty());
    assert_eq!(of!(run.handed, Kernel).len(), 200);
}

#[test]
fn records_dropped_by_cupti_are_counted() {
    let whole = with("");
    let run = with("dropped=7");
    let records = |run: &CollectorRun| run.handed.records.len() as u64;
    let dropped = run.handed.last().dropped;
    assert!(dropped > 50);
    assert_eq!(records(&run) + dropped, records(&whole));
    run.handed.complete();
}

/// Runs with buffers so few and small that CUPTI must drop records; asserts that collected and
/// dropped records add up.
#[test]
fn overflowing_buffers_lose_only_counted_records() {
    let setup = CollectorSetup::new("workload", "module k; launchstorm 4 5000")
        .settings(WireSettings {
            buffer_bytes: 64 << 10,
            flush_ms: 60_000,
            ..WireSettings::default()
        })
        .run();
    let run = setup.unharmed();
    let calls = of!(run.handed, Kernel).len() as u64;
    let dropped = run.handed.complete().last().dropped;
    assert!(calls + dropped >= run.truth("launches"));
}

#[test]
fn unreadable_records_are_counted() {
    let run = with("invalid=100");
    assert!(run.handed.last().malformed > 0);
    let run = with("unknown=10");
    let header = *run.handed.complete().last();
    assert!(header.unknown > 20);
    assert_eq!(of!(run.handed, Kernel).len(), 200);
    let run = with("truncated=1");
    assert!(run.handed.complete().last().malformed > 0);
}

#[test]
fn arbitrary_names_are_accepted() {
    for (faults, expected) in [
        ("null_names", 0),
        ("wild_names", 0),
        ("huge_names", TEXT_MAX),
    ] {
        let run = with(faults).silent();
        let kernels = of!(run.handed, Kernel);
        assert_eq!(kernels.len(), 200);
        let names: HashSet<_> = kernels.iter().map(|kernel| kernel.name).collect();
        let lengths: Vec<_> = names
            .iter()
            .map(|name| run.handed.texts.get(name).map_or(0, String::len))
            .collect();
        assert_eq!(lengths, [expected], "{faults}");
    }
}

#[test]
fn missing_cupti_times_are_zero() {
    let run = with("zero_times").silent();
    let kernels = of!(run.handed, Kernel);
    assert!(
        kernels
            .iter()
            .all(|kernel| (kernel.start_ns, kernel.end_ns) == (0, 0))
    );
}

#[test]
fn unknown_cupti_version_gives_the_common_fields() {
    let run = with("strange_version").says("CUPTI 15.0 is newer than this gpuprobe");
    let seen = |run: &CollectorRun| -> Vec<_> {
        let kernels = of!(run.handed, Kernel).into_iter();
        kernels
            .map(|kernel| (kernel.grid, kernel.block, kernel.stream, kernel.name))
            .collect()
    };
    assert_eq!(seen(&run).len(), 200);
    assert_eq!(seen(&run), seen(&with("").silent()));
}

#[test]
fn buffers_completed_at_exit_are_delivered() {
    let run = with("held").silent();
    assert_eq!(of!(run.handed, Kernel).len(), 200);
    run.handed.complete();
}

#[test]
fn cupti_with_fewer_functions_suffices() {
    let bare = standin().path("cupti_bare/libcupti.so.13");
    let setup = CollectorSetup::new("workload", WORK).variable("GPUPROBE_CUPTI", bare);
    let run = setup.run().unharmed().silent();
    assert_eq!(of!(run.handed, Kernel).len(), 200);
    let header = run.handed.complete().last();
    assert_eq!(header.flags & flags::MONOTONIC, 0);
    // The namespace has no clock to read.
    assert_eq!((header.cupti_ns, header.monotonic_ns), (0, 0));
    assert!(run.handed.functions.is_empty());
}
