//! Memory calls as the BPF side sends them, with simple oracles.

use std::rc::Rc;

use gpuprobe_cuda::FUNCTIONS;
use gpuprobe_engine::Ledger;
use gpuprobe_model::abi::{RawCall, record};
use gpuprobe_model::event::{Call, Event, Task};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Location};
use zerocopy::FromZeros;

pub(crate) const PID: u32 = 4242;
/// Distance between two allocations, as drivers align them.
const STRIDE: u64 = 512;

pub(crate) fn row(symbol: &str) -> u16 {
    let row = FUNCTIONS.iter().position(|f| f.symbol == symbol).unwrap();
    u16::try_from(row).unwrap()
}

/// A successful call of `symbol` with default values.
pub(crate) fn call(symbol: &str) -> Call {
    let row = row(symbol);
    Call {
        row,
        function: &FUNCTIONS[usize::from(row)],
        result: 0,
        pid: PID,
        tid: PID,
        start_ns: 0,
        end_ns: 0,
        address: 0,
        size_bytes: 0,
        device: Some(0),
        context: 0,
        captured: false,
        stack: 0,
        detail: None,
    }
}

/// The same call as a raw record; every second one is a free.
pub(crate) fn raw(number: u64) -> RawCall {
    let is_free = number % 2 == 1;
    let time = 1_000_000_000 + number * 3_000;
    let mut call = RawCall::new_zeroed();
    call.record_type = record::CALL;
    call.row = row(if is_free { "cudaFree" } else { "cudaMalloc" });
    (call.tgid, call.tid) = (PID, PID);
    (call.start_ns, call.end_ns) = (time, time + 1_500);
    call.address = 0x7d33_2000_0000 + (number / 2 % 1_000) * 4096;
    call.size = if is_free { 0 } else { 4096 };
    call
}

pub(crate) fn task() -> Task {
    Task {
        pid: PID,
        tid: PID,
        uid: 1000,
        process: 1,
        from_birth: true,
        inner_pid: PID,
        cgroup: 0,
        time_ns: 0,
        comm: "train".into(),
    }
}

/// Number of pairs read from the ring at once.
pub(crate) const PAIRS: usize = 32;

/// Order in which memory is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Random,
    OldestFirst,
}

/// Process and call sites of the allocations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callers {
    pub(crate) threads: u32,
    /// Number of call stacks; 0 for none.
    pub(crate) stacks: u64,
}

pub(crate) const ONE_THREAD: Callers = Callers {
    threads: 1,
    stacks: 0,
};

/// More call sites than a report shows.
pub(crate) const MANY_SITES: Callers = Callers {
    threads: 8,
    stacks: 100_000,
};

/// A ledger with a constant number of live allocations.
pub(crate) struct Load {
    pub(crate) ledger: Ledger,
    pub(crate) live: u64,
    callers: Callers,
    order: Order,
    now_ns: u64,
    turn: u64,
    random: u64,
    alloc: Event,
    free: Event,
}

impl Load {
    pub(crate) fn new(live: u64, callers: Callers, order: Order) -> Self {
        let mut ledger = Ledger::default();
        ledger.apply(&Event::Process(task()), |_| Identity::default());
        for number in 1..=callers.stacks {
            ledger.set_stack(PID, number, stack(number));
        }
        let mut load = Self {
            ledger,
            live,
            callers,
            order,
            now_ns: 1_000_000_000,
            turn: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            alloc: Event::Call(call("cudaMalloc")),
            free: Event::Call(call("cudaFree")),
        };
        for block in 0..live {
            load.allocate(block);
        }
        load
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Frees [`PAIRS`] allocations and makes as many others, like a batch of ring records.
    pub(crate) fn pairs(&mut self) {
        let pairs: [_; PAIRS] = std::array::from_fn(|_| self.next_pair());
        for (old, new) in pairs {
            self.free(old);
            self.allocate(new);
        }
    }

    fn next_pair(&mut self) -> (u64, u64) {
        let turn = self.turn;
        self.turn += 1;
        match self.order {
            Order::Random => {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                let block = self.random % self.live;
                (block, block)
            }
            Order::OldestFirst => (turn, turn + self.live),
        }
    }

    fn allocate(&mut self, block: u64) {
        let Event::Call(call) = &mut self.alloc else {
            return;
        };
        self.now_ns += 1_000;
        call.tid = PID + (block % u64::from(self.callers.threads)) as u32;
        call.stack = match self.callers.stacks {
            0 => 0,
            stacks => 1 + block / 3 % stacks,
        };
        (call.start_ns, call.end_ns) = (self.now_ns, self.now_ns + 500);
        call.address = address(block);
        // A typical program has a few dozen sizes, most of them small.
        call.size_bytes = STRIDE + block % 61 * 8;
        self.ledger.apply(&self.alloc, |_| Identity::default());
    }

    fn free(&mut self, block: u64) {
        let Event::Call(call) = &mut self.free else {
            return;
        };
        self.now_ns += 1_000;
        (call.start_ns, call.end_ns) = (self.now_ns, self.now_ns + 500);
        call.address = address(block);
        self.ledger.apply(&self.free, |_| Identity::default());
    }

    /// Compares the ledger's totals with the oracle.
    pub(crate) fn check(&self) {
        let process = self.ledger.process_of(PID).unwrap();
        assert_eq!(process.totals.sums.gpu.allocations, self.live);
        let counts = &self.ledger.counts;
        assert_eq!(counts.alloc_calls, self.live + self.turn);
        assert_eq!(counts.free_calls, self.turn);
        assert_eq!((counts.unknown_frees, counts.failed_calls), (0, 0));
    }
}

fn address(block: u64) -> u64 {
    0x7d33_0000_0000 + block * STRIDE
}

fn stack(number: u64) -> Rc<CallStack> {
    let location = |depth| Location {
        address: number * 64 + depth,
        module: None,
        offset: number * 64 + depth,
    };
    Rc::new(CallStack {
        locations: (0..12).map(location).collect(),
        is_complete: true,
    })
}
