//! Memory behind handles, pools and modules.

use std::path::Path;

use gpuprobe_model::abi::RawCall;
use gpuprobe_model::identity::Identity;
use zerocopy::IntoBytes;

use crate::scene::{self, MIB, PID, call};

const RESERVED: u64 = 0x7000_0000_0000;
const HANDLE: u64 = 0x5500;
const POOL: u64 = 0x9000;

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
    let none = [0; 3];
    let [of_handle, of_pool] = [HANDLE, POOL].map(|handle| [0, 0, handle]);
    // Its memory is pinned, on a device.
    let at_device = [0, 1, 0];
    let reserved = [32 * MIB, 5, 0];
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
        // On the second device.
        let call = RawCall {
            device: 1,
            ..call(symbol, address, size, 1_000_000 * at_ms)
        };
        recorder.record(&scene::detail(call, values));
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
