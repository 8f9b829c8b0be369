//! Allocations, frees, contexts and threads.

use gpuprobe_cuda::MemoryKind::{self, Array, Async, Device, Managed, Pinned, Pitched, Registered};
use gpuprobe_engine::AddressKind;
use gpuprobe_model::event::Event;

use crate::account::{Block, Context, Space};
use crate::engine::{Args, Engine};
use crate::program::{BASE, GRANULE, Program, address_of, lowest, task};

/// An address that no allocation has.
const UNKNOWN: u64 = 0xffff_0000_0000;

/// A kind of memory, where it is, its allocating function, and its freeing functions.
type Way = (MemoryKind, Space, &'static str, [&'static str; 2]);

const FREES: [&str; 2] = ["cuMemFree_v2", "cudaFree"];
const STREAM_FREES: [&str; 2] = ["cuMemFreeAsync", "cuMemFree_v2"];

#[rustfmt::skip]
pub(crate) const WAYS: [Way; 8] = [
    (Device, Space::Device, "cuMemAlloc_v2", FREES),
    (Device, Space::Device, "cudaMalloc", FREES),
    (Pitched, Space::Device, "cuMemAllocPitch_v2", FREES),
    (Managed, Space::Device, "cuMemAllocManaged", FREES),
    (Async, Space::Device, "cuMemAllocAsync", STREAM_FREES),
    (Array, Space::Arrays, "cuArrayCreate_v2", ["cuArrayDestroy"; 2]),
    (Pinned, Space::Pinned, "cuMemHostAlloc", ["cuMemFreeHost"; 2]),
    (Registered, Space::Registered, "cuMemHostRegister_v2", ["cuMemHostUnregister"; 2]),
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Allocate with one of the functions, in the n-th context, so many bytes. Where there is one
    /// device only, the call may not tell it.
    Allocate(usize, usize, u64, bool),
    /// Free the n-th block with one of its functions; the call may return late.
    Free(usize, usize, bool),
    /// The n-th open call returns.
    Return(usize),
    FailAllocation(usize, i32),
    FreeUnknown(usize),
    FreeNull(usize),
    CreateContext(u16),
    /// Destroy the n-th created context.
    DestroyContext(usize),
    Retain(u16),
    Release(u16),
    Reset(u16),
    /// The thread ends, unless it is in a call.
    EndThread(u32),
}

impl Program {
    pub(crate) fn step(&mut self, engine: &mut Engine, step: Step) {
        match step {
            Step::Allocate(way, context, bytes, tells) => {
                self.allocate(engine, way, context, (bytes, tells));
            }
            Step::Free(n, which, late) => self.free(engine, n, which, late),
            Step::Return(n) if n < self.open.len() => self.leave(engine, n),
            Step::Return(_) => {}
            Step::FailAllocation(way, result) => {
                let args = Args {
                    bytes: 64,
                    ..Args::default()
                };
                self.fail(engine, WAYS[way].2, args, result);
            }
            Step::FreeUnknown(way) => {
                engine.expected.unknown_frees += 1;
                let args = Args {
                    address: UNKNOWN,
                    ..Args::default()
                };
                self.call(engine, WAYS[way].3[0], args);
            }
            Step::FreeNull(way) => {
                self.call(engine, WAYS[way].3[0], Args::default());
                engine.expected.frees -= 1;
                engine.expected.null_frees += 1;
            }
            Step::CreateContext(device) => {
                let used = |n| self.contexts.iter().any(|c| u64::from(c.number) == n);
                let number = u16::try_from(lowest(1, 1, used)).unwrap();
                let device = self.device(device);
                let context = Context { number, device };
                self.contexts.push(context);
                self.about_context(engine, "cuCtxCreate_v2", context);
            }
            Step::DestroyContext(n) => self.destroy_context(engine, n),
            Step::Retain(device) => {
                let primary = self.primary(device);
                self.references[usize::from(primary.device)] += 1;
                self.about_context(engine, "cuDevicePrimaryCtxRetain", primary);
            }
            Step::Release(device) => self.release_primary(engine, self.primary(device)),
            Step::Reset(device) => {
                self.leave_all(engine);
                let primary = self.primary(device);
                self.account.end(primary);
                self.about_context(engine, "cuDevicePrimaryCtxReset_v2", primary);
            }
            Step::EndThread(n) => {
                let tid = self.pid + n;
                if !self.open.iter().any(|call| call.tid == tid) {
                    let exit = Event::ThreadExit(task(self.pid, tid, engine.tick()));
                    engine.send(self.pid, &exit);
                }
            }
        }
    }

    fn allocate(
        &mut self,
        engine: &mut Engine,
        way: usize,
        context: usize,
        (bytes, tells): (u64, bool),
    ) {
        let (kind, space, symbol, _) = WAYS[way];
        let context = self.contexts[context % self.contexts.len()];
        let address = match space {
            Space::Device => address_of(self.free_slot()),
            // Memory of the host and of devices share no address.
            _ => lowest(BASE + ((space as u64) << 40), GRANULE, |a| {
                self.account.is_taken(space, a)
            }),
        };
        let is_told = tells || !self.account.sees_one_gpu;
        let device = is_told.then_some(context.device);
        let values = match kind {
            // Bytes wide, of one byte each.
            Array => [1, 1, 0, bytes, 1, 0, 0, 0],
            _ => [0; 8],
        };
        let args = Args {
            address,
            bytes: if kind == Array { 0 } else { bytes },
            device,
            context: context.number,
            values,
            ..Args::default()
        };
        let at_ns = self.call(engine, symbol, args);
        self.account.add(Block {
            kind,
            bytes,
            device,
            is_host: false,
            place: Some((space, address)),
            context: (kind != Async).then_some(context),
            is_freed: false,
        });
        self.settle(engine, at_ns);
    }

    fn free(&mut self, engine: &mut Engine, n: usize, which: usize, late: bool) {
        let Some((number, address, symbol)) = self.nth_freeable(n, which) else {
            return;
        };
        let start_ns = engine.tick() + 1;
        self.freeing.insert(start_ns, number);
        if let Some(block) = self.account.blocks.get_mut(&number) {
            block.is_freed = true;
        }
        let args = Args {
            address,
            ..Args::default()
        };
        self.take_back(engine, symbol, args, (start_ns, late));
    }

    /// The n-th block with an address, and one of the functions that free it.
    fn nth_freeable(&self, n: usize, which: usize) -> Option<(u32, u64, &'static str)> {
        let mut addressed = self.account.live().filter_map(|(number, block)| {
            let (_, address) = block.place?;
            let way = WAYS.iter().find(|way| way.0 == block.kind);
            // Memory of graphs is freed like other memory.
            let frees = way.map_or(STREAM_FREES, |way| way.3);
            Some((number, address, frees[which]))
        });
        addressed.nth(n)
    }

    /// The primary context of a device that the program can see.
    fn primary(&self, device: u16) -> Context {
        let device = self.device(device);
        Context { number: 0, device }
    }

    fn about_context(&mut self, engine: &mut Engine, symbol: &str, context: Context) {
        let args = Args {
            device: Some(context.device),
            context: context.number,
            ..Args::default()
        };
        let at_ns = self.call(engine, symbol, args);
        self.settle(engine, at_ns);
    }

    /// No thread frees memory of a context that another one destroys.
    fn destroy_context(&mut self, engine: &mut Engine, n: usize) {
        let created = self.contexts.iter().filter(|context| context.number > 0);
        if let Some(&context) = created.clone().nth(n) {
            self.leave_all(engine);
            self.contexts.retain(|other| *other != context);
            self.account.end(context);
            self.about_context(engine, "cuCtxDestroy_v2", context);
        }
    }

    /// Without the references from before it was traced, the last one is unknown.
    fn release_primary(&mut self, engine: &mut Engine, primary: Context) {
        let references = &mut self.references[usize::from(primary.device)];
        if *references == 0 {
            return;
        }
        *references -= 1;
        let is_last = *references == 0 && self.account.from_birth;
        if is_last {
            self.leave_all(engine);
            self.account.end(primary);
        }
        self.about_context(engine, "cuDevicePrimaryCtxRelease_v2", primary);
    }

    /// Addresses of device memory are found on their device.
    pub(crate) fn check_addresses(&self, engine: &Engine) {
        let ledger = &engine.state.ledger;
        for (_, block) in self.account.live() {
            if let Some((Space::Device, address)) = block.place
                && block.kind.is_at_device()
            {
                let last = address + block.bytes - 1;
                let found = ledger.find_address(self.pid, last, engine.now_ns());
                assert_eq!(found, Some(AddressKind::Device(block.device)), "{block:?}");
            }
        }
    }
}
