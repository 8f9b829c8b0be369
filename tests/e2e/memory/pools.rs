//! Stream-ordered memory: used and reserved bytes of pools.

use serde_json::Value;

use super::{MemoryRow, ScriptRun, check, check_rows, of_kind, traced};
use crate::harness::Backend::{self, Driver, PerThread, Shared};
use crate::harness::report::number;
use crate::harness::{Setup, standin};

/// Used bytes, used allocations and reserved bytes of each pool, largest use first.
fn pools(report: &crate::harness::Report, pid: u32) -> Vec<(u64, u64, Option<u64>)> {
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
        // So are values below the used bytes.
        (
            format!("{two}; pool attr 0; poolalloc 0 90000000; afree 3"),
            None,
        ),
    ] {
        for backend in [Shared, Driver] {
            let (report, truth, pid) = traced(backend, &script);
            report.assert_kinds(truth);
            let held = truth.kind("async");
            let expected = [(held.bytes, held.allocations, reserved)];
            assert_eq!(pools(&report, pid), expected, "{backend:?}: {script}");
        }
    }
}

#[test]
fn root_a_destroyed_pool_frees_nothing_that_is_live() {
    let pool = "pool create; poolalloc 0 4096 3";
    let rows: &[MemoryRow<'_>] = &[
        (
            &format!("{pool}; pool destroy 0"),
            &[("async", 3 * 4096, 3)],
        ),
        (
            &format!("{pool}; pool destroy 0; afree 0"),
            &[("async", 2 * 4096, 2)],
        ),
        (&format!("{pool}; pool destroy 0; afree 0 3 plain"), &[]),
        (
            &format!("{pool}; afree 0 3; pool destroy 0; !pool attr 0"),
            &[],
        ),
        (
            "pool create; pool use 0; async 512; pool destroy 0; async 64",
            &[("async", 576, 2)],
        ),
    ];
    check_rows(&[Shared, Driver, PerThread], rows);
    let (report, _, pid) = traced(Driver, &format!("{pool}; pool destroy 0; afree 0"));
    assert_eq!(pools(&report, pid), [(2 * 4096, 2, None)]);
    let (report, _, pid) = traced(Driver, &format!("{pool}; pool destroy 0; afree 0 3"));
    assert!(pools(&report, pid).is_empty());
}

#[test]
fn root_memory_belongs_to_its_pool() {
    for backend in [Shared, Driver] {
        let mut run = ScriptRun::start(backend, &[]);
        let default = run.say("pool default");
        let own = run.say("pool create");
        run.say("async 1000 2");
        run.say("poolalloc 0 100");
        run.say("poolalloc 1 10 3");
        run.say("pool use 1");
        run.say("async 7");
        let handle = |reply: &str| reply.split(' ').nth(1).unwrap().to_owned();
        let (default, own, pid) = (handle(&default), handle(&own), run.pid);
        let (report, truth) = run.end();
        check(&report, truth, &[("async", 2137, 7)], "two pools");
        assert_eq!(pools(&report, pid), [(2100, 3, None), (37, 4, None)]);
        for allocation in of_kind(&report, pid, "async") {
            let of_default = number(allocation, "bytes") >= 100;
            let expected = if of_default { &default } else { &own };
            assert_eq!(allocation["pool"], **expected, "{backend:?}: {allocation}");
        }
    }
}

#[test]
fn root_default_pool_is_listed_without_a_query() {
    let (report, truth, pid) = traced(Shared, "async 1000 2");
    check(
        &report,
        truth,
        &[("async", 2000, 2)],
        "the pool of the device",
    );
    assert_eq!(pools(&report, pid), [(2000, 2, None)]);
    let pool = &report.process(pid)["pools"][0];
    assert!(pool["pool"].is_null(), "{pool}");
    assert_eq!(pool["device"], 0);
}

#[test]
fn root_host_pool_is_not_gpu_memory() {
    for backend in [Shared, Driver] {
        let (report, truth, pid) = traced(
            backend,
            "pool create host; poolalloc 0 4096 2; async 512; afree 0",
        );
        check(&report, truth, &[("async", 4608, 2)], "one at the host");
        report.assert_holds(pid, 512, 1);
        assert_eq!(report["memleak"]["host_bytes"], 4096);
        assert_eq!(report["memleak"]["host_allocations"], 1);
        let pools = report.process(pid)["pools"].as_array().unwrap();
        let host = pools.iter().find(|p| p["used_bytes"] == 4096).unwrap();
        assert!(host["device"].is_null(), "{host}");
    }
}

#[test]
fn root_memory_is_on_the_device_of_its_pool() {
    for backend in [Shared, Driver] {
        let setup = Setup::command([standin().program_text(backend)]);
        let run = ScriptRun::of(setup.env("STANDIN_DEVICES", "2")).play(
            "async 1; setdevice 1; pool create; async 20; setdevice 0; poolalloc 0 300; \
             pool create; poolalloc 1 4000",
        );
        let pid = run.pid;
        let (report, truth) = run.end();
        check(&report, truth, &[("async", 4321, 4)], "two devices");
        let devices = report.process(pid)["devices"].as_array().unwrap();
        let bytes: Vec<_> = devices.iter().map(|d| number(d, "bytes")).collect();
        assert_eq!(bytes, [4001, 320], "{backend:?}");
        let used = [(4000, 1, None), (300, 1, None), (20, 1, None), (1, 1, None)];
        assert_eq!(pools(&report, pid), used);
    }
}

#[test]
fn root_pools_come_and_go() {
    let mut run = ScriptRun::start(Driver, &[]);
    for pool in 0..200 {
        let script = format!("pool create; poolalloc {pool} 64 2; pool destroy {pool}");
        run.gpuprobe.talk.play(&script);
        run.say(&format!("kfree {}", 2 * pool));
    }
    run.say("kfree 1 390");
    let pid = run.pid;
    let (report, truth) = run.end();
    check(
        &report,
        truth,
        &[("async", 5 * 64, 5)],
        "of five destroyed pools",
    );
    assert_eq!(pools(&report, pid).len(), 5);
}

#[test]
fn root_a_reset_spares_stream_ordered_memory() {
    check_rows(
        &Backend::LINKED,
        &[
            ("async 4096 2; alloc 512; reset", &[("async", 8192, 2)]),
            ("async 4096 2; reset; afree 0; afree 1 1 plain", &[]),
            (
                "pool create; poolalloc 0 64; reset; afree 0; async 9",
                &[("async", 9, 1)],
            ),
        ],
    );
}

#[test]
fn root_streams_do_not_matter() {
    for backend in Backend::LINKED {
        let (report, truth, _) = traced(
            backend,
            "stream; stream; async 512 3 stream=0; async 64 2 stream=1; pool create; \
             poolalloc 0 32 stream=1; kfree 0 2; kfree 4",
        );
        check(
            &report,
            truth,
            &[("async", 512 + 64 + 32, 3)],
            "two streams",
        );
    }
}
