//! Large numbers of live allocations, of one kind and of many.

use std::collections::HashSet;

use crate::harness::Backend::{self, Driver, PerThread, Shared, Static};
use crate::harness::report::list;
use crate::memory::{STEP, ScriptRun, check};

const MANY: &str = "alloc 512 4000; managed 256 3000; pitched 64 4 3000; pinned 64 2000; \
     hostalloc 64 1000; register 64 1000; async 128 4000; vcreate 2097152 1000; \
     vcreate 2097152 200 host; extimport 64; vexpand 2097152 799 keep";

fn check_crowd(backend: Backend) {
    let run = ScriptRun::start(backend, &[]).play(MANY);
    let pid = run.pid;
    let whole = "device 2048000 in 4000, managed 768000 in 3000, pitched 6144000 in 3000, \
                 pinned 192000 in 3000, registered 64000 in 1000, async 512000 in 4000, \
                 vmm 4192206848 in 1999, imported 64 in 1";
    let mut run = run;
    let truth = run.gpuprobe.talk.status();
    run.gpuprobe.interrupt();
    let report = run.gpuprobe.final_report();
    check(&report, truth, whole, "20,000 live");
    let all = report.allocations(pid);
    assert_eq!(all.len(), 20_000);
    let key = |a: &&serde_json::Value| {
        let handle = a.get("handle").unwrap_or(&a["address"]);
        format!("{} {handle}", a["kind"])
    };
    assert_eq!(all.iter().map(key).collect::<HashSet<_>>().len(), 20_000);
    assert_eq!(list(report.process(pid), "threads").len(), 1);
}

#[test]
fn root_20_000_live_allocations_of_many_kinds() {
    for backend in [Shared, Static, Driver, PerThread] {
        check_crowd(backend);
    }
}

#[test]
fn root_20_000_pointers_of_many_kinds_come_and_go() {
    for backend in [Shared, Driver] {
        let run = ScriptRun::start(backend, &[]).play(MANY);
        let run = run.play("thread a; @a freeall; @a vfreeall; kfreeall; alloc 1");
        let (report, truth) = run.end();
        check(&report, truth, "device 1 in 1", "all is freed");
        assert_eq!((truth.allocs, truth.frees), (20_001, 20_000));
        assert!(report["memleak"]["peak_bytes"].as_u64().unwrap() > STEP * 1799);
    }
    let (report, truth) = ScriptRun::start(Shared, &[]).play(MANY).play("reset").end();
    let survivors = "async 512000 in 4000, vmm 4192206848 in 1999, imported 64 in 1";
    check(&report, truth, survivors, "a reset");
}

/// So many that gpuprobe looks ahead in its ring.
#[test]
fn root_400_000_allocations_come_and_go() {
    let steps = "alloc 512 400000; free 1000 150000; alloc 64 50000; free 200000 100000";
    let (report, truth) = ScriptRun::start(Shared, &[]).play(steps).end();
    assert_eq!((truth.allocs, truth.frees), (450_000, 250_000));
    check(&report, truth, "device 80000000 in 200000", "many live");
}
