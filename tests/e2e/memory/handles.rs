//! Handles of physical memory: other devices, imports, handle reuse, and large numbers.

use std::collections::HashSet;

use super::{Rows, STEP, ScriptRun, check, left, of_kind, only};
use crate::harness::report::list;
use crate::harness::{Backend, Setup, Truth, Workload};

#[test]
fn root_handles_of_physical_memory_are_exact() {
    let mut rows = Rows::start(&[]);
    // The device comes from the allocation properties.
    let script = "vcreate 2097152; setdevice 1; vcreate 4194304; async 512; setdevice 0";
    rows.play_with(
        "STANDIN_DEVICES=2",
        Backend::Driver,
        script,
        |report, row| {
            let bytes = |d: &serde_json::Value| (d["device"].as_u64(), d["bytes"].as_u64());
            let devices = list(report.process(row.pid), "devices").iter();
            let devices: Vec<_> = devices.map(bytes).collect();
            assert_eq!(
                devices,
                [(Some(0), Some(STEP)), (Some(1), Some(2 * STEP + 512))]
            );
        },
    );
    // A part of a device is its memory, as is a pool there.
    let script = "setdevice 1; vcreate 2097152 at=domain; pool create domain; poolalloc 0 512; \
                  setdevice 0; async 64; vcreate 4194304 host";
    rows.play_with(
        "STANDIN_DEVICES=2",
        Backend::Driver,
        script,
        |report, row| {
            let process = report.process(row.pid);
            let devices = list(process, "devices").iter();
            let bytes = devices.map(|d| (d["device"].as_u64(), d["bytes"].as_u64()));
            let expected = [(Some(0), Some(64)), (Some(1), Some(STEP + 512))];
            assert_eq!(bytes.collect::<Vec<_>>(), expected);
            assert_eq!(process["host_bytes"], 2 * STEP);
        },
    );
    imported_handles_are_no_new_memory(&mut rows);
    handle_values_are_used_again(&mut rows);

    for backend in Backend::LINKED {
        let script = "vexpand 2097152 300; vexpand 4194304 50 keep; vexpand 2097152 20 keep";
        rows.play(backend, script, |report, row| {
            left("vmm 251658240 in 70")(report, row);
            assert_eq!((row.truth.allocs, row.truth.frees), (370, 370));
            let process = report.process(row.pid);
            assert_eq!(process["reserved_address_bytes"], 120 * STEP);
            let all = of_kind(report, row.pid, "vmm");
            assert!(all.iter().all(|a| a["mapped_bytes"] == a["bytes"]));
        });
    }
    let script = "vexpand 2097152 300 keep; vfreeall";
    rows.play(Backend::Driver, script, |report, row| {
        left("nothing")(report, row);
        let process = report.process(row.pid);
        assert_eq!(process["peak_bytes"], 300 * STEP);
        assert_eq!(process["reserved_address_bytes"], 0);
    });
    rows.end();
}

/// A location of a CUDA that gpuprobe doesn't know is neither a GPU nor the host.
#[test]
fn root_memory_at_unknown_locations_is_counted_as_unknown() {
    let mut workload = Workload::start(Backend::Driver);
    let mut gpuprobe = Setup::pid(workload.pid).start();
    workload.play(
        "alloc 64; vcreate 2097152 at=future; pool create future; poolalloc 0 512; vcreate 4194304",
    );
    let report = gpuprobe.stop();
    // The memory, and the pool.
    assert_eq!(report.lost("unknown_values"), 2);
    report.assert_holds(workload.pid, 64 + 2 * STEP, 2);
    let process = report.process(workload.pid);
    assert_eq!(process["host_bytes"], 0);
    assert_eq!(
        process["kinds"]["unknown"]["bytes"],
        STEP + 512,
        "{}",
        process["kinds"]
    );
}

fn imported_handles_are_no_new_memory(rows: &mut Rows) {
    let mapped = "vcreate 2097152; vexport 0; vimport $vexport 2097152; vreserve 4194304; vmap 1 0";
    rows.after(
        &[Backend::Shared, Backend::Driver],
        mapped,
        &[
            "; vrelease 1 => vmm 2097152 in 1, imported 2097152 in 1",
            "; vrelease 1; vunmap $vmap 2097152 => vmm 2097152 in 1",
        ],
    );
    rows.play(Backend::Driver, mapped, |report, row| {
        let imported = only(report, row.pid, "imported");
        assert_eq!(imported["mapped_bytes"], STEP);
        assert_eq!(imported["api"], "cuMemImportFromShareableHandle");
        report.assert_holds(row.pid, STEP, 1);
        assert_eq!(report.process(row.pid)["peak_bytes"], STEP);
    });
}

fn handle_values_are_used_again(rows: &mut Rows) {
    let mut run = rows.session.workload(Backend::Driver);
    let mut handles = HashSet::new();
    for round in 0..100 {
        handles.insert(run.say("vcreate 2097152"));
        run.say(&format!("vrelease {round}"));
    }
    assert!(handles.len() < 100, "the stand-in hands out old values");
    run.say("vcreate 4194304");
    rows.done(run, "reused handles", |report, row| {
        left("vmm 4194304 in 1")(report, row);
        assert_eq!((row.truth.allocs, row.truth.frees), (101, 100));
    });
    // While the old memory is mapped.
    let mut script = "vreserve 268435456; vcreate 2097152; vmap 0 0; vrelease 0".to_owned();
    for slot in 1..100 {
        let at = slot * STEP;
        script += &format!("; vcreate 2097152; vmap {slot} 0 {at}; vrelease {slot}");
    }
    script += "; vunmap 0x700000000000 104857600";
    rows.play(Backend::Driver, &script, left("vmm 104857600 in 50"));
}

#[test]
fn root_no_report_shows_an_intermediate_state() {
    let setup = Setup::workload(Backend::Driver).interval("5ms");
    let mut run = ScriptRun::of(setup);
    let mut states = vec![Truth::default()];
    let steps = "vcreate 2097152; vcreate 4194304; vreserve 16777216; vmap 0 0; vmap 1 0 2097152; \
         vrelease 0; vretain 0; vrelease 1; vrelease 0; vunmap 0x700000200000 4194304; \
         vcreate 2097152 host; vunmap 0x700000000000 2097152; vmap 2 0; vrelease 2; \
         vunmap 0x700000000000 2097152";
    for step in steps.split("; ") {
        run.say(step);
        states.push(run.gpuprobe.talk.status());
        let state = states.last().unwrap();
        run.gpuprobe.report_where(step, |report| {
            let memleak = &report["memleak"];
            memleak["kinds"] == state.kinds()
                && memleak["alloc_calls"] == state.allocs
                && memleak["free_calls"] == state.frees
        });
    }
    let reports = run.gpuprobe.reports();
    let mut state = states.iter();
    let mut now = state.next().unwrap();
    for report in &reports {
        let memleak = &report["memleak"];
        while memleak["kinds"] != now.kinds() || memleak["free_calls"] != now.frees {
            now = state
                .next()
                .unwrap_or_else(|| panic!("never was: {memleak}"));
        }
        assert_eq!(memleak["live_bytes"], now.bytes);
        assert_eq!(memleak["host_bytes"], now.host().bytes);
    }
    let (report, truth) = run.end();
    check(&report, truth, "nothing", "all is gone");
}
