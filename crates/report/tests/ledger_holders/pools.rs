//! Pools: destroying a pool frees no memory, and its handle may be reused at once.

use gpuprobe_cuda::MemoryKind::Async;
use gpuprobe_engine::totals::Total;
use proptest::prelude::*;

use crate::harness::{Args, Held, World, lowest};

/// Number of devices, each with a default pool.
const DEVICES: u16 = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Create a pool on a device, or on the host.
    Create(Option<u16>),
    /// Destroy the n-th created pool that exists.
    Destroy(usize),
    /// Allocate from the n-th pool, or else from the device's current pool.
    Allocate(Option<usize>, u16, u64),
    /// Free the n-th live allocation with one of two functions; the free may be seen late.
    Free(usize, bool, bool),
    Leave(usize),
    /// Make the n-th pool the current one of a device.
    Use(usize),
    /// Query the current pool of a device, or its default pool.
    Ask(u16, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let device = || 0..DEVICES;
    let place = proptest::option::weighted(0.8, device());
    let pool = proptest::option::of(0usize..6);
    prop_oneof![
        2 => place.prop_map(Step::Create),
        2 => (0usize..6).prop_map(Step::Destroy),
        6 => (pool, device(), 1u64..1000).prop_map(|(p, d, b)| Step::Allocate(p, d, b)),
        5 => (0usize..16, any::<bool>(), any::<bool>()).prop_map(|(n, f, l)| Step::Free(n, f, l)),
        3 => (0usize..8).prop_map(Step::Leave),
        2 => (0usize..6).prop_map(Step::Use),
        1 => (device(), any::<bool>()).prop_map(|(d, first)| Step::Ask(d, first)),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Pool {
    handle: u64,
    device: Option<u16>,
    destroyed: bool,
    /// Whether the ledger has seen the pool, and its handle.
    seen: bool,
    told: bool,
}

struct Driver {
    world: World,
    /// Pools, the default ones first.
    pools: Vec<Pool>,
    /// Index of the current pool of each device.
    current: [usize; DEVICES as usize],
    /// Address, index of the pool, bytes.
    live: Vec<(u64, usize, u64)>,
}

impl Driver {
    fn new() -> Self {
        let own = |device: u16| Pool {
            handle: 0x9000 + u64::from(device),
            device: Some(device),
            destroyed: false,
            seen: false,
            told: false,
        };
        Self {
            world: World::new(),
            pools: (0..DEVICES).map(own).collect(),
            current: [0, 1],
            live: Vec::new(),
        }
    }

    /// Index of the n-th created pool that exists.
    fn created(&self, n: usize) -> Option<usize> {
        let created = self.pools.iter().enumerate().skip(usize::from(DEVICES));
        let existing = created.filter(|(_, pool)| !pool.destroyed);
        existing.map(|(index, _)| index).nth(n)
    }

    fn create(&mut self, device: Option<u16>) {
        let used = |handle| {
            self.pools
                .iter()
                .any(|p| p.handle == handle && !p.destroyed)
        };
        let handle = lowest(0x8000, 0x10, used);
        let args = Args {
            address: handle,
            device: Some(device.unwrap_or(0)),
            stream: if device.is_some() { 1 } else { 2 },
            ..Args::default()
        };
        self.world.call("cuMemPoolCreate", args);
        self.pools.push(Pool {
            handle,
            device,
            destroyed: false,
            seen: true,
            told: true,
        });
    }

    fn destroy(&mut self, n: usize) {
        let Some(index) = self.created(n) else { return };
        self.pools[index].destroyed = true;
        for (device, current) in self.current.iter_mut().enumerate() {
            if *current == index {
                *current = device;
            }
        }
        let args = Args {
            address: self.pools[index].handle,
            ..Args::default()
        };
        self.world.call("cuMemPoolDestroy", args);
    }

    fn allocate(&mut self, pool: Option<usize>, device: u16, bytes: u64) {
        let named = pool.and_then(|n| self.created(n));
        let index = named.unwrap_or(self.current[usize::from(device)]);
        self.pools[index].seen = true;
        let taken = |address| self.live.iter().any(|(a, ..)| *a == address);
        let address = lowest(0x1000, 0x1000, taken);
        self.live.push((address, index, bytes));
        let handle = named.map_or(0, |index| self.pools[index].handle);
        let args = Args {
            address,
            bytes,
            device: Some(device),
            values: [handle, 0, 0, 0, 0, 0, 0, 0],
            ..Args::default()
        };
        let symbol = match named {
            Some(_) => "cuMemAllocFromPoolAsync",
            None => "cuMemAllocAsync",
        };
        self.world.call(symbol, args);
    }

    fn free(&mut self, n: usize, plain: bool, late: bool) {
        if n >= self.live.len() {
            return;
        }
        let (address, ..) = self.live.swap_remove(n);
        let args = Args {
            address,
            ..Args::default()
        };
        let symbol = if plain {
            "cuMemFree_v2"
        } else {
            "cuMemFreeAsync"
        };
        if late {
            self.world.enter(symbol, args);
        } else {
            self.world.call(symbol, args);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Create(device) => self.create(device),
            Step::Destroy(n) => self.destroy(n),
            Step::Allocate(pool, device, bytes) => self.allocate(pool, device, bytes),
            Step::Free(n, plain, late) => self.free(n, plain, late),
            Step::Leave(n) => self.world.leave(n),
            Step::Use(n) => {
                let Some(index) = self.created(n) else { return };
                let Some(device) = self.pools[index].device else {
                    return;
                };
                self.current[usize::from(device)] = index;
                let args = Args {
                    address: self.pools[index].handle,
                    device: Some(device),
                    ..Args::default()
                };
                self.world.call("cuDeviceSetMemPool", args);
            }
            Step::Ask(device, first) => {
                let own = usize::from(device);
                let index = if first { own } else { self.current[own] };
                self.pools[index].told = true;
                self.pools[index].seen = true;
                let args = Args {
                    address: self.pools[index].handle,
                    device: Some(device),
                    ..Args::default()
                };
                let symbol = if first {
                    "cuDeviceGetDefaultMemPool"
                } else {
                    "cuDeviceGetMemPool"
                };
                self.world.call(symbol, args);
            }
        }
    }

    fn check(&mut self) {
        let held = self.live.iter().map(|&(_, pool, bytes)| Held {
            kind: Async,
            bytes,
            device: self.pools[pool].device,
        });
        let held: Vec<_> = held.collect();
        self.world.check(held.into_iter());
        if self.world.is_behind() {
            return;
        }
        let listed = self.world.process().pools.iter();
        let listed = listed.map(|p| (p.handle, p.device(), p.used.bytes, p.used.allocations));
        let mut listed: Vec<_> = listed.collect();
        let mut expected: Vec<_> = (0..self.pools.len()).filter_map(|i| self.pool(i)).collect();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected);
    }

    /// Expected listing of a pool; `None` if it is gone or was never seen.
    fn pool(&self, index: usize) -> Option<(Option<u64>, Option<u16>, u64, u64)> {
        let pool = self.pools[index];
        let mut used = Total::default();
        for &(_, _, bytes) in self.live.iter().filter(|(_, p, _)| *p == index) {
            used.merge(Total {
                bytes,
                allocations: 1,
            });
        }
        let shown = pool.seen && (!pool.destroyed || used.allocations > 0);
        let handle = pool.told.then_some(pool.handle);
        shown.then_some((handle, pool.device, used.bytes, used.allocations))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn pools_of_two_devices_and_the_host(steps in proptest::collection::vec(step(), 1..200)) {
        let mut driver = Driver::new();
        for step in steps {
            driver.step(step);
            driver.check();
        }
        driver.world.leave_all();
        driver.check();
    }
}
