//! Lookup of addresses, compared with a list of all blocks ever allocated.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use gpuprobe_cuda::FUNCTIONS;
use gpuprobe_engine::{AddressKind, Ledger};
use gpuprobe_model::event::{Call, Event, Task};
use proptest::collection::vec;
use proptest::prelude::*;

const PAGE: u64 = 4096;
const PAGES: u64 = 16;

/// A step of a simulated program.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Allocate a number of pages at a page, on a device, if there is room.
    Allocate(u64, u64, u16),
    /// Free the n-th live block.
    Free(usize),
    /// Free the n-th live block; another thread is given its address before the free has returned.
    FreeAndReuse(usize, u16),
    /// End, and start again with the same PID.
    Exit,
}

/// A block, with the time of its allocation and of its end.
#[derive(Clone, Copy, Debug)]
struct Block {
    pid: u32,
    start: u64,
    bytes: u64,
    device: u16,
    from_ns: u64,
    until_ns: u64,
}

impl Block {
    fn has(&self, pid: u32, address: u64) -> bool {
        self.pid == pid && (self.start..self.start + self.bytes).contains(&address)
    }

    fn is_live(&self) -> bool {
        self.until_ns == u64::MAX
    }
}

/// Blocks as the driver knows them, and the events in the order of the ring buffer.
#[derive(Default)]
struct Oracle {
    now_ns: u64,
    blocks: Vec<Block>,
    events: Vec<Event>,
}

fn call(symbol: &str, pid: u32, address: u64, bytes: u64, times: (u64, u64)) -> Call {
    let found = (0u16..).zip(FUNCTIONS).find(|(_, f)| f.symbol == symbol);
    let (row, function) = found.unwrap();
    Call {
        row,
        function,
        result: 0,
        pid,
        tid: pid,
        start_ns: times.0,
        end_ns: times.1,
        address,
        size_bytes: bytes,
        device: None,
        context: 0,
        captured: false,
        stack: 0,
        detail: None,
    }
}

impl Oracle {
    fn tick(&mut self) -> u64 {
        self.now_ns += 10;
        self.now_ns
    }

    fn allocated(&mut self, block: Block, start_ns: u64) {
        let times = (start_ns, block.from_ns);
        self.blocks.push(block);
        self.events.push(Event::Call(Call {
            device: Some(block.device),
            ..call("cuMemAlloc_v2", block.pid, block.start, block.bytes, times)
        }));
    }

    fn step(&mut self, pid: u32, step: Step) {
        let start_ns = self.tick();
        let is_live = |block: &&mut Block| block.pid == pid && block.is_live();
        match step {
            Step::Allocate(page, pages, device) => {
                let (start, bytes) = (page * PAGE, pages * PAGE);
                let mut others = self.blocks.iter().filter(|b| b.pid == pid && b.is_live());
                if others.any(|b| b.start < start + bytes && start < b.start + b.bytes) {
                    return;
                }
                let block = Block {
                    pid,
                    start,
                    bytes,
                    device,
                    from_ns: self.tick(),
                    until_ns: u64::MAX,
                };
                self.allocated(block, start_ns);
            }
            Step::Free(index) | Step::FreeAndReuse(index, _) => {
                let mut live: Vec<_> = self.blocks.iter_mut().filter(is_live).collect();
                if live.is_empty() {
                    return;
                }
                let index = index % live.len();
                live[index].until_ns = start_ns;
                let gone = *live[index];
                if let Step::FreeAndReuse(_, device) = step {
                    // The allocating call of the other thread was entered before the free.
                    let block = Block {
                        device,
                        from_ns: self.tick(),
                        until_ns: u64::MAX,
                        ..gone
                    };
                    self.allocated(block, start_ns - 5);
                }
                let end_ns = self.tick();
                let times = (start_ns, end_ns);
                let free = call("cuMemFree_v2", pid, gone.start, 0, times);
                self.events.push(Event::Call(free));
            }
            Step::Exit => {
                for block in self.blocks.iter_mut().filter(is_live) {
                    block.until_ns = start_ns;
                }
                self.events.push(Event::Exit(Task {
                    pid,
                    tid: pid,
                    uid: 0,
                    process: pid,
                    from_birth: true,
                    inner_pid: pid,
                    cgroup: 0,
                    time_ns: start_ns,
                    comm: String::new(),
                }));
            }
        }
    }

    /// A copy that begins at `at_ns` gets the true location of every page.
    fn check(&self, ledger: &Ledger, at_ns: u64) {
        for (pid, page) in (1..=2).flat_map(|pid| (0..2 * PAGES).map(move |page| (pid, page))) {
            for address in [page * PAGE, page * PAGE + PAGE - 1] {
                let found = ledger.find_address(pid, address, at_ns);
                let mut ever = self
                    .blocks
                    .iter()
                    .filter(|b| b.has(pid, address))
                    .peekable();
                if ever.peek().is_none() {
                    assert_eq!(found, None, "{pid} {address:#x}");
                }
                // In between, no block was there: any answer is fine but an impossible one.
                assert_ne!(found, Some(AddressKind::Host));
                if let Some(block) = ever.find(|b| b.from_ns <= at_ns && at_ns < b.until_ns) {
                    let expected = Some(AddressKind::Device(Some(block.device)));
                    assert_eq!(
                        found, expected,
                        "{pid} {address:#x} at {at_ns} ns: {block:?}"
                    );
                }
            }
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<(u32, Step)>> {
    let step = prop_oneof![
        6 => (1..PAGES, 1..5u64, 0..2u16).prop_map(|(page, pages, device)| {
            Step::Allocate(page, pages, device)
        }),
        3 => any::<usize>().prop_map(Step::Free),
        2 => (any::<usize>(), 0..2u16).prop_map(|(index, device)| Step::FreeAndReuse(index, device)),
        1 => Just(Step::Exit),
    ];
    vec((1..=2u32, step), 1..60)
}

proptest! {
    #[test]
    fn late_copies_get_the_location_of_their_time(
        steps in steps(), reports in any::<bool>(), apart in any::<bool>()
    ) {
        let mut oracle = Oracle::default();
        for (pid, step) in steps {
            oracle.step(pid, step);
        }
        let mut ledger = Ledger::default();
        ledger.index_addresses();
        for event in &oracle.events {
            if apart {
                ledger.apply_unreported(event);
            } else {
                ledger.apply(event, |_| Default::default());
            }
            if reports {
                ledger.mark_reported();
            }
        }
        // Copies arrive after all other events.
        for at_ns in (0..oracle.now_ns + 20).step_by(5) {
            oracle.check(&ledger, at_ns);
        }
    }
}

/// Once its free is entered, memory of a block may be in use by another thread, before the free
/// returns.
#[test]
fn a_block_ends_when_its_free_is_entered() {
    let mut ledger = Ledger::default();
    ledger.index_addresses();
    let mut apply = |symbol, pages: (u64, u64), device, times| {
        let (start, bytes) = (pages.0 * PAGE, pages.1 * PAGE);
        let call = Call {
            device,
            ..call(symbol, 7, start, bytes, times)
        };
        ledger.apply_unreported(&Event::Call(call));
    };
    apply("cuMemAlloc_v2", (2, 1), Some(0), (10, 20));
    // Overlaps the first block, on another thread and device, while its free has not returned.
    apply("cuMemAlloc_v2", (1, 4), Some(1), (110, 120));
    apply("cuMemFree_v2", (2, 1), None, (100, 200));
    apply("cuMemFree_v2", (1, 4), None, (160, 170));
    let at = |at_ns| ledger.find_address(7, 2 * PAGE + 5, at_ns);
    assert_eq!(at(99), Some(AddressKind::Device(Some(0))));
    assert_eq!(at(150), Some(AddressKind::Device(Some(1))));
    assert_eq!(at(160), None);
    assert_eq!(at(199), None);
}

#[test]
fn nothing_is_indexed_unless_asked_for() {
    let mut ledger = Ledger::default();
    let made = Event::Call(call("cuMemAlloc_v2", 7, PAGE, PAGE, (1, 2)));
    ledger.apply(&made, |_| Default::default());
    assert_eq!(ledger.find_address(7, PAGE, 10), None);
}
