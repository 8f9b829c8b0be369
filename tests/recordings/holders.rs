//! Memory behind handles, pools and modules.

use std::path::Path;

use gpuprobe_model::abi::{RawCall, record};
use gpuprobe_model::identity::Identity;
use rusqlite::Connection;
use serde_json::{Value, json};
use zerocopy::IntoBytes;

use crate::replay::{PID, call, replay};
use crate::scene::{self, MIB};
use crate::{Folder, report_json};

const RESERVED: u64 = 0x7000_0000_0000;
const HANDLE: u64 = 0x5500;
const POOL: u64 = 0x9000;

/// Values of a call besides the usual ones.
#[derive(Clone, Copy, Default)]
struct Values {
    out: u64,
    stream: u64,
    first: u64,
}

/// The record of a call on the second device with such values: `struct gp_detail`.
fn detail(call: RawCall, values: Values) -> Vec<u8> {
    let call = RawCall {
        record_type: record::DETAIL,
        device: 1,
        ..call
    };
    let mut bytes = call.as_bytes().to_vec();
    for value in [values.out, values.stream, values.first] {
        bytes.extend(value.to_ne_bytes());
    }
    bytes.extend([0; 8 * (gpuprobe_cuda::EXTRA - 1)]);
    bytes
}

/// Ids of containers.
const CONTAINER: &str = "0123456789abcdef";
const OTHER_CONTAINER: &str = "fedcba9876543210";
/// A process with memory on the same device.
const OTHER: u32 = PID + 1;

/// Imported memory that is mapped, reserved addresses, a module, and a pool of the second device, of a process in a
/// container that is then refused memory.
pub(crate) fn record(path: &Path) {
    let mut recorder = scene::begin(path, scene::MEMORY);
    let gpus = [0, 1].map(|gpu| scene::identity("ada", "python3 train.py", gpu));
    let [first, second] = gpus.map(|one| one.devices[0].clone());
    let who = Identity {
        container: Some(CONTAINER.to_owned()),
        devices: vec![first, second],
        ..Identity::default()
    };
    scene::introduce(&mut recorder, PID, "python3", who);
    // It sees the second device only.
    let other = Identity {
        container: Some(OTHER_CONTAINER.to_owned()),
        ..scene::identity("bob", "python3 serve.py", 1)
    };
    scene::introduce(&mut recorder, OTHER, "python3", other);
    scene::allocate(&mut recorder, OTHER, "cudaMalloc", 1, MIB, 500_000);
    let none = Values::default();
    let of_handle = Values {
        first: HANDLE,
        ..none
    };
    let of_pool = Values {
        first: POOL,
        ..none
    };
    // Its memory is pinned, on a device.
    let at_device = Values { stream: 1, ..none };
    let reserved = Values {
        stream: 5,
        out: 32 * MIB,
        ..none
    };
    let calls = [
        ("cuMemAddressReserve", RESERVED, 64 * MIB, none),
        ("cuMemImportFromShareableHandle", HANDLE, 0, none),
        ("cuMemMap", RESERVED, 6 * MIB, of_handle),
        ("cuModuleLoadData", 0x6000, 0, none),
        ("cuMemPoolCreate", POOL, 1, at_device),
        ("cuMemPoolGetAttribute", POOL, 0, reserved),
        ("cuMemAllocFromPoolAsync", 0xa000, 3 * MIB, of_pool),
        ("cuMemPoolTrimTo", POOL, MIB, none),
        ("cuMemPoolGetAttribute", POOL, 0, reserved),
    ];
    for (at_ms, (symbol, address, size, values)) in (1..).zip(calls) {
        let call = call(symbol, address, size, 1_000_000 * at_ms);
        recorder.record(&detail(call, values));
    }
    let refused = RawCall {
        result: 2,
        device: 1,
        ..call("cudaMalloc", 0, 100 * MIB, 20_000_000)
    };
    recorder.record(refused.as_bytes());
    recorder.note(scene::mark(34, false, true, Default::default()));
    recorder.finish();
}

#[test]
fn memory_behind_handles_and_pools_is_reported() {
    let folder = Folder::new();
    let file = folder.path("holders.sqlite");
    record(&file);
    let last = replay(&file, &["--last", "--format", "json"]);
    let last: Value = serde_json::from_str(&last).unwrap();
    let memleak = &last["memleak"];
    let process = &memleak["processes"][0];
    for (sums, live) in [(memleak, 4), (process, 3)] {
        assert_eq!(sums["imported_bytes"], 6 * MIB, "{sums}");
        assert_eq!(sums["imported_allocations"], 1);
        assert_eq!(sums["live_bytes"], live * MIB);
    }
    let incident = &last["incidents"][0];
    for (key, expected) in [
        ("container", json!(CONTAINER)),
        ("imported_bytes", json!(6 * MIB)),
        ("imported_allocations", json!(1)),
        ("live_bytes", json!(3 * MIB)),
    ] {
        assert_eq!(incident[key], expected, "{key} in {incident}");
    }
    let other = &incident["others"][0];
    let found = ["pid", "container", "live_bytes"].map(|key| other[key].clone());
    assert_eq!(found, [json!(OTHER), json!(OTHER_CONTAINER), json!(MIB)]);
    // The tables are of memory of this GPU and of the host, the log is of all.
    for (question, imported) in [("leakage", 6 * MIB), ("watermark", 0)] {
        let of_file = report_json(&file, &["--analysis", question]);
        assert_eq!(of_file["memleak"]["live_bytes"], 4 * MIB, "{of_file}");
        assert_eq!(of_file["memleak"]["imported_bytes"], imported);
    }
    let connection = Connection::open(&file).unwrap();
    let sql = "SELECT minBytesToKeep FROM CUDA_GPU_MEMORY_POOL_EVENTS ORDER BY start DESC";
    let kept: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(kept.cast_unsigned(), MIB, "of the last one, which trims");
    let sql = "SELECT localMemoryPoolAddress, localMemoryPoolSize FROM CUDA_GPU_MEMORY_USAGE_EVENTS \
               WHERE localMemoryPoolAddress NOT NULL";
    let pool = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let pool: (i64, i64) = connection.query_row(sql, [], pool).unwrap();
    assert_eq!(
        (pool.0.cast_unsigned(), pool.1.cast_unsigned()),
        (POOL, 32 * MIB)
    );
    assert_eq!(process["modules"], 1);
    assert_eq!(process["reserved_address_bytes"], 64 * MIB);
    let pool = &process["pools"][0];
    let found = ["pool", "device", "reserved_bytes", "used_bytes"].map(|key| pool[key].clone());
    let expected = [json!("0x9000"), json!(1), json!(32 * MIB), json!(3 * MIB)];
    assert_eq!(found, expected, "{pool}");
    let allocations = process["threads"][0]["allocations"].as_array().unwrap();
    let mapped = allocations.iter().find(|one| one["kind"] == "imported");
    assert_eq!(mapped.unwrap()["mapped_bytes"], 6 * MIB, "{allocations:?}");
}
