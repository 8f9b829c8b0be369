//! Virtual memory management: memory is live while it has a handle or a mapping.

use super::{MemoryRow, STEP, ScriptRun, check, check_after, only, traced};
use crate::harness::Backend;

const TWO: &str = "vcreate 2097152 2; vreserve 8388608; vmap 0 0; vmap 1 0 2097152";

#[test]
fn root_physical_memory_is_live_while_it_has_a_handle_or_a_mapping() {
    let rows: &[MemoryRow<'_>] = &[
        ("vrelease 0; vrelease 1", &[("vmm", 2 * STEP, 2)]),
        ("vunmap $vreserve 4194304", &[("vmm", 2 * STEP, 2)]),
        ("vrelease 0; vrelease 1; vunmap $vreserve 4194304", &[]),
        ("vrelease 0; vunmap $vreserve 4194304", &[("vmm", STEP, 1)]),
        ("vunmap $vmap 2097152; vrelease 1", &[("vmm", STEP, 1)]),
        // Once retained, it takes two releases.
        (
            "vretain 0; vrelease 0; vunmap $vreserve 4194304; vrelease 1",
            &[("vmm", STEP, 1)],
        ),
        (
            "vretain 0; vretain 0; vrelease 0 3; vunmap $vreserve 4194304",
            &[("vmm", STEP, 1)],
        ),
        (
            "vrelease 0; vretain 0; vunmap $vreserve 4194304; vrelease 1",
            &[("vmm", STEP, 1)],
        ),
        // One release too many fails, even where a mapping keeps the memory.
        (
            "vrelease 0; vretain 0; vrelease 0 2; vrelease 1",
            &[("vmm", 2 * STEP, 2)],
        ),
    ];
    check_after(&[Backend::Driver], TWO, rows);
    let others = [Backend::Shared, Backend::Static, Backend::PerThread];
    check_after(&others, TWO, &rows[7..]);
}

#[test]
fn root_one_handle_can_be_mapped_twice() {
    let twice = "vcreate 2097152; vreserve 8388608; vmap 0 0 4194304; vmap 0 0; vrelease 0";
    check_after(
        &[Backend::Shared, Backend::Driver],
        twice,
        &[
            ("vunmap $vmap 2097152", &[("vmm", STEP, 1)]),
            ("vunmap 0x700000400000 2097152", &[("vmm", STEP, 1)]),
            ("vunmap $vmap 2097152; vunmap 0x700000400000 2097152", &[]),
        ],
    );
}

#[test]
fn root_one_call_unmaps_several_mappings() {
    let (report, truth, pid) = traced(
        Backend::Shared,
        "vcreate 2097152 3; vcreate 4194304; vreserve 16777216; vmap 0 0; vmap 1 0 2097152; \
         vmap 3 0 4194304; vmap 2 0 8388608; vrelease 0; vrelease 1; vrelease 2; vrelease 3; \
         vunmap $vreserve 8388608",
    );
    check(
        &report,
        truth,
        &[("vmm", STEP, 1)],
        "the one behind them is left",
    );
    assert_eq!(only(&report, pid, "vmm")["mapped_bytes"], STEP);
}

#[test]
fn root_address_space_is_no_memory() {
    let (report, truth, pid) = traced(
        Backend::Shared,
        "vreserve 1099511627776; vreserve 8388608; vreserve 2097152; vfreeaddr 1",
    );
    check(&report, truth, &[], "only reserved");
    let reserved = &report.process(pid)["reserved_address_bytes"];
    assert_eq!(*reserved, (1_u64 << 40) + STEP);
    let (report, _, pid) = traced(Backend::Driver, "vreserve 2097152; vfreeaddr 0");
    assert_eq!(report.process(pid)["reserved_address_bytes"], 0);
}

#[test]
fn root_mappings_are_listed() {
    let mut run = ScriptRun::start(Backend::Shared, &[]);
    let handle = run.say("vcreate 2097152");
    run.say("vcreate 2097152");
    let reserved = run.say("vreserve 8388608");
    let start = reserved.split(' ').nth(1).unwrap().to_owned();
    run.say("vmap 0 0 4194304");
    run.say("vmap 0 0");
    let pid = run.pid;
    let (report, truth) = run.end();
    check(&report, truth, &[("vmm", 2 * STEP, 2)], "one is mapped");
    let all = super::of_kind(&report, pid, "vmm");
    let mapped = all.iter().find(|a| a["handle"] == *handle).unwrap();
    assert_eq!(mapped["address"], *start, "the lowest");
    assert_eq!(mapped["mapped_bytes"], 2 * STEP);
    assert_eq!(mapped["bytes"], STEP);
    assert_eq!(mapped["device"], 0);
    assert_eq!(mapped["api"], "cuMemCreate");
    let other = all.iter().find(|a| a["handle"] != *handle).unwrap();
    assert_eq!(other["address"], "0x0");
    assert_eq!(other["mapped_bytes"], 0);
}

#[test]
fn root_host_numa_memory_is_not_gpu_memory() {
    for backend in [Backend::Shared, Backend::Driver] {
        let (report, truth, pid) = traced(
            backend,
            "vcreate 2097152 host; vcreate 4194304 host; vcreate 2097152; vreserve 4194304; \
             vmap 1 0; vrelease 1; vrelease 0",
        );
        check(
            &report,
            truth,
            &[("vmm", 3 * STEP, 2)],
            "one of two at the host",
        );
        report.assert_holds(pid, STEP, 1);
        assert_eq!(report["memleak"]["host_bytes"], 2 * STEP);
        let all = super::of_kind(&report, pid, "vmm");
        let host = all.iter().find(|a| a["bytes"] == 2 * STEP).unwrap();
        assert!(host["device"].is_null(), "{host}");
        // The peak is the GPU memory's alone.
        assert_eq!(report.process(pid)["peak_bytes"], STEP);
    }
}
