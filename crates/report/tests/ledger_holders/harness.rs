//! Shared by the oracles: calls as the BPF programs send them, and sums.

use std::collections::BTreeMap;
use std::rc::Rc;

use gpuprobe_cuda::{Belongs, FUNCTIONS, MemoryKind};
use gpuprobe_engine::totals::{MemorySums, Total};
use gpuprobe_engine::{CallSite, Ledger, Process};
use gpuprobe_model::event::{Call, Detail, Event, Task};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Location, NoSymbols};
use gpuprobe_report::profile::{ProfileScope, Weight, of_ledger};

pub(crate) const PID: u32 = 7;

/// Memory that the driver has allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) kind: MemoryKind,
    pub(crate) bytes: u64,
    /// Device index; `None` on the host.
    pub(crate) device: Option<u16>,
}

/// Arguments of a call besides address, size and device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Args {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) device: Option<u16>,
    pub(crate) context: u16,
    pub(crate) captured: bool,
    pub(crate) tid: u32,
    pub(crate) out: u64,
    pub(crate) stream: u64,
    pub(crate) values: [u64; 8],
}

/// The sums that the ledger keeps of a process.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summed {
    sums: MemorySums,
    kinds: BTreeMap<MemoryKind, Total>,
    devices: BTreeMap<Option<u16>, Total>,
}

/// The ledger, and the expected counts.
pub(crate) struct World {
    pub(crate) ledger: Ledger,
    now_ns: u64,
    open: Vec<Call>,
    allocs: u64,
    frees: u64,
    failed: u64,
    peak_bytes: u64,
}

impl World {
    /// A process that is traced from its start.
    pub(crate) fn new() -> Self {
        let mut ledger = Ledger::default();
        for number in 1..=3 {
            ledger.set_stack(PID, number, stack(number));
        }
        ledger.apply(&Event::Process(task(PID)), |_| Identity::default());
        Self {
            ledger,
            now_ns: 0,
            open: Vec::new(),
            allocs: 0,
            frees: 0,
            failed: 0,
            peak_bytes: 0,
        }
    }

    pub(crate) fn process(&self) -> &Process {
        self.ledger.live_processes().next().unwrap()
    }

    /// Whether the driver has acted on calls that the ledger has not seen yet.
    pub(crate) fn is_behind(&self) -> bool {
        !self.open.is_empty()
    }

    fn tick(&mut self) -> u64 {
        self.now_ns += 1;
        self.now_ns
    }

    fn make(&mut self, symbol: &str, result: i32, args: Args) -> Call {
        let is_it = |f: &gpuprobe_cuda::Function| f.symbol == symbol;
        let row = FUNCTIONS.iter().position(is_it).unwrap();
        let start_ns = self.tick();
        let thread = u32::try_from(start_ns / 3 % 3).unwrap();
        Call {
            row: u16::try_from(row).unwrap(),
            function: &FUNCTIONS[row],
            result,
            pid: PID,
            tid: PID + args.tid + thread,
            start_ns,
            end_ns: 0,
            address: args.address,
            size_bytes: args.bytes,
            device: args.device,
            context: args.context,
            captured: args.captured,
            // 1 and 3 are the same stack, 4 is unknown.
            stack: start_ns / 2 % 5,
            detail: Some(Box::new(Detail {
                out: args.out,
                stream: args.stream,
                values: args.values,
                name: None,
            })),
        }
    }

    fn send(&mut self, mut call: Call) {
        call.end_ns = self.tick();
        let op = call.function.op;
        if call.result != 0 {
            self.failed += u64::from(op.is_memory());
        } else if !call.captured {
            self.allocs += u64::from(op.allocates());
            self.frees += u64::from(op.frees());
        }
        let (tid, ends) = (call.tid, call.end_ns.is_multiple_of(5));
        self.ledger
            .apply(&Event::Call(call), |_| Identity::default());
        // Threads come and go; a thread within a call cannot end.
        if ends && !self.open.iter().any(|call| call.tid == tid) {
            let exit = Event::ThreadExit(task(tid));
            self.ledger.apply(&exit, |_| Identity::default());
        }
    }

    /// A call that succeeds and is seen at once.
    pub(crate) fn call(&mut self, symbol: &str, args: Args) {
        let call = self.make(symbol, 0, args);
        self.send(call);
    }

    /// A call that takes effect now, and returns later.
    pub(crate) fn enter(&mut self, symbol: &str, args: Args) {
        let call = self.make(symbol, 0, args);
        self.open.push(call);
    }

    /// The n-th open call returns.
    pub(crate) fn leave(&mut self, n: usize) {
        if !self.open.is_empty() {
            let call = self.open.swap_remove(n % self.open.len());
            self.send(call);
        }
    }

    pub(crate) fn leave_all(&mut self) {
        while self.is_behind() {
            self.leave(0);
        }
    }

    /// Compares every sum. While calls are open, the ledger may still hold memory that the driver
    /// has taken back, but must have all that the driver holds.
    pub(crate) fn check(&mut self, live: impl Iterator<Item = Held>) {
        let live: Vec<Held> = live.collect();
        let mut want = Summed::default();
        for held in &live {
            want.add(held.kind, held.bytes, held.device);
        }
        let process = self.process();
        let got = Summed {
            sums: process.totals.sums,
            kinds: process.totals.kinds().collect(),
            devices: process.devices().into_iter().collect(),
        };
        assert_eq!(got, listed(process), "the list, and the sums by kind");
        let mut by_thread = MemorySums::default();
        for thread in process.threads() {
            by_thread.gpu.merge(thread.live.gpu);
            by_thread.host.merge(thread.live.host);
            by_thread.imported.merge(thread.live.imported);
        }
        assert_eq!(got.sums, by_thread, "the process, and its threads");
        check_threads(process);
        let profile = of_ledger(&self.ledger, &NoSymbols, ProfileScope::default(), None);
        let Total { bytes, allocations } = got.sums.gpu;
        assert_eq!(profile.sum, Total { bytes, allocations });
        let peak = ProfileScope {
            weight: Weight::Peak,
            ..ProfileScope::default()
        };
        let at_peak = of_ledger(&self.ledger, &NoSymbols, peak, None);
        assert_eq!(
            at_peak.sum.bytes, self.ledger.peak_bytes,
            "sites at the peak"
        );
        check_sites(process);
        let peak_bytes = process.peak_bytes;
        self.peak_bytes = self.peak_bytes.max(got.sums.gpu.bytes);
        assert!(peak_bytes >= self.peak_bytes, "{peak_bytes} at most");
        if self.is_behind() {
            assert!(
                got.sums.gpu.bytes >= want.sums.gpu.bytes,
                "{got:?} {want:?}"
            );
            assert!(got.sums.host.bytes >= want.sums.host.bytes);
        } else {
            assert_eq!(got, want);
        }
        let counts = &self.ledger.counts;
        assert_eq!(counts.alloc_calls, self.allocs);
        assert_eq!(counts.free_calls, self.frees);
        assert_eq!(counts.failed_calls, self.failed);
        assert_eq!(counts.unknown_frees, 0);
    }
}

fn task(tid: u32) -> Task {
    Task {
        from_birth: true,
        inner_pid: PID,
        cgroup: 0,
        pid: PID,
        tid,
        uid: 1000,
        process: 1,
        time_ns: 0,
        comm: "train".into(),
    }
}

fn stack(number: u64) -> Rc<CallStack> {
    let address = if number == 3 { 1 } else { number };
    let locations = vec![Location {
        address,
        module: None,
        offset: address,
    }];
    Rc::new(CallStack {
        locations,
        is_complete: true,
    })
}

/// Memory of a thread is the sum of its allocations.
fn check_threads(process: &Process) {
    let mut live: BTreeMap<u32, MemorySums> = BTreeMap::new();
    for allocation in process.allocations() {
        let (bytes, allocations) = (allocation.size_bytes, 1);
        let sums = live.entry(allocation.tid()).or_default();
        side(sums, allocation.belongs()).merge(Total { bytes, allocations });
    }
    let holding = process.threads().filter(|thread| !thread.live.is_empty());
    let threads: BTreeMap<_, _> = holding.map(|thread| (thread.tid, thread.live)).collect();
    assert_eq!(threads, live, "the list, and the threads");
}

/// Sites add up to the process, and memory allocated and not freed at each is live.
fn check_sites(process: &Process) {
    let mut all = MemorySums::default();
    for (number, site) in process.sites.iter().enumerate() {
        let mut live = MemorySums::default();
        for allocation in process.allocations() {
            if allocation.site as usize == number {
                let (bytes, allocations) = (allocation.size_bytes, 1);
                side(&mut live, allocation.belongs()).merge(Total { bytes, allocations });
                assert_eq!(allocation.row, site.row);
            }
        }
        assert_eq!(live, site.live, "the list, and the sites");
        for belongs in [Belongs::Gpu, Belongs::Host, Belongs::Elsewhere] {
            let of = |sums: MemorySums| *side(&mut { sums }, belongs);
            let CallSite {
                allocated, freed, ..
            } = *site;
            let mut sum = of(freed);
            sum.merge(of(live));
            assert_eq!(of(allocated), sum, "at one site");
            side(&mut all, belongs).merge(of(live));
        }
    }
    assert_eq!(process.totals.sums, all, "the process, and its sites");
    let same = |a: &CallSite, b: &CallSite| a.row == b.row && a.stack == b.stack;
    let sites: Vec<_> = process.sites.iter().collect();
    let twice = |n: usize| sites[n + 1..].iter().any(|other| same(sites[n], other));
    assert!(!(0..sites.len()).any(twice), "a site is listed twice");
}

fn side(sums: &mut MemorySums, belongs: Belongs) -> &mut Total {
    match belongs {
        Belongs::Gpu => &mut sums.gpu,
        Belongs::Host => &mut sums.host,
        Belongs::Elsewhere => &mut sums.imported,
    }
}

/// The same sums, computed from the list of allocations.
fn listed(process: &Process) -> Summed {
    let mut summed = Summed::default();
    for allocation in process.allocations() {
        let at_host = allocation.belongs() == Belongs::Host;
        let device = allocation.device().filter(|_| !at_host);
        summed.add(allocation.kind(), allocation.size_bytes, device);
    }
    summed
}

impl Summed {
    fn add(&mut self, kind: MemoryKind, bytes: u64, device: Option<u16>) {
        let one = Total {
            bytes,
            allocations: 1,
        };
        let belongs = match kind.belongs() {
            Belongs::Gpu if device.is_none() => Belongs::Host,
            other => other,
        };
        match belongs {
            Belongs::Gpu => {
                self.sums.gpu.merge(one);
                self.devices.entry(device).or_default().merge(one);
            }
            Belongs::Host => self.sums.host.merge(one),
            Belongs::Elsewhere => self.sums.imported.merge(one),
        }
        self.kinds.entry(kind).or_default().merge(one);
    }
}

/// The lowest number from `first`, in steps of `step`, that is not in use.
pub(crate) fn lowest(first: u64, step: u64, used: impl Fn(u64) -> bool) -> u64 {
    let mut number = first;
    while used(number) {
        number += step;
    }
    number
}
