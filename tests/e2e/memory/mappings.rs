//! Virtual memory management: memory is live while it has a handle or a mapping.

use super::{Rows, STEP, left, of_kind, only};
use crate::harness::Backend::{Driver, PerThread, Shared, Static};

const TWO: &str = "vcreate 2097152 2; vreserve 8388608; vmap 0 0; vmap 1 0 2097152; ";

#[test]
fn root_physical_memory_is_live_while_it_has_a_handle_or_a_mapping() {
    let mut rows = Rows::start(&[]);
    let two: &[&str] = &[
        "vrelease 0; vrelease 1 => vmm 4194304 in 2",
        "vunmap $vreserve 4194304 => vmm 4194304 in 2",
        "vrelease 0; vrelease 1; vunmap $vreserve 4194304 => nothing",
        "vrelease 0; vunmap $vreserve 4194304 => vmm 2097152 in 1",
        "vunmap $vmap 2097152; vrelease 1 => vmm 2097152 in 1",
        // Once retained, it takes two releases.
        "vretain 0; vrelease 0; vunmap $vreserve 4194304; vrelease 1 => vmm 2097152 in 1",
        "vretain 0; vretain 0; vrelease 0 3; vunmap $vreserve 4194304 => vmm 2097152 in 1",
        "vrelease 0; vretain 0; vunmap $vreserve 4194304; vrelease 1 => vmm 2097152 in 1",
        // One release too many fails, even where a mapping keeps the memory.
        "vrelease 0; vretain 0; vrelease 0 2; vrelease 1 => vmm 4194304 in 2",
    ];
    rows.after(&[Driver], TWO, two);
    rows.after(&[Shared, Static, PerThread], TWO, &two[7..]);
    // One handle can be mapped twice.
    rows.after(
        &[Shared, Driver],
        "vcreate 2097152; vreserve 8388608; vmap 0 0 4194304; vmap 0 0; vrelease 0; ",
        &[
            "vunmap $vmap 2097152 => vmm 2097152 in 1",
            "vunmap 0x700000400000 2097152 => vmm 2097152 in 1",
            "vunmap $vmap 2097152; vunmap 0x700000400000 2097152 => nothing",
        ],
    );
    // One call unmaps several mappings: the one behind them is left.
    let script = "vcreate 2097152 3; vcreate 4194304; vreserve 16777216; vmap 0 0; \
         vmap 1 0 2097152; vmap 3 0 4194304; vmap 2 0 8388608; vrelease 0; vrelease 1; \
         vrelease 2; vrelease 3; vunmap $vreserve 8388608";
    rows.play(Shared, script, |report, row| {
        left("vmm 2097152 in 1")(report, row);
        assert_eq!(only(report, row.pid, "vmm")["mapped_bytes"], STEP);
    });
    // Address space is no memory.
    let script = "vreserve 1099511627776; vreserve 8388608; vreserve 2097152; vfreeaddr 1";
    rows.play(Shared, script, |report, row| {
        left("nothing")(report, row);
        let reserved = &report.process(row.pid)["reserved_address_bytes"];
        assert_eq!(*reserved, (1_u64 << 40) + STEP);
    });
    rows.play(Driver, "vreserve 2097152; vfreeaddr 0", |report, row| {
        assert_eq!(report.process(row.pid)["reserved_address_bytes"], 0);
    });
    mappings_are_listed(&mut rows);
    for backend in [Shared, Driver] {
        let script = "vcreate 2097152 host; vcreate 4194304 host; vcreate 2097152; \
                      vreserve 4194304; vmap 1 0; vrelease 1; vrelease 0";
        rows.play(backend, script, |report, row| {
            left("vmm 6291456 in 2")(report, row);
            report.assert_holds(row.pid, STEP, 1);
            let process = report.process(row.pid);
            assert_eq!(process["host_bytes"], 2 * STEP);
            let all = of_kind(report, row.pid, "vmm");
            let host = all.iter().find(|a| a["bytes"] == 2 * STEP).unwrap();
            assert!(host["device"].is_null(), "{host}");
            // The peak is the GPU memory's alone.
            assert_eq!(process["peak_bytes"], STEP);
        });
    }
    rows.end();
}

fn mappings_are_listed(rows: &mut Rows) {
    let mut run = rows.session.workload(Shared);
    let handle = run.say("vcreate 2097152");
    run.say("vcreate 2097152");
    let reserved = run.say("vreserve 8388608");
    let start = reserved.split(' ').nth(1).unwrap().to_owned();
    run.play("vmap 0 0 4194304; vmap 0 0");
    rows.done(run, "one of two is mapped", move |report, row| {
        left("vmm 4194304 in 2")(report, row);
        let all = of_kind(report, row.pid, "vmm");
        let mapped = all.iter().find(|a| a["handle"] == *handle).unwrap();
        assert_eq!(mapped["address"], *start, "the lowest");
        assert_eq!(mapped["mapped_bytes"], 2 * STEP);
        assert_eq!(mapped["bytes"], STEP);
        assert_eq!(mapped["device"], 0);
        assert_eq!(mapped["api"], "cuMemCreate");
        let other = all.iter().find(|a| a["handle"] != *handle).unwrap();
        assert_eq!(other["address"], "0x0");
        assert_eq!(other["mapped_bytes"], 0);
    });
}
