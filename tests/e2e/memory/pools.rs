//! Stream-ordered memory: used and reserved bytes of pools.

use serde_json::Value;

use super::{Rows, left, of_kind};
use crate::harness::Backend::{self, Driver, PerThread, Shared};
use crate::harness::Report;
use crate::harness::report::{list, number};

/// Used bytes, used allocations and reserved bytes of each pool, largest use first.
fn pools(report: &Report, pid: u32) -> Vec<(u64, u64, Option<u64>)> {
    let pools = report.process(pid)["pools"].as_array().unwrap().iter();
    let one = |p: &Value| {
        let used = (number(p, "used_bytes"), number(p, "used_allocations"));
        (used.0, used.1, p["reserved_bytes"].as_u64())
    };
    let mut pools: Vec<_> = pools.map(one).collect();
    pools.sort_unstable_by(|a, b| b.cmp(a));
    pools
}

#[test]
fn root_used_and_reserved_are_different_numbers() {
    let mut rows = Rows::start(&[]);
    let two = "pool create; poolalloc 0 20000000 2; afree 0; poolalloc 0 4096";
    for (script, reserved) in [
        (two.to_owned(), None),
        (format!("{two}; pool attr 0"), Some(64 << 20)),
        (format!("{two}; pool attr 0 reserved"), Some(64 << 20)),
        (
            format!("{two}; pool attr 0 used; pool attr 0 reserved_high"),
            None,
        ),
        // A trim releases memory: earlier values are out of date.
        (format!("{two}; pool attr 0; pool trim 0"), None),
        (
            format!("{two}; pool attr 0; pool trim 0; pool attr 0"),
            Some(32 << 20),
        ),
        (
            format!("{two}; afree 1; pool trim 0; pool attr 0"),
            Some(32 << 20),
        ),
        // With another threshold, the driver may release memory at any wait; other attributes change nothing.
        (format!("{two}; pool attr 0; pool threshold 0 1"), None),
        // So are values below the used bytes.
        (
            format!("{two}; pool attr 0; poolalloc 0 90000000; afree 3"),
            None,
        ),
    ] {
        for backend in [Shared, Driver] {
            rows.play(backend, &script, move |report, row| {
                let held = row.truth.kind("async");
                let expected = [(held.bytes, held.allocations, reserved)];
                assert_eq!(pools(report, row.pid), expected);
            });
        }
    }
    // The default pool is listed without a query.
    rows.play(Shared, "async 1000 2", |report, row| {
        left("async 2000 in 2")(report, row);
        assert_eq!(pools(report, row.pid), [(2000, 2, None)]);
        let pool = &report.process(row.pid)["pools"][0];
        assert!(pool["pool"].is_null(), "{pool}");
        assert_eq!(pool["device"], 0);
    });
    for backend in [Shared, Driver] {
        memory_belongs_to_its_pool(&mut rows, backend);
        // A host pool is not GPU memory.
        let script = "pool create host; poolalloc 0 4096 2; async 512; afree 0";
        rows.play(backend, script, |report, row| {
            left("async 4608 in 2")(report, row);
            report.assert_holds(row.pid, 512, 1);
            let process = report.process(row.pid);
            assert_eq!(process["host_bytes"], 4096);
            assert_eq!(process["host_allocations"], 1);
            let mut pools = list(process, "pools").iter();
            let host = pools.find(|p| p["used_bytes"] == 4096).unwrap();
            assert!(host["device"].is_null(), "{host}");
        });
        // Memory is on the device of its pool.
        let script = "async 1; setdevice 1; pool create; async 20; setdevice 0; \
                      poolalloc 0 300; pool create; poolalloc 1 4000";
        rows.play_with("STANDIN_DEVICES=2", backend, script, |report, row| {
            left("async 4321 in 4")(report, row);
            let devices = list(report.process(row.pid), "devices").iter();
            let bytes: Vec<_> = devices.map(|d| number(d, "bytes")).collect();
            assert_eq!(bytes, [4001, 320]);
            let used = [(4000, 1, None), (300, 1, None), (20, 1, None), (1, 1, None)];
            assert_eq!(pools(report, row.pid), used);
        });
    }
    rows.end();
}

fn memory_belongs_to_its_pool(rows: &mut Rows, backend: Backend) {
    let mut run = rows.session.workload(backend);
    let default = run.say("pool default");
    let own = run.say("pool create");
    run.play("async 1000 2; poolalloc 0 100; poolalloc 1 10 3; pool use 1; async 7");
    let handle = |reply: &str| reply.split(' ').nth(1).unwrap().to_owned();
    let (default, own) = (handle(&default), handle(&own));
    rows.done(run, "two pools", move |report, row| {
        left("async 2137 in 7")(report, row);
        assert_eq!(pools(report, row.pid), [(2100, 3, None), (37, 4, None)]);
        for allocation in of_kind(report, row.pid, "async") {
            let of_default = number(allocation, "bytes") >= 100;
            let expected = if of_default { &default } else { &own };
            assert_eq!(allocation["pool"], **expected, "{allocation}");
        }
    });
}

#[test]
fn root_stream_ordered_memory_outlives_its_pool_and_a_reset() {
    let mut rows = Rows::start(&[]);
    let pool = "pool create; poolalloc 0 4096 3";
    let destroyed: &[&str] = &[
        &format!("{pool}; pool destroy 0 => async 12288 in 3"),
        &format!("{pool}; pool destroy 0; afree 0 => async 8192 in 2"),
        &format!("{pool}; pool destroy 0; afree 0 3 plain => nothing"),
        &format!("{pool}; afree 0 3; pool destroy 0; !pool attr 0 => nothing"),
        "pool create; pool use 0; async 512; pool destroy 0; async 64 => async 576 in 2",
    ];
    rows.table(&[Shared, Driver, PerThread], destroyed);
    let script = format!("{pool}; pool destroy 0; afree 0");
    rows.play(Driver, &script, |report, row| {
        assert_eq!(pools(report, row.pid), [(2 * 4096, 2, None)]);
    });
    let script = format!("{pool}; pool destroy 0; afree 0 3");
    rows.play(Driver, &script, |report, row| {
        assert!(pools(report, row.pid).is_empty());
    });

    let mut run = rows.session.workload(Driver);
    for pool in 0..200 {
        let freed = 2 * pool;
        run.play(&format!(
            "pool create; poolalloc {pool} 64 2; pool destroy {pool}; kfree {freed}"
        ));
    }
    run.say("kfree 1 390");
    rows.done(run, "five of 200 destroyed pools", |report, row| {
        left("async 320 in 5")(report, row);
        assert_eq!(pools(report, row.pid).len(), 5);
    });
    rows.table(
        &Backend::LINKED,
        &[
            "async 4096 2; alloc 512; reset => async 8192 in 2",
            "async 4096 2; reset; afree 0; afree 1 1 plain => nothing",
            "pool create; poolalloc 0 64; reset; afree 0; async 9 => async 9 in 1",
        ],
    );
    // Streams do not matter.
    let streams = "stream; stream; async 512 3 stream=0; async 64 2 stream=1; pool create; \
                   poolalloc 0 32 stream=1; kfree 0 2; kfree 4 => async 608 in 3";
    rows.table(&Backend::LINKED, &[streams]);
    rows.end();
}
