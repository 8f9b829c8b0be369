//! The oracle: the memory of a process as a map of blocks, which is added up anew each time.

use std::collections::BTreeMap;

use gpuprobe_cuda::{AddressSpace, MemoryKind};
use gpuprobe_engine::Process;
use gpuprobe_engine::totals::Total;

/// Where equal addresses are the same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Device,
    Pinned,
    Registered,
    Arrays,
}

/// The context that memory was allocated in; number 0 is the primary one of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) number: u16,
    pub(crate) device: u16,
}

/// A live allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) kind: MemoryKind,
    pub(crate) bytes: u64,
    /// Device index; `None` if the memory is on the host, or the call told none.
    pub(crate) device: Option<u16>,
    pub(crate) is_host: bool,
    /// `None` for physical memory behind a handle.
    pub(crate) place: Option<(Space, u64)>,
    /// The context that it ends with, if it does.
    pub(crate) context: Option<Context>,
    /// Its free has been entered and has not returned.
    pub(crate) is_freed: bool,
}

/// The memory of one process.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) blocks: BTreeMap<u32, Block>,
    last: u32,
    pub(crate) sees_one_gpu: bool,
    pub(crate) from_birth: bool,
    pub(crate) reserved_bytes: u64,
    /// Largest sum of GPU memory, bytes, and when it was reached.
    peak: (u64, Option<u64>),
}

/// Bytes and number of allocations.
type Sum = (u64, u64);
/// Kind, bytes, device if it is GPU memory, and address if it has one.
type Listed = (MemoryKind, u64, Option<u16>, Option<u64>);

/// Everything that is compared.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    gpu: Sum,
    host: Sum,
    imported: Sum,
    by_thread: Sum,
    kinds: BTreeMap<MemoryKind, Sum>,
    devices: BTreeMap<Option<u16>, Sum>,
    device_kinds: BTreeMap<(Option<u16>, MemoryKind), Sum>,
    list: Vec<Listed>,
    peak: (u64, Option<u64>),
    reserved_bytes: u64,
    from_birth: bool,
}

impl Account {
    pub(crate) fn new(from_birth: bool, sees_one_gpu: bool) -> Self {
        Self {
            from_birth,
            sees_one_gpu,
            ..Self::default()
        }
    }

    /// Adds a block, which supersedes the one at its address whose free has not returned.
    pub(crate) fn add(&mut self, block: Block) -> u32 {
        if block.place.is_some() {
            self.blocks.retain(|_, other| other.place != block.place);
        }
        self.last += 1;
        self.blocks.insert(self.last, block);
        self.last
    }

    /// The blocks that the driver has not taken back.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u32, &Block)> {
        let live = self.blocks.iter().filter(|(_, block)| !block.is_freed);
        live.map(|(number, block)| (*number, block))
    }

    pub(crate) fn is_taken(&self, space: Space, address: u64) -> bool {
        let mut live = self.live();
        live.any(|(_, block)| block.place == Some((space, address)))
    }

    /// Ends all memory of a context.
    pub(crate) fn end(&mut self, context: Context) {
        self.blocks
            .retain(|_, block| block.context != Some(context));
    }

    /// Bytes of GPU memory, after the event at `at_ns`.
    pub(crate) fn settle(&mut self, at_ns: u64) -> u64 {
        let bytes = self.figures().gpu.0;
        if bytes > self.peak.0 {
            self.peak = (bytes, Some(at_ns));
        }
        bytes
    }

    pub(crate) fn figures(&self) -> Figures {
        let mut figures = Figures {
            peak: self.peak,
            reserved_bytes: self.reserved_bytes,
            from_birth: self.from_birth,
            ..Figures::default()
        };
        for block in self.blocks.values() {
            let is_host = matches!(block.kind, MemoryKind::Pinned | MemoryKind::Registered);
            let is_gpu = block.kind != MemoryKind::Imported && !is_host && !block.is_host;
            let device = block.device.or(self.sees_one_gpu.then_some(0));
            let device = device.filter(|_| is_gpu);
            let side = match block.kind {
                MemoryKind::Imported => &mut figures.imported,
                _ if is_gpu => &mut figures.gpu,
                _ => &mut figures.host,
            };
            let kind = figures.kinds.entry(block.kind).or_default();
            for sum in [side, kind, &mut figures.by_thread] {
                add(sum, block.bytes);
            }
            if is_gpu {
                let key = (device, block.kind);
                add(figures.devices.entry(device).or_default(), block.bytes);
                add(figures.device_kinds.entry(key).or_default(), block.bytes);
            }
            let address = block.place.map(|(_, address)| address);
            figures
                .list
                .push((block.kind, block.bytes, device, address));
        }
        figures.list.sort_unstable();
        figures
    }
}

fn add(sum: &mut Sum, bytes: u64) {
    *sum = (sum.0 + bytes, sum.1 + 1);
}

fn pair(total: Total) -> Sum {
    (total.bytes, total.allocations)
}

impl From<&Process> for Figures {
    fn from(process: &Process) -> Self {
        let sums = process.totals.sums;
        let threads = process.threads().map(|t| pair(t.live.all()));
        let is_gpu = |kind, device: Option<u16>| {
            let listed = process.device_kinds();
            let mut listed = listed.iter();
            device.filter(|_| listed.any(|(d, k, _)| (*d, *k) == (device, kind)))
        };
        let list = process.allocations().map(|a| {
            let is_at_host = a.belongs() != gpuprobe_cuda::Belongs::Gpu;
            let device = process.device(a).filter(|_| !is_at_host);
            let address = Some(a.address).filter(|_| a.space() != AddressSpace::Physical);
            (a.kind(), a.size_bytes, is_gpu(a.kind(), device), address)
        });
        let mut list: Vec<_> = list.collect();
        list.sort_unstable();
        let kinds = process.totals.kinds();
        let devices = process.devices().into_iter();
        let device_kinds = process.device_kinds().into_iter();
        Self {
            gpu: pair(sums.gpu),
            host: pair(sums.host),
            imported: pair(sums.imported),
            by_thread: threads.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1)),
            kinds: kinds.map(|(kind, total)| (kind, pair(total))).collect(),
            devices: devices.map(|(d, total)| (d, pair(total))).collect(),
            device_kinds: device_kinds
                .map(|(d, kind, total)| ((d, kind), pair(total)))
                .collect(),
            list,
            peak: (process.peak_bytes, process.peak_ns),
            reserved_bytes: process.physical.reserved_bytes,
            from_birth: process.from_birth,
        }
    }
}
