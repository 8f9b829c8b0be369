//! Physical memory behind handles, its mappings, and reserved address space.

use std::collections::BTreeMap;

use gpuprobe_cuda::MemoryKind::{Imported, Vmm};

use crate::account::Block;
use crate::engine::{Args, Engine};
use crate::program::{GRANULE, Program, address_of, lowest};

/// Addresses that only reservations have.
const RESERVED: u64 = 0x7000_0000_0000;
/// Slots of addresses at which most memory is mapped.
pub(crate) const SLOTS: u64 = 12;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Create so many granules, on a device, or on the host.
    Create(u64, Option<u16>),
    /// Import so many granules, with a handle of their own.
    Import(u64),
    /// Map the n-th piece at the first free slots from one on.
    Map(usize, u64),
    /// Unmap adjacent mappings from the slot on, up to a number; the call may return late.
    Unmap(u64, usize, bool),
    /// Retain the handle of what is mapped at the slot.
    Retain(u64),
    /// Release a reference of the n-th piece; the call may return late.
    Release(usize, bool),
    Reserve(u64),
    /// Release the n-th reserved range; the call may return late.
    Unreserve(usize, bool),
}

/// Physical memory. It is gone for the driver without references and mappings, and for the engine
/// once the calls that took them back have returned, or what they took back is in use again.
#[derive(Clone, Debug)]
struct Piece {
    block: u32,
    handle: u64,
    granules: u64,
    references: u32,
    /// Slots of its mappings.
    mapped: Vec<u64>,
    /// Open calls that release a reference.
    releasing: Vec<u64>,
    /// Open calls that unmap, and the slots.
    unmapping: Vec<(u64, u64)>,
}

impl Piece {
    fn is_live(&self) -> bool {
        self.references > 0 || !self.mapped.is_empty()
    }
}

/// A reserved range, and the open call that releases it.
#[derive(Clone, Copy, Debug)]
struct Range {
    bytes: u64,
    releasing: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    pieces: Vec<Piece>,
    reserved: BTreeMap<u64, Range>,
}

impl Memory {
    /// Whether something is mapped at the slot.
    pub(crate) fn is_mapped(&self, slot: u64) -> bool {
        let covers = |p: &Piece| {
            p.mapped
                .iter()
                .any(|&s| (s..s + p.granules).contains(&slot))
        };
        self.pieces.iter().any(covers)
    }

    /// The piece whose mapping begins at the slot.
    fn begins_at(&mut self, slot: u64) -> Option<&mut Piece> {
        let mut pieces = self.pieces.iter_mut();
        pieces.find(|piece| piece.mapped.contains(&slot))
    }

    /// The call that was entered at `start_ns` returned.
    pub(crate) fn returned(&mut self, start_ns: u64) {
        for piece in &mut self.pieces {
            piece.releasing.retain(|&call| call != start_ns);
            piece.unmapping.retain(|&(call, _)| call != start_ns);
        }
        self.reserved
            .retain(|_, range| range.releasing != Some(start_ns));
    }

    fn reserved_bytes(&self) -> u64 {
        self.reserved.values().map(|range| range.bytes).sum()
    }
}

impl Program {
    pub(crate) fn vmm(&mut self, engine: &mut Engine, step: Step) {
        match step {
            Step::Create(granules, device) => self.create(engine, granules, device),
            Step::Import(granules) => self.import(engine, granules),
            Step::Map(n, slot) => self.map(engine, n, slot),
            Step::Unmap(slot, most, late) => self.unmap(engine, slot, most, late),
            Step::Retain(slot) => self.retain_handle(engine, slot),
            Step::Release(n, late) => self.release_handle(engine, n, late),
            Step::Reserve(granules) => self.reserve(engine, granules),
            Step::Unreserve(n, late) => self.unreserve(engine, n, late),
        }
    }

    /// Drops the blocks of pieces that are gone.
    pub(crate) fn collect(&mut self) {
        let blocks = &mut self.account.blocks;
        self.memory.pieces.retain(|piece| {
            let is_open = !piece.releasing.is_empty() || !piece.unmapping.is_empty();
            let is_kept = piece.is_live() || is_open;
            if !is_kept {
                blocks.remove(&piece.block);
            }
            is_kept
        });
        self.account.reserved_bytes = self.memory.reserved_bytes();
    }

    fn create(&mut self, engine: &mut Engine, granules: u64, device: Option<u16>) {
        let device = device.map(|device| self.device(device));
        let location_type = if device.is_some() { 1 } else { 2 };
        let args = Args {
            bytes: granules * GRANULE,
            device: device.or(Some(0)),
            values: [location_type, 0, 0, 0, 0, 0, 0, 0],
            ..Args::default()
        };
        let block = Block {
            kind: Vmm,
            bytes: granules * GRANULE,
            device,
            is_host: device.is_none(),
            place: None,
            context: None,
            is_freed: false,
        };
        self.new_handle(engine, "cuMemCreate", args, block, granules);
    }

    fn import(&mut self, engine: &mut Engine, granules: u64) {
        let args = Args {
            device: Some(0),
            ..Args::default()
        };
        // Its size is known once it is mapped.
        let block = Block {
            kind: Imported,
            bytes: 0,
            device: Some(0),
            is_host: false,
            place: None,
            context: None,
            is_freed: false,
        };
        let symbol = "cuMemImportFromShareableHandle";
        self.new_handle(engine, symbol, args, block, granules);
    }

    /// A handle has its value until its memory is gone.
    fn new_handle(
        &mut self,
        engine: &mut Engine,
        symbol: &str,
        args: Args,
        block: Block,
        granules: u64,
    ) {
        let pieces = &mut self.memory.pieces;
        let handle = lowest(0x5500, 0x10, |handle| {
            pieces.iter().any(|p| p.handle == handle && p.is_live())
        });
        for former in pieces.iter_mut().filter(|p| p.handle == handle) {
            former.releasing.clear();
        }
        let address = handle;
        let at_ns = self.call(engine, symbol, Args { address, ..args });
        let block = self.account.add(block);
        self.memory.pieces.push(Piece {
            block,
            handle,
            granules,
            references: 1,
            mapped: Vec::new(),
            releasing: Vec::new(),
            unmapping: Vec::new(),
        });
        self.settle(engine, at_ns);
    }

    fn map(&mut self, engine: &mut Engine, n: usize, slot: u64) {
        let mut referenced = self.memory.pieces.iter().filter(|p| p.references > 0);
        let Some(&Piece {
            granules, block, ..
        }) = referenced.nth(n)
        else {
            return;
        };
        let is_taken = |slot| (slot..slot + granules).any(|slot| self.is_taken(slot));
        let slot = lowest(slot, 1, is_taken);
        let slots = slot..slot + granules;
        let mut handle = 0;
        for piece in &mut self.memory.pieces {
            piece.unmapping.retain(|(_, old)| !slots.contains(old));
            if piece.block == block {
                piece.mapped.push(slot);
                handle = piece.handle;
            }
        }
        let args = Args {
            address: address_of(slot),
            bytes: granules * GRANULE,
            values: [handle, 0, 0, 0, 0, 0, 0, 0],
            ..Args::default()
        };
        let at_ns = self.call(engine, "cuMemMap", args);
        if let Some(block) = self.account.blocks.get_mut(&block) {
            block.bytes = granules * GRANULE;
        }
        self.settle(engine, at_ns);
    }

    fn unmap(&mut self, engine: &mut Engine, first: u64, most: usize, late: bool) {
        let mut end = first;
        let start_ns = engine.tick() + 1;
        for _ in 0..most {
            let Some(piece) = self.memory.begins_at(end) else {
                break;
            };
            piece.mapped.retain(|&slot| slot != end);
            piece.unmapping.push((start_ns, end));
            end += piece.granules;
        }
        if end > first {
            let args = Args {
                address: address_of(first),
                bytes: (end - first) * GRANULE,
                ..Args::default()
            };
            self.take_back(engine, "cuMemUnmap", args, (start_ns, late));
        }
    }

    fn retain_handle(&mut self, engine: &mut Engine, slot: u64) {
        if let Some(piece) = self.memory.begins_at(slot) {
            piece.references += 1;
            let args = Args {
                address: address_of(slot) + 0x100,
                out: piece.handle,
                ..Args::default()
            };
            let at_ns = self.call(engine, "cuMemRetainAllocationHandle", args);
            self.settle(engine, at_ns);
        }
    }

    fn release_handle(&mut self, engine: &mut Engine, n: usize, late: bool) {
        let pieces = self.memory.pieces.iter_mut();
        let start_ns = engine.tick() + 1;
        if let Some(piece) = pieces.filter(|piece| piece.references > 0).nth(n) {
            piece.references -= 1;
            piece.releasing.push(start_ns);
            let args = Args {
                address: piece.handle,
                ..Args::default()
            };
            self.take_back(engine, "cuMemRelease", args, (start_ns, late));
        }
    }

    fn reserve(&mut self, engine: &mut Engine, granules: u64) {
        let reserved = &mut self.memory.reserved;
        let address = lowest(RESERVED, GRANULE * 16, |address| {
            let range = reserved.get(&address);
            range.is_some_and(|range| range.releasing.is_none())
        });
        let range = Range {
            bytes: granules * GRANULE,
            releasing: None,
        };
        reserved.insert(address, range);
        let args = Args {
            address,
            bytes: granules * GRANULE,
            ..Args::default()
        };
        let at_ns = self.call(engine, "cuMemAddressReserve", args);
        self.settle(engine, at_ns);
    }

    fn unreserve(&mut self, engine: &mut Engine, n: usize, late: bool) {
        let start_ns = engine.tick() + 1;
        let reserved = self.memory.reserved.iter_mut();
        let mut kept = reserved.filter(|(_, range)| range.releasing.is_none());
        if let Some((&address, range)) = kept.nth(n) {
            range.releasing = Some(start_ns);
            let args = Args {
                address,
                bytes: range.bytes,
                ..Args::default()
            };
            self.take_back(engine, "cuMemAddressFree", args, (start_ns, late));
        }
    }
}
