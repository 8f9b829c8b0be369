//! Handles of physical memory: other devices, imports, handle reuse, and large numbers.

use std::collections::HashSet;

use super::{MemoryRow, STEP, ScriptRun, check, check_rows, of_kind, only, traced};
use crate::harness::{Backend, Setup, Truth, standin};

#[test]
fn root_device_comes_from_the_allocation_properties() {
    let setup = Setup::command([standin().program_text(Backend::Driver)]);
    let run = ScriptRun::of(setup.env("STANDIN_DEVICES", "2"));
    let pid = run.pid;
    let (report, truth) = run
        .play("vcreate 2097152; setdevice 1; vcreate 4194304; async 512; setdevice 0")
        .end();
    report.assert_kinds(truth);
    let bytes = |d: &serde_json::Value| (d["device"].as_u64(), d["bytes"].as_u64());
    let devices = report.process(pid)["devices"].as_array().unwrap();
    let devices: Vec<_> = devices.iter().map(bytes).collect();
    assert_eq!(
        devices,
        [(Some(0), Some(STEP)), (Some(1), Some(2 * STEP + 512))]
    );
}

#[test]
fn root_imported_handle_is_no_new_memory() {
    for backend in [Backend::Shared, Backend::Driver] {
        let imported = "vcreate 2097152; vexport 0; vimport $vexport 2097152; vreserve 4194304; \
             vmap 1 0; vrelease 1";
        let rows: &[MemoryRow<'_>] = &[
            (imported, &[("vmm", STEP, 1), ("imported", STEP, 1)]),
            (
                &format!("{imported}; vunmap $vmap 2097152"),
                &[("vmm", STEP, 1)],
            ),
        ];
        check_rows(&[backend], rows);
    }
    let (report, _, pid) = traced(
        Backend::Driver,
        "vcreate 2097152; vexport 0; vimport $vexport 2097152; vreserve 4194304; vmap 1 0",
    );
    let imported = only(&report, pid, "imported");
    assert_eq!(imported["mapped_bytes"], STEP);
    assert_eq!(imported["api"], "cuMemImportFromShareableHandle");
    report.assert_holds(pid, STEP, 1);
    assert_eq!(report["memleak"]["peak_bytes"], STEP);
}

#[test]
fn root_handle_value_reuse() {
    let mut run = ScriptRun::start(Backend::Driver, &[]);
    let mut handles = HashSet::new();
    for round in 0..100 {
        handles.insert(run.say("vcreate 2097152"));
        run.say(&format!("vrelease {round}"));
    }
    assert!(handles.len() < 100, "the stand-in hands out old values");
    run.say("vcreate 4194304");
    let (report, truth) = run.end();
    check(&report, truth, &[("vmm", 2 * STEP, 1)], "the last");
    assert_eq!((truth.allocs, truth.frees), (101, 100));
}

#[test]
fn root_handle_value_reuse_while_the_old_memory_is_mapped() {
    let mut run =
        ScriptRun::start(Backend::Driver, &[]).play("vreserve 268435456; vcreate 2097152");
    run.gpuprobe.talk.play("vmap 0 0; vrelease 0");
    for slot in 1..100 {
        let at = slot * STEP;
        let step = format!("vcreate 2097152; vmap {slot} 0 {at}; vrelease {slot}");
        run.gpuprobe.talk.play(&step);
    }
    run.gpuprobe.talk.play("vunmap 0x700000000000 104857600");
    let (report, truth) = run.end();
    check(&report, truth, &[("vmm", 50 * STEP, 50)], "half is mapped");
}

#[test]
fn root_expandable_segments_are_exact() {
    for backend in Backend::LINKED {
        let (report, truth, pid) = traced(
            backend,
            "vexpand 2097152 300; vexpand 4194304 50 keep; vexpand 2097152 20 keep",
        );
        check(&report, truth, &[("vmm", 120 * STEP, 70)], "what was kept");
        assert_eq!((truth.allocs, truth.frees), (370, 370));
        assert_eq!(report.process(pid)["reserved_address_bytes"], 120 * STEP);
        let all = of_kind(&report, pid, "vmm");
        assert!(all.iter().all(|a| a["mapped_bytes"] == a["bytes"]));
    }
    let (report, truth, pid) = traced(Backend::Driver, "vexpand 2097152 300 keep; vfreeall");
    check(&report, truth, &[], "all is unmapped");
    assert_eq!(report.process(pid)["peak_bytes"], 300 * STEP);
    assert_eq!(report.process(pid)["reserved_address_bytes"], 0);
}

#[test]
fn root_no_report_shows_an_intermediate_state() {
    let setup = Setup::command([standin().program_text(Backend::Driver)]).interval("5ms");
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
    check(&report, truth, &[], "all is gone");
}
