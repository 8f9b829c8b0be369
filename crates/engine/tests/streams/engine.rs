//! The engine, the clock, and what is expected of all processes together.

use std::collections::BTreeMap;

use gpuprobe_cuda::{FUNCTIONS, Modes};
use gpuprobe_engine::{AddressKind, Allocation, Change, Identity, State};
use gpuprobe_model::event::{Call, Detail, Event, Task};

/// Arguments and results of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Args {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) device: Option<u16>,
    pub(crate) context: u16,
    pub(crate) captured: bool,
    pub(crate) out: u64,
    pub(crate) stream: u64,
    pub(crate) values: [u64; 8],
}

/// A live system of which nothing else is known.
struct NoHost;

impl gpuprobe_engine::HostInfo for NoHost {
    fn identity(&self, task: &Task) -> Identity {
        Identity {
            single_gpu: task.comm == "one",
            ..Identity::default()
        }
    }

    fn kernel_at(&self, _: u32, _: u64) -> Option<String> {
        None
    }

    fn variable_size(&self, _: u32, _: &str) -> Option<u64> {
        None
    }

    fn place(&self, _: u32, _: u64) -> Option<AddressKind> {
        None
    }
}

/// Numbers of calls.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) allocations: u64,
    pub(crate) frees: u64,
    pub(crate) failed: u64,
    pub(crate) unknown_frees: u64,
    pub(crate) null_frees: u64,
}

pub(crate) struct Engine {
    pub(crate) state: State,
    now_ns: u64,
    pub(crate) expected: Expected,
    /// GPU memory by live process, bytes.
    held: BTreeMap<u32, u64>,
    peak: (u64, Option<u64>),
    /// Live memory by process, according to the changes that the engine reported.
    changed: BTreeMap<u32, Vec<Allocation>>,
}

impl Engine {
    pub(crate) fn new() -> Self {
        let mut state = State::default();
        state.watch(true);
        Self {
            state,
            now_ns: 0,
            expected: Expected::default(),
            held: BTreeMap::new(),
            peak: (0, None),
            changed: BTreeMap::new(),
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(crate) fn tick(&mut self) -> u64 {
        self.now_ns += 1;
        self.now_ns
    }

    /// A call of `pid` that is entered now.
    pub(crate) fn enter(&mut self, pid: u32, symbol: &str, args: Args) -> Call {
        let row = FUNCTIONS.iter().position(|f| f.symbol == symbol).unwrap();
        let start_ns = self.tick();
        let thread = u32::try_from(start_ns % 3).unwrap();
        Call {
            row: u16::try_from(row).unwrap(),
            function: &FUNCTIONS[row],
            result: 0,
            pid,
            tid: pid + thread,
            start_ns,
            end_ns: 0,
            address: args.address,
            size_bytes: args.bytes,
            device: args.device,
            context: args.context,
            captured: args.captured,
            stack: 0,
            detail: Some(Box::new(Detail {
                out: args.out,
                stream: args.stream,
                values: args.values,
                name: None,
            })),
        }
    }

    /// The call returns: its event is sent. Returns the time of its return.
    pub(crate) fn leave(&mut self, mut call: Call) -> u64 {
        let op = call.function.op;
        if call.result != 0 {
            self.expected.failed += u64::from(op.is_memory());
        } else if !call.captured {
            self.expected.allocations += u64::from(op.allocates());
            self.expected.frees += u64::from(op.frees());
        }
        call.end_ns = self.tick();
        let (pid, end_ns) = (call.pid, call.end_ns);
        self.send(pid, &Event::Call(call));
        end_ns
    }

    pub(crate) fn send(&mut self, pid: u32, event: &Event) {
        let modes = Modes {
            memleak: true,
            bandwidth_util: true,
            ..Modes::default()
        };
        self.state.apply(event, modes, &NoHost);
        let live = self.changed.entry(pid).or_default();
        for change in self.state.changes().drain(..) {
            match change {
                Change::Allocated(block) => live.push(block.allocation),
                Change::Freed(block) | Change::Superseded(block) => {
                    let is_it = |other: &Allocation| *other == block.allocation;
                    let index = live.iter().position(is_it).unwrap();
                    live.swap_remove(index);
                }
                _ => {}
            }
        }
    }

    /// `pid` holds this much GPU memory after the event at `at_ns`.
    pub(crate) fn settle(&mut self, pid: u32, bytes: u64, at_ns: u64) {
        self.held.insert(pid, bytes);
        let sum = self.held.values().sum();
        if sum > self.peak.0 {
            self.peak = (sum, Some(at_ns));
        }
    }

    /// `pid` is gone.
    pub(crate) fn end(&mut self, pid: u32) {
        self.held.remove(&pid);
        self.changed.remove(&pid);
    }

    /// Compares what is kept of all processes together, and of `pid` by changes.
    pub(crate) fn check(&self, pid: u32) {
        let ledger = &self.state.ledger;
        assert_eq!((ledger.peak_bytes, ledger.peak_ns), self.peak);
        let counts = &ledger.counts;
        let counted = Expected {
            allocations: counts.alloc_calls,
            frees: counts.free_calls,
            failed: counts.failed_calls,
            unknown_frees: counts.unknown_frees,
            null_frees: counts.null_frees,
        };
        assert_eq!(counted, self.expected);
        assert_eq!(ledger.left_out().memory, 0);
        if let Some(process) = ledger.process_of(pid) {
            let live = process.allocations().copied().collect();
            assert_eq!(by_key(live), by_key(self.changed[&pid].clone()), "changes");
        }
    }
}

fn by_key(mut list: Vec<Allocation>) -> Vec<Allocation> {
    list.sort_unstable_by_key(|a| (a.kind(), a.address));
    list
}
