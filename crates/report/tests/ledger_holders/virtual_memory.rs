//! Virtual memory management: physical memory lives until the last reference to its handle and its
//! last mapping are gone. A handle keeps its value as long as its memory lives.

use gpuprobe_cuda::MemoryKind::{Imported, Vmm};
use proptest::prelude::*;

use crate::harness::{Args, Held, World, lowest};

const GRANULE: u64 = 0x20_0000;
const RESERVED: u64 = 0x7000_0000_0000;
const SLOTS: usize = 12;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Create memory of a number of granules, on a device or on the host.
    Create(u64, bool),
    /// Import memory of another process, with a handle of its own.
    Import(u64),
    /// Map the n-th piece at the slot, if it fits.
    Map(usize, usize),
    /// Unmap adjacent mappings from the slot on, up to a number; the call may be seen late.
    Unmap(usize, usize, bool),
    /// Retain the handle by an address within the mapping at the slot.
    Retain(usize),
    /// Release a reference of the n-th piece; the call may be seen late.
    Release(usize, bool),
    Leave(usize),
    Reserve(u64),
    /// Release reserved address space; the call may be seen late.
    Unreserve(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let late = any::<bool>;
    prop_oneof![
        3 => (1u64..4, proptest::bool::weighted(0.8)).prop_map(|(g, gpu)| Step::Create(g, gpu)),
        1 => (1u64..4).prop_map(Step::Import),
        4 => (0usize..8, 0usize..SLOTS).prop_map(|(n, slot)| Step::Map(n, slot)),
        3 => (0usize..SLOTS, 1usize..4, late()).prop_map(|(s, n, l)| Step::Unmap(s, n, l)),
        2 => (0usize..SLOTS).prop_map(Step::Retain),
        4 => (0usize..8, late()).prop_map(|(n, l)| Step::Release(n, l)),
        3 => (0usize..8).prop_map(Step::Leave),
        1 => (1u64..9).prop_map(Step::Reserve),
        1 => (0usize..8, late()).prop_map(|(n, l)| Step::Unreserve(n, l)),
    ]
}

#[derive(Clone, Debug)]
struct Piece {
    handle: u64,
    granules: u64,
    imported: bool,
    at_gpu: bool,
    references: u32,
    /// First slots of the mappings.
    mapped: Vec<usize>,
    was_mapped: bool,
}

struct Driver {
    world: World,
    pieces: Vec<Piece>,
    reserved: Vec<(u64, u64)>,
}

impl Driver {
    /// For each slot, the index of the piece mapped there, and whether the mapping begins there.
    fn slots(&self) -> [Option<(usize, bool)>; SLOTS] {
        let mut slots = [None; SLOTS];
        for (index, piece) in self.pieces.iter().enumerate() {
            for &first in &piece.mapped {
                let end = first + piece.granules as usize;
                slots[first..end].fill(Some((index, false)));
                slots[first] = Some((index, true));
            }
        }
        slots
    }

    fn add(&mut self, granules: u64, imported: bool, at_gpu: bool) {
        let used = |handle| self.pieces.iter().any(|p| p.handle == handle);
        let handle = lowest(0x5500, 0x10, used);
        let symbol = if imported {
            "cuMemImportFromShareableHandle"
        } else {
            "cuMemCreate"
        };
        let location_type = if at_gpu { 1 } else { 2 };
        let args = Args {
            address: handle,
            bytes: if imported { 0 } else { granules * GRANULE },
            device: Some(if at_gpu { 1 } else { 0 }),
            values: [location_type, 0, 0, 0, 0, 0, 0, 0],
            ..Args::default()
        };
        self.world.call(symbol, args);
        self.pieces.push(Piece {
            handle,
            granules,
            imported,
            at_gpu,
            references: 1,
            mapped: Vec::new(),
            was_mapped: false,
        });
    }

    fn map(&mut self, n: usize, slot: usize) {
        let slots = self.slots();
        let Some(piece) = self.pieces.get_mut(n) else {
            return;
        };
        let end = slot + piece.granules as usize;
        if piece.references == 0 || end > SLOTS || slots[slot..end].iter().any(Option::is_some) {
            return;
        }
        piece.mapped.push(slot);
        piece.was_mapped = true;
        let args = Args {
            address: at(slot),
            bytes: piece.granules * GRANULE,
            values: [piece.handle, 0, 0, 0, 0, 0, 0, 0],
            ..Args::default()
        };
        self.world.call("cuMemMap", args);
    }

    fn unmap(&mut self, first: usize, most: usize, late: bool) {
        let slots = self.slots();
        let Some((_, true)) = slots[first] else {
            return;
        };
        let mut end = first;
        for _ in 0..most {
            let Some(Some((index, true))) = slots.get(end).copied() else {
                break;
            };
            self.pieces[index].mapped.retain(|&slot| slot != end);
            end += self.pieces[index].granules as usize;
        }
        let args = Args {
            address: at(first),
            bytes: (end - first) as u64 * GRANULE,
            ..Args::default()
        };
        self.take_back("cuMemUnmap", args, late);
    }

    fn retain(&mut self, slot: usize) {
        if let Some((index, _)) = self.slots()[slot] {
            let piece = &mut self.pieces[index];
            piece.references += 1;
            let args = Args {
                address: at(slot) + 0x100,
                out: piece.handle,
                ..Args::default()
            };
            self.world.call("cuMemRetainAllocationHandle", args);
        }
    }

    fn release(&mut self, n: usize, late: bool) {
        let Some(piece) = self.pieces.get_mut(n) else {
            return;
        };
        let args = Args {
            address: piece.handle,
            ..Args::default()
        };
        if piece.references == 0 {
            self.world.fail("cuMemRelease", args);
        } else {
            piece.references -= 1;
            self.take_back("cuMemRelease", args, late);
        }
    }

    fn take_back(&mut self, symbol: &str, args: Args, late: bool) {
        if late {
            self.world.enter(symbol, args);
        } else {
            self.world.call(symbol, args);
        }
        self.pieces
            .retain(|p| p.references > 0 || !p.mapped.is_empty());
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Create(granules, at_gpu) => self.add(granules, false, at_gpu),
            Step::Import(granules) => self.add(granules, true, true),
            Step::Map(n, slot) => self.map(n, slot),
            Step::Unmap(slot, most, late) => self.unmap(slot, most, late),
            Step::Retain(slot) => self.retain(slot),
            Step::Release(n, late) => self.release(n, late),
            Step::Leave(n) => self.world.leave(n),
            Step::Reserve(granules) => {
                let used = |address| self.reserved.iter().any(|&(a, _)| a == address);
                let address = lowest(RESERVED, GRANULE * 16, used);
                self.reserved.push((address, granules * GRANULE));
                self.reserve("cuMemAddressReserve", address, granules * GRANULE);
            }
            Step::Unreserve(n, late) if n < self.reserved.len() => {
                let (address, bytes) = self.reserved.swap_remove(n);
                let args = Args {
                    address,
                    bytes,
                    ..Args::default()
                };
                if late {
                    self.world.enter("cuMemAddressFree", args);
                } else {
                    self.world.call("cuMemAddressFree", args);
                }
            }
            Step::Unreserve(..) => {}
        }
    }

    fn reserve(&mut self, symbol: &str, address: u64, bytes: u64) {
        let args = Args {
            address,
            bytes,
            ..Args::default()
        };
        self.world.call(symbol, args);
    }

    fn check(&mut self) {
        let held = self.pieces.iter().map(|p| Held {
            kind: if p.imported { Imported } else { Vmm },
            // The size of imported memory is only known once it is mapped.
            bytes: if p.imported && !p.was_mapped {
                0
            } else {
                p.granules * GRANULE
            },
            device: p.at_gpu.then_some(1),
        });
        let held: Vec<_> = held.collect();
        self.world.check(held.into_iter());
        let physical = &self.world.process().physical;
        let reserved: u64 = self.reserved.iter().map(|(_, bytes)| bytes).sum();
        assert!(physical.reserved_bytes >= reserved);
        if !self.world.is_behind() {
            assert_eq!(physical.reserved_bytes, reserved);
            assert_eq!(self.listed(), self.expected());
        }
    }

    /// Handle, lowest address, bytes mapped, references.
    fn listed(&self) -> Vec<(u64, u64, u64, u32)> {
        let process = self.world.process();
        let pieces = process.allocations().map(|a| {
            let p = process.physical_of(a).unwrap();
            (
                p.handle,
                p.address.unwrap_or(0),
                p.mapped_bytes,
                p.references,
            )
        });
        let mut pieces: Vec<_> = pieces.collect();
        pieces.sort_unstable();
        pieces
    }

    fn expected(&self) -> Vec<(u64, u64, u64, u32)> {
        let pieces = self.pieces.iter().map(|p| {
            let address = p.mapped.iter().min().map_or(0, |&slot| at(slot));
            let mapped = p.mapped.len() as u64 * p.granules * GRANULE;
            (p.handle, address, mapped, p.references)
        });
        let mut pieces: Vec<_> = pieces.collect();
        pieces.sort_unstable();
        pieces
    }
}

fn at(slot: usize) -> u64 {
    RESERVED + slot as u64 * GRANULE
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn handles_and_mappings(steps in proptest::collection::vec(step(), 1..200)) {
        let mut driver = Driver { world: World::new(), pieces: vec![], reserved: vec![] };
        for step in steps {
            driver.step(step);
            driver.check();
        }
        driver.world.leave_all();
        driver.check();
    }
}
