//! Memory that ends with a context, and memory that stays.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_cuda::MemoryKind::{Array, Async, Device, Managed, Pinned, Pitched};
use gpuprobe_cuda::MemoryKind::{Registered, Static, Vmm};
use proptest::prelude::*;

use crate::harness::{Args, Held, World, lowest};

const DEVICES: u16 = 2;

/// A kind, its allocating function, and its freeing function, if there is one.
const WAYS: &[(MemoryKind, &str, Option<&str>)] = &[
    (Device, "cuMemAlloc_v2", Some("cuMemFree_v2")),
    (Pitched, "cuMemAllocPitch_v2", Some("cuMemFree_v2")),
    (Managed, "cuMemAllocManaged", Some("cuMemFree_v2")),
    (Array, "cuArrayCreate_v2", Some("cuArrayDestroy")),
    (Pinned, "cuMemHostAlloc", Some("cuMemFreeHost")),
    (
        Registered,
        "cuMemHostRegister_v2",
        Some("cuMemHostUnregister"),
    ),
    (Async, "cuMemAllocAsync", Some("cuMemFreeAsync")),
    (Vmm, "cuMemCreate", Some("cuMemRelease")),
    (Static, "cuModuleGetGlobal_v2", None),
];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Create a context on a device.
    Create(u16),
    /// Destroy the n-th created context, with all its memory.
    Destroy(usize),
    /// Retain the primary context of a device.
    Retain(u16),
    Release(u16),
    Reset(u16),
    /// Allocate with one of the functions, in the n-th context, a number of bytes.
    Allocate(usize, usize, u64),
    Free(usize),
    /// Load a module in the n-th context.
    Load(usize),
    Unload(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let device = || 0..DEVICES;
    prop_oneof![
        1 => device().prop_map(Step::Create),
        1 => (0usize..4).prop_map(Step::Destroy),
        2 => device().prop_map(Step::Retain),
        1 => device().prop_map(Step::Release),
        1 => device().prop_map(Step::Reset),
        12 => (0..WAYS.len(), 0usize..5, 1u64..1000).prop_map(|(w, c, b)| Step::Allocate(w, c, b)),
        4 => (0usize..16).prop_map(Step::Free),
        2 => (0usize..5).prop_map(Step::Load),
        1 => (0usize..4).prop_map(Step::Unload),
    ]
}

/// A context in the model. Number 0 is the primary one of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Context {
    number: u16,
    device: u16,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    address: u64,
    way: usize,
    context: Context,
    /// Module of a variable.
    module: u64,
    held: Held,
}

struct Driver {
    world: World,
    /// Contexts, the primary ones first.
    contexts: Vec<Context>,
    references: [u32; DEVICES as usize],
    live: Vec<Live>,
    modules: Vec<(u64, Context)>,
}

impl Driver {
    fn new() -> Self {
        let primary = |device| Context { number: 0, device };
        Self {
            world: World::new(),
            contexts: (0..DEVICES).map(primary).collect(),
            references: [0; DEVICES as usize],
            live: Vec::new(),
            modules: Vec::new(),
        }
    }

    fn own(&self, n: usize) -> Option<usize> {
        let index = n + usize::from(DEVICES);
        (index < self.contexts.len()).then_some(index)
    }

    fn end(&mut self, context: Context) {
        let stays = |live: &Live| matches!(live.held.kind, Async | Vmm);
        self.live.retain(|l| l.context != context || stays(l));
        self.modules.retain(|(_, c)| *c != context);
    }

    fn allocate(&mut self, way: usize, n: usize, bytes: u64) {
        let (kind, symbol, _) = WAYS[way];
        let context = self.contexts[n % self.contexts.len()];
        let module = self.modules.iter().find(|(_, c)| *c == context);
        if kind == Static && module.is_none() {
            return;
        }
        let module = module.map_or(0, |(handle, _)| *handle);
        let there = |l: &Live, a| l.address == a && l.held.kind.space() == kind.space();
        let address = lowest(0x1000, 0x1000, |a| self.live.iter().any(|l| there(l, a)));
        let device = (!matches!(kind, Pinned | Registered)).then_some(context.device);
        let held = Held {
            kind,
            bytes,
            device,
        };
        self.live.push(Live {
            address,
            way,
            context,
            module,
            held,
        });
        let values = match kind {
            Array => [1, 1, 0, bytes, 1, 0, 0, 0],
            Vmm => [1, 0, 0, 0, 0, 0, 0, 0],
            _ => [0; 8],
        };
        let args = Args {
            address: if kind == Static { module } else { address },
            out: address,
            bytes: if kind == Array { 0 } else { bytes },
            device: Some(context.device),
            context: context.number,
            values,
            ..Args::default()
        };
        self.world.call(symbol, args);
    }

    fn on(&mut self, symbol: &str, context: Context) {
        let args = Args {
            device: Some(context.device),
            context: context.number,
            ..Args::default()
        };
        self.world.call(symbol, args);
    }

    fn load(&mut self, n: usize) {
        let context = self.contexts[n % self.contexts.len()];
        let used = |handle| self.modules.iter().any(|(h, _)| *h == handle);
        let handle = lowest(0x6000, 0x10, used);
        self.modules.push((handle, context));
        let args = Args {
            address: handle,
            device: Some(context.device),
            context: context.number,
            ..Args::default()
        };
        self.world.call("cuModuleLoadData", args);
    }

    fn step(&mut self, step: Step) {
        let primary = |device| Context { number: 0, device };
        match step {
            Step::Create(device) => {
                let used = |n| self.contexts.iter().any(|c| u64::from(c.number) == n);
                let number = u16::try_from(lowest(1, 1, used)).unwrap();
                self.contexts.push(Context { number, device });
            }
            Step::Destroy(n) => {
                let Some(index) = self.own(n) else { return };
                let context = self.contexts.swap_remove(index);
                self.end(context);
                self.on("cuCtxDestroy_v2", context);
            }
            Step::Retain(device) => {
                self.references[usize::from(device)] += 1;
                self.on("cuDevicePrimaryCtxRetain", primary(device));
            }
            Step::Release(device) => {
                let references = &mut self.references[usize::from(device)];
                if *references > 0 {
                    *references -= 1;
                    if *references == 0 {
                        self.end(primary(device));
                    }
                    self.on("cuDevicePrimaryCtxRelease_v2", primary(device));
                }
            }
            Step::Reset(device) => {
                self.end(primary(device));
                self.on("cuDevicePrimaryCtxReset_v2", primary(device));
            }
            Step::Allocate(way, n, bytes) => self.allocate(way, n, bytes),
            Step::Free(n) => {
                let symbol = self.live.get(n).and_then(|l| WAYS[l.way].2);
                if let Some(symbol) = symbol {
                    let address = self.live.swap_remove(n).address;
                    let args = Args {
                        address,
                        ..Args::default()
                    };
                    self.world.call(symbol, args);
                }
            }
            Step::Load(n) => self.load(n),
            Step::Unload(n) if n < self.modules.len() => {
                let (module, _) = self.modules.swap_remove(n);
                let of_it = |l: &Live| l.held.kind == Static && l.module == module;
                self.live.retain(|l| !of_it(l));
                let args = Args {
                    address: module,
                    ..Args::default()
                };
                self.world.call("cuModuleUnload", args);
            }
            Step::Unload(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn contexts_end_with_their_memory(steps in proptest::collection::vec(step(), 1..200)) {
        let mut driver = Driver::new();
        for step in steps {
            driver.step(step);
            driver.world.check(driver.live.iter().map(|l| l.held));
            assert_eq!(driver.world.process().modules(), driver.modules.len());
        }
    }
}
