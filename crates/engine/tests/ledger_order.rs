//! Queries that avoid a scan of all allocations, compared with sorting all of them, over random
//! interleavings of calls and queries: a query changes cached limits.

#![allow(missing_docs, clippy::unwrap_used)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gpuprobe_cuda::FUNCTIONS;
use gpuprobe_engine::{Allocation, AllocationOrder, Ledger, Process, Span};
use gpuprobe_model::event::{Call, Event, Task};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Location};
use proptest::prelude::*;

const PID: u32 = 7;
const ALLOCATING: [&str; 3] = ["cudaMalloc", "cudaMallocManaged", "cudaHostAlloc"];
const FREEING: [&str; 3] = ["cudaFree", "cudaFree", "cudaFreeHost"];

/// Selects the allocation to be freed.
#[derive(Clone, Copy, Debug)]
enum Which {
    Oldest,
    Newest,
    Largest,
    Smallest,
    Any(usize),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Allocate a number of times: there are few sizes, so that many are equal.
    Allocate {
        times: usize,
        size: u64,
        thread: u32,
        function: usize,
        stack: u64,
    },
    /// Free a number of times.
    Free(usize, Which),
    /// Free all but a number of allocations.
    FreeAllBut(usize),
    /// An address is handed out again before its free has returned.
    Reuse(usize, u64, u32),
    /// The thread with this id ends.
    EndThread(u32),
    /// Query the first few allocations.
    Ask(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let times = prop_oneof![4 => 1usize..20, 2 => 100usize..400, 1 => Just(4_500usize)];
    let which = prop_oneof![
        Just(Which::Oldest),
        Just(Which::Newest),
        Just(Which::Largest),
        Just(Which::Smallest),
        any::<usize>().prop_map(Which::Any),
    ];
    let allocate = (times, 1u64..6, 0u32..3, 0usize..3, 0u64..3).prop_map(
        |(times, size, thread, function, stack)| Step::Allocate {
            times,
            size,
            thread,
            function,
            stack,
        },
    );
    prop_oneof![
        6 => allocate,
        6 => (1usize..300, which).prop_map(|(times, which)| Step::Free(times, which)),
        1 => (0usize..200).prop_map(Step::FreeAllBut),
        1 => (any::<usize>(), 1u64..6, 0u32..3).prop_map(|(n, size, tid)| Step::Reuse(n, size, tid)),
        1 => (0u32..3).prop_map(Step::EndThread),
        4 => prop_oneof![0usize..15, Just(usize::MAX)].prop_map(Step::Ask),
    ]
}

/// Live memory: by address, its size, time and freeing function.
type Live = BTreeMap<u64, (u64, u64, usize)>;

#[derive(Default)]
struct World {
    ledger: Ledger,
    live: Live,
    now_ns: u64,
    next: u64,
}

impl World {
    fn send(&mut self, symbol: &str, address: u64, size_bytes: u64, thread: u32, stack: u64) {
        let row = FUNCTIONS.iter().position(|f| f.symbol == symbol).unwrap();
        self.now_ns += 10;
        let call = Call {
            row: u16::try_from(row).unwrap(),
            function: &FUNCTIONS[row],
            result: 0,
            pid: PID,
            tid: PID + thread,
            start_ns: self.now_ns - 5,
            // Some calls return at the same time.
            end_ns: self.now_ns / 30 * 30,
            address,
            size_bytes,
            device: Some(0),
            context: 0,
            captured: false,
            stack,
            detail: None,
        };
        self.ledger
            .apply(&Event::Call(call), |_| Identity::default());
    }

    fn allocate(&mut self, address: u64, size: u64, thread: u32, function: usize, stack: u64) {
        self.send(ALLOCATING[function], address, size, thread, stack);
        let end_ns = self.now_ns / 30 * 30;
        self.live.insert(address, (size, end_ns, function));
    }

    fn free(&mut self, address: u64) {
        let (_, _, function) = self.live.remove(&address).unwrap();
        // Later frees may be of allocations that were made at the same time.
        self.now_ns += 30;
        self.send(FREEING[function], address, 0, 1, 0);
    }

    fn choose(&self, which: Which) -> Option<u64> {
        let live = self.live.iter().map(|(&address, &of)| (address, of));
        let chosen = match which {
            Which::Oldest => live.min_by_key(|(address, (_, end, _))| (*end, *address)),
            Which::Newest => live.max_by_key(|(address, (_, end, _))| (*end, *address)),
            Which::Largest => {
                live.max_by_key(|(address, (size, end, _))| (*size, Reverse((*end, *address))))
            }
            Which::Smallest => live.min_by_key(|(address, (size, end, _))| (*size, *end, *address)),
            Which::Any(n) => live.clone().nth(n % self.live.len().max(1)),
        };
        chosen.map(|(address, _)| address)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Allocate {
                times,
                size,
                thread,
                function,
                stack,
            } => {
                for n in 0..times as u64 {
                    self.next += 1;
                    // Addresses rise and fall.
                    let address = 0x1_0000_0000 + (self.next ^ 0x2a) * 512;
                    self.allocate(address, size + n % 3, thread, function, stack);
                }
            }
            Step::Free(times, which) => {
                for _ in 0..times {
                    let Some(address) = self.choose(which) else {
                        break;
                    };
                    self.free(address);
                }
            }
            Step::FreeAllBut(kept) => {
                // Every other one first, so that the rest is scattered.
                let addresses: Vec<_> = self.live.keys().copied().collect();
                for &address in addresses.iter().step_by(2) {
                    if self.live.len() > kept {
                        self.free(address);
                    }
                }
                while self.live.len() > kept {
                    let (&address, _) = self.live.iter().next().unwrap();
                    self.free(address);
                }
            }
            Step::Reuse(n, size, thread) => {
                if let Some(address) = self.choose(Which::Any(n)) {
                    let (_, _, function) = self.live[&address];
                    self.now_ns += 30;
                    self.allocate(address, size, thread, function, 1);
                }
            }
            Step::EndThread(thread) => {
                let task = Task {
                    pid: PID,
                    tid: PID + thread,
                    uid: 0,
                    process: 1,
                    from_birth: true,
                    inner_pid: PID,
                    cgroup: 0,
                    time_ns: self.now_ns,
                    comm: "train".into(),
                };
                let exit = Event::ThreadExit(task);
                self.ledger.apply(&exit, |_| Identity::default());
            }
            Step::Ask(count) => self.ask(count),
        }
    }

    fn ask(&self, count: usize) {
        let Some(process) = self.ledger.process_of(PID) else {
            return;
        };
        let listed = process.allocations();
        let listed: Vec<_> = listed.map(|a| (a.address, a.size_bytes)).collect();
        let set: BTreeSet<_> = listed.iter().copied().collect();
        let want = self.live.iter().map(|(&address, of)| (address, of.0));
        assert_eq!(set, want.collect());
        assert_eq!(listed.len(), set.len(), "an allocation is listed twice");
        for by in [AllocationOrder::Size, AllocationOrder::Age] {
            let first = process.first_by_thread(count, by);
            assert_eq!(first, sorted(process, count, by), "{by:?}");
        }
        assert_eq!(process.spans_by_site(), spans(process));
    }
}

/// The expected lists, by sorting everything.
fn sorted(process: &Process, count: usize, by: AllocationOrder) -> Vec<Vec<&Allocation>> {
    let mut threads = vec![Vec::new(); process.threads().len()];
    for allocation in process.allocations() {
        threads[Process::thread_index(allocation)].push(allocation);
    }
    for thread in &mut threads {
        thread.sort_by_key(|a| match by {
            AllocationOrder::Size => (Reverse(a.size_bytes), a.end_ns, Reverse(0), a.address),
            AllocationOrder::Age => (Reverse(0), a.end_ns, Reverse(a.size_bytes), a.address),
        });
        thread.truncate(count);
    }
    threads
}

/// The expected spans, by a scan of everything.
fn spans(process: &Process) -> Vec<Option<Span>> {
    let of_site = |site: usize| {
        let of_site = process.allocations().filter(|a| a.site as usize == site);
        let of_site: Vec<_> = of_site.collect();
        let kinds: BTreeSet<_> = of_site.iter().map(|a| a.kind()).collect();
        Some(Span {
            oldest_ns: of_site.iter().map(|a| a.end_ns).min()?,
            newest_ns: of_site.iter().map(|a| a.end_ns).max()?,
            kinds: kinds.into_iter().collect(),
        })
    };
    (0..process.sites.iter().len()).map(of_site).collect()
}

fn stack(number: u64) -> Rc<CallStack> {
    let locations = vec![Location {
        address: number,
        module: None,
        offset: number,
    }];
    Rc::new(CallStack {
        locations,
        is_complete: true,
    })
}

fn world() -> World {
    let mut world = World::default();
    for number in [1, 2] {
        world.ledger.set_stack(PID, number, stack(number));
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_first_allocations_match_a_sort(steps in proptest::collection::vec(step(), 1..40)) {
        let mut world = world();
        for step in steps {
            world.step(step);
        }
        for count in [0, 1, 10, usize::MAX] {
            world.ask(count);
        }
    }
}

/// More groups than are kept while empty, and reused.
#[test]
fn ended_threads_leave_nothing() {
    let mut world = world();
    for round in 0..3 {
        for thread in 0..3_000 {
            world.step(Step::Allocate {
                times: 1 + usize::from(thread % 100 == 0),
                size: 1,
                thread: round * 3_000 + thread,
                function: 0,
                stack: u64::from(thread) % 3,
            });
        }
        world.ask(10);
        world.step(Step::FreeAllBut(500));
        for thread in 0..3_000 {
            world.step(Step::EndThread(round * 3_000 + thread));
        }
        world.ask(10);
    }
}
