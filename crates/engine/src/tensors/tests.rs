//! Sums, and properties of single blocks. Their layout is tested in `fragmentation`.

mod census;
mod chunks;
mod ended;
mod found;
mod found_chunks;
mod fragmentation;

use std::collections::BTreeMap;
use std::rc::Rc;

use gpuprobe_cuda::FUNCTIONS;
use gpuprobe_model::event::{Call, Detail, Event, MAX_DEVICES, Tensor, TensorRequest};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Location};
use proptest::prelude::*;

use super::Allocator;
use crate::{Allocation, Change, Ledger, Process};

const PID: u32 = 7;
const MIB: u64 = 1 << 20;

fn row(symbol: &str) -> u16 {
    let row = FUNCTIONS.iter().position(|f| f.symbol.contains(symbol));
    u16::try_from(row.unwrap()).unwrap()
}

/// A program with PyTorch's allocator, which reports the sums of its blocks.
#[derive(Default)]
struct Program {
    ledger: Ledger,
    now_ns: u64,
    /// Bytes of blocks by device and address, and reserved bytes.
    blocks: BTreeMap<(u16, u64), u64>,
    reserved: u64,
    /// Stack number of the next calls.
    stack: u64,
}

impl Program {
    fn apply(&mut self, event: &Event) {
        self.ledger.apply(event, |_| Identity::default());
    }

    /// A successful call of the function `symbol`.
    fn call(&mut self, symbol: &str, address: u64, size_bytes: u64) {
        self.now_ns += 10;
        let row = row(symbol);
        self.apply(&Event::Call(Call {
            row,
            function: &FUNCTIONS[usize::from(row)],
            result: 0,
            pid: PID,
            tid: PID,
            start_ns: self.now_ns - 5,
            end_ns: self.now_ns,
            address,
            size_bytes,
            device: Some(0),
            context: 0,
            captured: false,
            stack: 0,
            detail: Some(Box::<Detail>::default()),
        }));
    }

    /// Allocates or frees a block.
    fn tensor(&mut self, device: u16, address: u64, bytes: u64, is_free: bool) {
        if is_free {
            self.blocks.remove(&(device, address));
        } else {
            self.blocks.insert((device, address), bytes);
        }
        let here = self.blocks.range((device, 0)..=(device, u64::MAX));
        let allocated_bytes = here.map(|(_, bytes)| bytes).sum();
        self.tensor_with_sums(
            device,
            (address, bytes),
            is_free,
            (allocated_bytes, self.reserved),
        );
    }

    /// Allocates or frees a block; the allocator reports `sums`.
    fn tensor_with_sums(
        &mut self,
        device: u16,
        (address, bytes): (u64, u64),
        is_free: bool,
        sums: (u64, u64),
    ) {
        self.now_ns += 10;
        self.apply(&Event::Tensor(Tensor {
            row: row("reportMemoryUsageToProfiler"),
            pid: PID,
            tid: PID + 1,
            time_ns: self.now_ns,
            address,
            bytes,
            is_free,
            allocated_bytes: sums.0,
            reserved_bytes: sums.1,
            device: Some(device),
            stack: self.stack,
        }));
    }

    /// Sets the call stack of the next blocks.
    fn call_from(&mut self, caller: u64) {
        let location = Location {
            address: caller,
            module: None,
            offset: caller,
        };
        let stack = CallStack {
            locations: vec![location],
            is_complete: true,
        };
        self.ledger.set_stack(PID, caller, Rc::new(stack));
        self.stack = caller;
    }

    /// Address of the caller at this site.
    fn caller(&self, site: u32) -> u64 {
        let site = self.allocator().blocks.sites.get(site).unwrap();
        site.stack.as_ref().unwrap().locations[0].address
    }

    fn hand_out(&mut self, address: u64, bytes: u64) {
        self.tensor(0, address, bytes, false);
    }

    fn take_back(&mut self, address: u64) {
        let bytes = self.blocks.get(&(0, address)).copied().unwrap_or(512);
        self.tensor(0, address, bytes, true);
    }

    fn request(&mut self, address: u64, bytes: u64) {
        self.apply(&Event::Request(TensorRequest {
            pid: PID,
            address,
            bytes,
            stream: 0,
        }));
    }

    fn process(&self) -> &Process {
        self.ledger.process_of(PID).unwrap()
    }

    /// The only allocator of the process.
    fn allocator(&self) -> &Allocator {
        let mut all = self.process().tensors.iter();
        let first = all.next().unwrap();
        assert!(all.next().is_none());
        first
    }

    /// Bytes and number of the live blocks.
    fn live(&self) -> (u64, u64) {
        let live = self.allocator().blocks.totals.sums.gpu;
        (live.bytes, live.allocations)
    }

    /// Requested size of the block at `address`.
    fn asked(&self, address: u64) -> Option<u64> {
        let allocator = self.allocator();
        allocator.asked.get(&address).copied()
    }
}

#[test]
fn sums_are_the_reported_ones_and_the_rest_is_from_before() {
    let mut program = Program::default();
    program.tensor_with_sums(0, (0x1000, 512), false, (10_512, 20_000));
    program.tensor_with_sums(0, (0x2000, 1024), false, (11_536, 20_000));
    let allocator = program.allocator();
    assert!(!allocator.since_start);
    assert_eq!(
        (allocator.allocated_bytes, allocator.reserved_bytes),
        (11_536, 20_000)
    );
    assert_eq!(allocator.bytes_from_before(), 10_000);
    // Frees of a block allocated before tracing, of a known one, and of that one again.
    program.tensor_with_sums(0, (0x9000, 4000), true, (7536, 20_000));
    assert_eq!(program.allocator().bytes_from_before(), 6000);
    program.tensor_with_sums(0, (0x1000, 512), true, (7024, 18_000));
    program.tensor_with_sums(0, (0x1000, 512), true, (7024, 18_000));
    let allocator = program.allocator();
    assert_eq!(allocator.bytes_from_before(), 6000);
    assert_eq!(
        (
            allocator.allocations,
            allocator.frees,
            allocator.unknown_frees
        ),
        (2, 3, 2)
    );
    assert_eq!(
        (
            allocator.peak_allocated_bytes,
            allocator.peak_reserved_bytes
        ),
        (11_536, 20_000)
    );
    assert_eq!(program.live(), (1024, 1));
    // None of it is memory of the process itself.
    assert_eq!(program.process().totals.sums.all().bytes, 0);
    assert_eq!(program.ledger.counts.unknown_frees, 0);
}

#[test]
fn changes_are_blocks_and_sums() {
    let mut program = Program::default();
    program.ledger.changes.is_enabled = true;
    program.call("cudaMalloc", 0x1000, 100);
    program.reserved = 100;
    program.hand_out(0x1000, 40);
    assert_eq!(program.ledger.changes.list.len(), 1);
    program.ledger.changes.with_tensors = true;
    program.hand_out(0x1000, 60);
    program.tensor_with_sums(0, (0x1000, 60), true, (30, 100));
    program.take_back(0x5000);
    program.call("cudaFree", 0x1000, 0);
    let changes = program.ledger.changes.list.drain(1..);
    let found: Vec<_> = changes
        .map(|change| match change {
            Change::Tensors(change) => {
                let bytes = |block: Option<Allocation>| block.map(|block| block.size_bytes);
                let sums = (change.bytes_from_before, change.reserved_bytes);
                (bytes(change.allocated), bytes(change.freed), sums)
            }
            _ => (None, None, (0, 0)),
        })
        .collect();
    let expected = [
        (Some(60), Some(40), (0, 100)),
        (None, Some(60), (30, 100)),
        (None, None, (60, 100)),
        (None, None, (60, 0)),
        // The call has freed the segment.
        (None, None, (0, 0)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_first_event_says_whether_anything_was_missed() {
    for (bytes, is_free, allocated, expected) in [
        (512, false, 512, true),
        (512, false, 1024, false),
        (512, true, 0, false),
    ] {
        let mut program = Program::default();
        program.tensor_with_sums(0, (0x1000, bytes), is_free, (allocated, 4096));
        program.tensor_with_sums(0, (0x3000, 512), false, (512, 4096));
        assert_eq!(
            program.allocator().since_start,
            expected,
            "{bytes} {is_free} {allocated}"
        );
    }
}

#[test]
fn devices_are_separate_and_bounded() {
    let mut program = Program::default();
    for device in (0..MAX_DEVICES + 10).rev() {
        program.tensor(device, 0x1000, 512 * (1 + u64::from(device)), false);
    }
    let tensors = &program.process().tensors;
    let devices: Vec<_> = tensors.iter().map(|allocator| allocator.device).collect();
    assert!(devices.is_sorted());
    assert_eq!(devices.len(), super::MAX_ALLOCATORS);
    assert_eq!(devices.last(), Some(&(MAX_DEVICES - 1)));
    for allocator in tensors.iter() {
        let bytes = 512 * (1 + u64::from(allocator.device));
        assert_eq!(allocator.blocks.totals.sums.gpu.bytes, bytes);
        assert_eq!(allocator.allocated_bytes, bytes);
    }
    let left_out = usize::from(MAX_DEVICES) + 10 - devices.len();
    assert_eq!(program.ledger.left_out().tensors, left_out as u64);
}

/// A step on one of a few addresses.
#[derive(Clone, Copy, Debug)]
enum Step {
    HandOut(u64, u64),
    TakeBack(u64),
    Ask(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let address = || (1u64..12).prop_map(|n| n * 0x10_0000);
    let bytes = || prop_oneof![0u64..2000, 60_000u64..200_000];
    prop_oneof![
        3 => (address(), bytes()).prop_map(|(at, bytes)| Step::HandOut(at, bytes)),
        2 => address().prop_map(Step::TakeBack),
        3 => (address(), bytes()).prop_map(|(at, bytes)| Step::Ask(at, bytes)),
    ]
}

proptest! {
    /// Compares with a map of blocks.
    #[test]
    fn sums_are_those_of_the_blocks(steps in proptest::collection::vec(step(), 1..300)) {
        let mut program = Program::default();
        let mut truth: BTreeMap<u64, (u64, Option<u64>)> = BTreeMap::new();
        let (mut calls, mut peak) = ([0, 0, 0], 0);
        // Creates the allocator.
        program.hand_out(0, 0);
        program.take_back(0);
        for step in steps {
            match step {
                Step::HandOut(address, bytes) => {
                    program.hand_out(address, bytes);
                    truth.insert(address, (bytes, None));
                    calls[0] += 1;
                }
                Step::TakeBack(address) => {
                    program.take_back(address);
                    calls[1] += 1;
                    calls[2] += u64::from(truth.remove(&address).is_none());
                }
                Step::Ask(address, bytes) => {
                    program.request(address, bytes);
                    if let Some((size, asked)) = truth.get_mut(&address) {
                        *asked = Some(bytes.min(*size));
                    }
                }
            }
            let bytes: u64 = truth.values().map(|(bytes, _)| bytes).sum();
            peak = peak.max(bytes);
            prop_assert_eq!(program.live(), (bytes, truth.len() as u64));
            let allocator = program.allocator();
            prop_assert_eq!(allocator.bytes_from_before(), 0);
            prop_assert_eq!(allocator.peak_allocated_bytes, peak);
            let found = [allocator.allocations - 1, allocator.frees - 1, allocator.unknown_frees];
            prop_assert_eq!(found, calls);
            let asked = truth.values().filter_map(|(_, asked)| *asked);
            let requested = asked.clone().sum::<u64>();
            prop_assert_eq!(allocator.requested.bytes, requested);
            prop_assert_eq!(allocator.requested.allocations, asked.count() as u64);
            for (&address, (_, asked)) in &truth {
                prop_assert_eq!(program.asked(address), *asked);
            }
        }
    }
}
