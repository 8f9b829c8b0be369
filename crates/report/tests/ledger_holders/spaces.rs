//! Memory in separate address spaces: of devices, of the host, registered memory, and handles of
//! arrays. The same number may be valid in all of them at once; a free with the function of another
//! space fails.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_cuda::MemoryKind::{Array, Async, Device, Managed, Pinned, Pitched, Registered};
use proptest::prelude::*;

use crate::harness::{Args, Held, World, lowest};

/// Allocating and freeing functions of each kind, in both APIs. A space is identified by one of its
/// freeing functions.
const WAYS: &[(MemoryKind, &str, &str)] = &[
    (Device, "cudaMalloc", "cudaFree"),
    (Device, "cuMemAlloc_v2", "cuMemFree_v2"),
    (Device, "cuMemAlloc_v2", "cuMemFreeAsync"),
    (Pitched, "cuMemAllocPitch_v2", "cuMemFree_v2"),
    (Managed, "cudaMallocManaged", "cudaFree"),
    (Async, "cuMemAllocAsync", "cuMemFree_v2"),
    (Async, "cudaMallocAsync", "cudaFreeAsync"),
    (Pinned, "cudaMallocHost", "cudaFreeHost"),
    (Pinned, "cuMemHostAlloc", "cuMemFreeHost"),
    (Registered, "cudaHostRegister", "cudaHostUnregister"),
    (Registered, "cuMemHostRegister_v2", "cuMemHostUnregister"),
    (Array, "cudaMallocArray", "cudaFreeArray"),
    (Array, "cuArray3DCreate_v2", "cuArrayDestroy"),
    (Array, "cuMipmappedArrayCreate", "cuMipmappedArrayDestroy"),
];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Allocate with one of the functions, on one of the threads, a number of bytes.
    Allocate(usize, u32, u64),
    /// Free the n-th live allocation with one of the functions; the free may be seen late.
    Free(usize, usize, bool),
    Leave(usize),
    FailedAllocate(usize),
    Null(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let way = || 0..WAYS.len();
    prop_oneof![
        4 => (way(), 0u32..3, 1u64..1000).prop_map(|(w, t, b)| Step::Allocate(w, t, b)),
        6 => (0usize..16, way(), any::<bool>()).prop_map(|(n, w, l)| Step::Free(n, w, l)),
        3 => (0usize..8).prop_map(Step::Leave),
        1 => way().prop_map(Step::FailedAllocate),
        1 => way().prop_map(Step::Null),
    ]
}

struct Driver {
    world: World,
    live: Vec<(u64, Held)>,
    nulls: u64,
}

impl Driver {
    fn allocate(&mut self, way: usize, tid: u32, bytes: u64) {
        let (kind, symbol, _) = WAYS[way];
        let taken = |address| {
            let there =
                |(a, held): &(u64, Held)| *a == address && held.kind.space() == kind.space();
            self.live.iter().any(there)
        };
        let address = lowest(0x1000, 0x1000, taken);
        let device = (kind != Pinned && kind != Registered).then_some(1);
        // An array of this many texels of four bytes, in any description.
        let values = match symbol {
            "cudaMallocArray" => [32, 0, 2, bytes, 1, 0, 0, 0],
            _ if kind == Array => [32, 1, 0, bytes, 1, 0, 0, 0],
            _ => [0; 8],
        };
        let size = if kind == Array { 4 * bytes } else { bytes };
        self.live.push((
            address,
            Held {
                kind,
                bytes: size,
                device,
            },
        ));
        let args = Args {
            address,
            bytes: if kind == Array { 0 } else { bytes },
            device: Some(1),
            tid,
            values,
            ..Args::default()
        };
        self.world.call(symbol, args);
    }

    fn free(&mut self, n: usize, way: usize, late: bool) {
        let (kind, _, symbol) = WAYS[way];
        let Some(&(address, _)) = self.live.get(n) else {
            return;
        };
        let args = Args {
            address,
            ..Args::default()
        };
        let is_it = |(a, h): &(u64, Held)| *a == address && h.kind.space() == kind.space();
        match self.live.iter().position(is_it) {
            None => self.world.fail(symbol, args),
            Some(index) => {
                self.live.swap_remove(index);
                if late {
                    self.world.enter(symbol, args);
                } else {
                    self.world.call(symbol, args);
                }
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Allocate(way, tid, bytes) => self.allocate(way, tid, bytes),
            Step::Free(n, way, late) => self.free(n, way, late),
            Step::Leave(n) => self.world.leave(n),
            Step::FailedAllocate(way) => {
                let args = Args {
                    address: 0x1000,
                    bytes: 64,
                    ..Args::default()
                };
                self.world.fail(WAYS[way].1, args);
            }
            Step::Null(way) => {
                self.nulls += 1;
                self.world.free_null(WAYS[way].2);
            }
        }
        self.world.check(self.live.iter().map(|(_, held)| *held));
        assert_eq!(self.world.ledger.counts.null_frees, self.nulls);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn memory_of_every_kind(steps in proptest::collection::vec(step(), 1..200)) {
        let mut driver = Driver { world: World::new(), live: vec![], nulls: 0 };
        for step in steps {
            driver.step(step);
        }
        driver.world.leave_all();
        driver.world.check(driver.live.iter().map(|(_, held)| *held));
    }
}
