//! Memory of other processes and of other APIs: listed, and not counted twice.

use super::{Rows, ScriptRun, left, only};
use crate::harness::Backend::{self, Driver, PerThread, Shared, Static};
use crate::harness::report::number;
use crate::harness::{Workload, standin};

/// A program that allocates memory and exports it; returns its handle.
fn exporter(backend: Backend, offset: u64) -> (Workload, String) {
    let mut exporter = Workload::start(backend);
    exporter.say("alloc 10000");
    let handle = exporter.say(&format!("ipcget 0 {offset}"));
    (exporter, handle)
}

#[test]
fn root_imported_memory_is_listed_and_not_in_the_sums() {
    let mut rows = Rows::start(&[]);
    for backend in [Shared, Driver, PerThread, Static] {
        // A handle of its middle refers to all of it.
        let (_exporter, handle) = exporter(backend, 5000);
        let open = format!("ipcopen {handle}");
        rows.after(
            &[backend],
            &open,
            &[
                " => imported 10000 in 1",
                &format!("; {open} => imported 10000 in 1"),
                &format!("; {open}; ipcclose 0 => imported 10000 in 1"),
                &format!("; {open}; ipcclose 0; ipcclose 0 => nothing"),
                &format!("; ipcclose 0; {open} => imported 10000 in 1"),
                "; ipcclose 0; ipcclose 0 => nothing",
            ],
        );
    }
    let (_exporter, handle) = exporter(Driver, 0);
    let script = format!("alloc 512; ipcopen {handle}");
    rows.play(Driver, &script, |report, row| {
        left("device 512 in 1, imported 10000 in 1")(report, row);
        let process = report.process(row.pid);
        assert_eq!(process["imported_bytes"], 10000);
        assert_eq!(process["peak_bytes"], 512);
        let api = &only(report, row.pid, "imported")["api"];
        assert_eq!(*api, "cuIpcOpenMemHandle_v2");
    });
    let (_exporter, handle) = exporter(Shared, 0);
    for (backend, function) in [
        (Shared, "cudaIpcOpenMemHandle"),
        (Shared, "cuIpcOpenMemHandle_v2"),
        (Driver, "cuIpcOpenMemHandle_v2"),
    ] {
        let open = format!("ipcopen {handle}");
        let script = format!("fail {function} 1 201; {open}; {open}; {open}");
        rows.play(backend, &script, |report, row| {
            assert_eq!((row.truth.allocs, row.truth.failed), (2, 1));
            left("imported 10000 in 1")(report, row);
        });
    }
    // External memory belongs to another API.
    let external: &[&str] = &[
        "extimport 65536 => imported 65536 in 1",
        "extimport 65536; extmap 0 => imported 65536 in 1",
        "extimport 65536; extmap 0 4096 8192; extmap 0 => imported 65536 in 1",
        "extimport 65536; extmap 0; extunmap $extmap => imported 65536 in 1",
        "extimport 65536; extmap 0; extunmap $extmap; extdestroy 0 => nothing",
        "extimport 65536; extdestroy 0; extimport 512 => imported 512 in 1",
    ];
    rows.table(&[Shared, Driver], external);
    rows.table(&[PerThread, Static], &external[3..5]);
    for backend in [Shared, Driver] {
        allocation_of_an_imported_pool(&mut rows, backend);
    }
    // Memory that an exited thread imports gets its size when it is mapped. The thread holds
    // nothing else: its slot must not be used again.
    let script = "vcreate 2097152; vexport 0; thread a; @a vimport $vexport 2097152; join a; \
         vreserve 4194304; vmap 1 0; thread c; @c alloc 100 1; thread d; @d alloc 200 1";
    let expected = left("device 300 in 2, imported 2097152 in 1, vmm 2097152 in 1");
    rows.play(Shared, script, expected);
    rows.end();
}

/// Memory from an imported pool is the exporter's.
fn allocation_of_an_imported_pool(rows: &mut Rows, backend: Backend) {
    let mut run = rows.session.workload(backend);
    let pool = run.say("pool create");
    run.say("poolalloc 0 4096");
    let pointer = run.say("ptrexport 0");
    let fd = run.say(&format!("poolexport {}", pool.split(' ').nth(1).unwrap()));
    let imported = run.say(&format!("poolimport {fd}"));
    run.say(&format!("ptrimport {imported} {pointer} 4096"));
    rows.done(run, "an imported pool", |report, row| {
        left("async 4096 in 1, imported 4096 in 1")(report, row);
        let api = &only(report, row.pid, "imported")["api"];
        assert_eq!(*api, "cuMemPoolImportPointer");
    });
}

#[test]
fn root_two_traced_processes_share_memory() {
    for backend in [Shared, Driver] {
        let mut run = ScriptRun::start(backend, &[]);
        run.say("alloc 10000");
        let handle = run.say("ipcget 0");
        let child = standin().program_text(backend);
        let script = format!("ipcopen {handle}; ipcopen {handle}; ipcclose 0; alloc 64; exit");
        let reply = run.say(&format!("forkexec {child} -c '{script}'"));
        let (importer, status) = reply.split_once(' ').unwrap();
        assert_eq!(status, "status=0");
        let pid = run.pid;
        let (report, _) = run.end();
        report.assert_nothing_lost();
        let memleak = &report["memleak"];
        for (key, expected) in [
            ("alloc_calls", 4),
            ("free_calls", 1),
            ("live_bytes", 10064),
            ("live_allocations", 2),
            ("imported_bytes", 10000),
            ("imported_allocations", 1),
        ] {
            assert_eq!(memleak[key], expected, "{key}");
        }
        report.assert_holds(pid, 10000, 1);
        let importer = importer.parse().unwrap();
        report.assert_holds(importer, 64, 1);
        assert_eq!(only(&report, importer, "imported")["bytes"], 10000);
    }
}

#[test]
fn root_physical_memory_goes_to_a_child() {
    let mut run = ScriptRun::start(Driver, &[]);
    run.say("vcreate 2097152");
    let fd = run.say("vexport 0");
    let reply = run.say(&format!(
        "fork vimport {fd} 2097152 | vreserve 2097152 | vmap 1 0"
    ));
    let pid = run.pid;
    let (report, truth) = run.end();
    report.assert_nothing_lost();
    assert_eq!(truth.kind("vmm").bytes, 2 << 20, "{reply}");
    report.assert_holds(pid, 2 << 20, 1);
    let memleak = &report["memleak"];
    assert_eq!(memleak["live_bytes"], 2 << 20);
    assert_eq!(number(memleak, "imported_allocations"), 1, "{reply}");
}
