//! Memory that is freed with its context, and memory that is not.

use std::process::Command;

use super::{Rows, kinds, left};
use crate::harness::Backend::{self, Driver};
use crate::harness::report::{list, number};
use crate::harness::{Setup, Truth, Workload, standin};

/// Memory of every kind that is freed with its context, and memory that survives it.
const MEMORY: &str = "alloc 512 2; pitched 100 10; managed 1000; pinned 4096; hostalloc 100; \
     register 8192; array 64 32 0 4 8; mipmap 64 64 0 3 4 8; module m v=64; symbol v; \
     async 64; vcreate 2097152";
const SURVIVES: &str = "async 64 in 1, vmm 2097152 in 1";

#[test]
fn root_memory_ends_with_its_context() {
    let mut rows = Rows::start(&[]);
    // A reset frees all but stream-ordered and physical memory.
    rows.after(&[Driver], MEMORY, &[&format!("; reset => {SURVIVES}")]);
    // Symbols of the runtime belong to libraries, which have their variables again at the next
    // query.
    for backend in Backend::LINKED {
        let script = format!("{MEMORY}; reset; alloc 64; array 8 8 0 1 8; kfree 8; vrelease 9");
        rows.play(backend, &script, |report, row| {
            left("device 64 in 1, array 64 in 1")(report, row);
            assert_eq!(row.truth.frees, 2);
        });
    }
    let own = MEMORY.replace("module m v=64; symbol v; ", "");
    rows.after(
        &[Driver],
        "alloc 4096; array 8 8 0 1 8; ",
        &[
            &format!("ctx create; {own}; ctx destroy 0 => device 4096 in 1, array 64 in 1, async 64 in 1, vmm 2097152 in 1"),
            // A context that is not current, and one of several.
            "ctx create; alloc 64; ctx pop; alloc 32; ctx destroy 0 => device 4128 in 2, array 64 in 1",
            "ctx create; alloc 64; ctx create; alloc 8; ctx destroy 0 => device 4104 in 2, array 64 in 1",
            "ctx create; alloc 64; ctx pop; ctx push 0; managed 8; ctx pop; ctx set 0; \
                 pinned 8; ctx destroy 0 => device 4096 in 1, array 64 in 1",
            // A reset destroys the primary context only.
            "ctx create; alloc 64; reset => device 64 in 1",
        ],
    );
    // Memory outlives its context to be freed.
    let outlives = "ctx create; async 64; vcreate 2097152; vreserve 2097152; vmap 1 0; \
                    ctx destroy 0; afree 0; vunmap $vmap 2097152; vrelease 1; alloc 8 => device 8 in 1";
    rows.table(&[Driver], &[outlives]);
    // The memory of green contexts is the primary one's, which they keep.
    rows.after(
        &[Driver],
        "alloc 64; green create 0; green create 0; green set 0; alloc 512; managed 8; ",
        &[
            "green destroy 0; alloc 1 => device 577 in 3, managed 8 in 1",
            "ctx create; alloc 32; ctx destroy 0; green set 1; alloc 2 => device 578 in 3, managed 8 in 1",
            "reset => nothing",
        ],
    );
    // The last release ends the primary context.
    rows.after(
        &[Driver],
        &format!("{MEMORY}; primary retain; "),
        &[
            &format!("primary release; primary release => {SURVIVES}"),
            &format!(
                "primary retain; primary release; primary release; primary release => {SURVIVES}"
            ),
        ],
    );
    let script = format!("{MEMORY}; primary retain; primary release");
    rows.play(Driver, &script, |_, row| {
        let kinds = row.truth.kinds();
        assert_eq!(kinds.as_object().unwrap().len(), 9, "nothing ended");
    });
    threads_have_contexts_of_their_own(&mut rows);

    for backend in Backend::LINKED {
        let script = "alloc 1000; pinned 64; setdevice 1; alloc 200; managed 5; array 8 8 0 1 8; \
                      setdevice 2; alloc 30; setdevice 1; reset; alloc 4";
        rows.play_with("STANDIN_DEVICES=3", backend, script, |report, row| {
            left("device 1034 in 3, pinned 64 in 1")(report, row);
            let devices = list(report.process(row.pid), "devices").iter();
            let bytes: Vec<_> = devices.map(|d| number(d, "bytes")).collect();
            assert_eq!(bytes, [1000, 4, 30]);
        });
    }
    let script = "ctx create 1; alloc 512; pitched 100 10; setdevice 0; alloc 64; managed 8; \
                  ctx create 0; alloc 16; ctx destroy 0";
    rows.play_with("STANDIN_DEVICES=2", Driver, script, |report, row| {
        left("device 80 in 2, managed 8 in 1")(report, row);
        let devices = list(report.process(row.pid), "devices");
        assert_eq!(devices.len(), 1, "device 1 is empty");
    });
    rows.end();
}

fn threads_have_contexts_of_their_own(rows: &mut Rows) {
    let mut run = rows.session.workload(Driver);
    for thread in ["a", "b", "c"] {
        run.say(&format!("thread {thread}"));
        run.say(&format!("@{thread} ctx create"));
    }
    for (thread, bytes) in [("a", 1000), ("b", 200), ("c", 30), ("a", 4)] {
        run.say(&format!("@{thread} alloc {bytes} 100"));
        run.say(&format!("@{thread} managed {bytes}"));
        run.say(&format!("@{thread} async {bytes}"));
    }
    // By its own thread, and by others.
    run.play("alloc 7; @b ctx destroy 1; ctx destroy 0; @b alloc 5");
    rows.done(run, "context 2 is left", |report, row| {
        left("device 3012 in 102, managed 30 in 1, async 1234 in 4")(report, row);
        assert_eq!((row.truth.allocs, row.truth.frees), (410, 0));
    });
}

#[test]
fn root_device_reset_after_late_attach() {
    // After a late attach, its device is known only if there is no other.
    let mut workloads = Backend::LINKED.map(|backend| {
        let program = standin().program(backend);
        let words = ["CUDA_VISIBLE_DEVICES=0", program.to_str().unwrap()];
        let mut workload = Workload::spawn(Command::new("env").args(words));
        workload.say("synchronize");
        workload
    });
    let mut gpuprobe = Setup::pids_without_stacks(workloads.each_ref().map(|w| w.pid)).start();
    for workload in &mut workloads {
        workload.play(MEMORY);
        workload.play("reset; managed 512");
    }
    let report = gpuprobe.stop();
    let expected = kinds(&format!("managed 512 in 1, {SURVIVES}"));
    let mut sum = Truth::default();
    for (workload, backend) in workloads.iter_mut().zip(Backend::LINKED) {
        let truth = workload.status();
        assert_eq!(truth.kinds(), expected, "{backend:?}");
        let process = report.process(workload.pid);
        assert_eq!(process["kinds"], expected, "{backend:?}");
        sum = sum + truth;
    }
    report.assert_kinds(sum);
}
