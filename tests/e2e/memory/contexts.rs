//! Memory that is freed with its context, and memory that is not.

use std::process::Command;

use super::{MemoryRow, STEP, ScriptRun, check, check_after, check_rows, traced};
use crate::harness::Backend::{self, Driver};
use crate::harness::{Setup, Workload, standin};

/// Memory of every kind that is freed with its context, and memory that survives it.
const MEMORY: &str = "alloc 512 2; pitched 100 10; managed 1000; pinned 4096; hostalloc 100; \
     register 8192; array 64 32 0 4 8; mipmap 64 64 0 3 4 8; module m v=64; symbol v; \
     async 64; vcreate 2097152";
const SURVIVES: &[(&str, u64, u64)] = &[("async", 64, 1), ("vmm", STEP, 1)];

#[test]
fn root_device_reset_frees_all_but_stream_ordered_and_physical_memory() {
    check_after(&[Driver], MEMORY, &[("reset", SURVIVES)]);
    // Symbols of the runtime belong to libraries, which have their variables again at the next
    // query.
    for backend in Backend::LINKED {
        let (report, truth, _) = traced(
            backend,
            &format!("{MEMORY}; reset; alloc 64; array 8 8 0 1 8; kfree 8; vrelease 9"),
        );
        check(
            &report,
            truth,
            &[("device", 64, 1), ("array", 64, 1)],
            "after a reset",
        );
        assert_eq!(truth.frees, 2, "{backend:?}");
    }
}

#[test]
fn root_context_destruction_frees_its_memory() {
    let own = MEMORY.replace("module m v=64; symbol v; ", "");
    let rows: &[MemoryRow<'_>] = &[
        (
            &format!("ctx create; {own}; ctx destroy 0"),
            &[
                ("device", 4096, 1),
                ("array", 64, 1),
                ("async", 64, 1),
                ("vmm", STEP, 1),
            ],
        ),
        // A context that is not current, and one of several.
        (
            "ctx create; alloc 64; ctx pop; alloc 32; ctx destroy 0",
            &[("device", 4128, 2), ("array", 64, 1)],
        ),
        (
            "ctx create; alloc 64; ctx create; alloc 8; ctx destroy 0",
            &[("device", 4104, 2), ("array", 64, 1)],
        ),
        (
            "ctx create; alloc 64; ctx pop; ctx push 0; managed 8; ctx pop; ctx set 0; \
          pinned 8; ctx destroy 0",
            &[("device", 4096, 1), ("array", 64, 1)],
        ),
        // A reset destroys the primary context only.
        ("ctx create; alloc 64; reset", &[("device", 64, 1)]),
    ];
    check_after(&[Driver], "alloc 4096; array 8 8 0 1 8", rows);
}

#[test]
fn root_device_reset_after_late_attach() {
    for backend in Backend::LINKED {
        // After a late attach, its device is known only if there is no other.
        let program = standin().program(backend);
        let words = ["CUDA_VISIBLE_DEVICES=0", program.to_str().unwrap()];
        let mut workload = Workload::spawn(Command::new("env").args(words));
        workload.say("synchronize");
        let mut gpuprobe = Setup::pid(workload.pid).start();
        workload.play(MEMORY);
        workload.play("reset; managed 512");
        let report = gpuprobe.stop();
        let expected = [("managed", 512, 1), SURVIVES[0], SURVIVES[1]];
        check(
            &report,
            workload.status(),
            &expected,
            &format!("{backend:?}"),
        );
    }
}

#[test]
fn root_memory_outlives_its_context_to_be_freed() {
    check_rows(
        &[Driver],
        &[(
            "ctx create; async 64; vcreate 2097152; vreserve 2097152; vmap 1 0; ctx destroy 0; \
             afree 0; vunmap $vmap 2097152; vrelease 1; alloc 8",
            &[("device", 8, 1)],
        )],
    );
}

#[test]
fn root_the_last_release_ends_the_primary_context() {
    let primary = |script: &str| format!("{MEMORY}; primary retain; {script}");
    let rows = [
        (primary("primary release; primary release"), SURVIVES),
        (
            primary("primary retain; primary release; primary release; primary release"),
            SURVIVES,
        ),
    ];
    for (script, expected) in rows {
        check_rows(&[Driver], &[(&script, expected)]);
    }
    let (report, truth, _) = traced(Driver, &primary("primary release"));
    report.assert_kinds(truth);
    assert_eq!(truth.kinds().as_object().unwrap().len(), 9, "nothing ended");
}

#[test]
fn root_threads_have_contexts_of_their_own() {
    let mut run = ScriptRun::start(Driver, &[]);
    for thread in ["a", "b", "c"] {
        run.say(&format!("thread {thread}"));
        run.say(&format!("@{thread} ctx create"));
    }
    for (thread, bytes) in [("a", 1000), ("b", 200), ("c", 30), ("a", 4)] {
        run.say(&format!("@{thread} alloc {bytes} 100"));
        run.say(&format!("@{thread} managed {bytes}"));
        run.say(&format!("@{thread} async {bytes}"));
    }
    run.say("alloc 7");
    // By its own thread, and by others.
    run.say("@b ctx destroy 1");
    run.say("ctx destroy 0");
    run.say("@b alloc 5");
    let (report, truth) = run.end();
    let expected = [
        ("device", 3012, 102),
        ("managed", 30, 1),
        ("async", 1234, 4),
    ];
    check(&report, truth, &expected, "context 2 is left");
    assert_eq!((truth.allocs, truth.frees), (410, 0));
}

#[test]
fn root_devices_are_reset_one_by_one() {
    for backend in Backend::LINKED {
        let setup = Setup::command([standin().program_text(backend)]);
        let run = ScriptRun::of(setup.env("STANDIN_DEVICES", "3")).play(
            "alloc 1000; pinned 64; setdevice 1; alloc 200; managed 5; array 8 8 0 1 8; \
             setdevice 2; alloc 30; setdevice 1; reset; alloc 4",
        );
        let pid = run.pid;
        let (report, truth) = run.end();
        check(
            &report,
            truth,
            &[("device", 1034, 3), ("pinned", 64, 1)],
            "one is reset",
        );
        let devices = report.process(pid)["devices"].as_array().unwrap();
        let bytes: Vec<_> = devices
            .iter()
            .map(|d| d["bytes"].as_u64().unwrap())
            .collect();
        assert_eq!(bytes, [1000, 4, 30], "{backend:?}");
    }
}

#[test]
fn root_a_context_is_of_its_device() {
    let setup = Setup::command([standin().program_text(Driver)]);
    let run = ScriptRun::of(setup.env("STANDIN_DEVICES", "2")).play(
        "ctx create 1; alloc 512; pitched 100 10; setdevice 0; alloc 64; managed 8; \
         ctx create 0; alloc 16; ctx destroy 0",
    );
    let (report, truth) = run.end();
    check(
        &report,
        truth,
        &[("device", 80, 2), ("managed", 8, 1)],
        "device 1 is empty",
    );
    assert_eq!(report["memleak"]["devices"].as_array().unwrap().len(), 1);
}
