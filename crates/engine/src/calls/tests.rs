//! Calls of a program, and the memory that it holds after each.

mod contexts;
mod handles;
mod kept;
mod pools_and_graphs;
mod shared;

use gpuprobe_model::event::{Call, Detail, Event};

use crate::change::{Change, Changes};
use crate::{Allocation, Identity, Ledger, Process, call, task};

const PID: u32 = 7;

/// A program of process 7, traced from its start, with the ledger of its memory.
struct Program {
    ledger: Ledger,
    now_ns: u64,
}

impl Program {
    fn new() -> Self {
        let mut program = Self {
            ledger: Ledger::default(),
            now_ns: 1000,
        };
        program.begin(PID);
        program
    }

    /// The same, of which changes are recorded.
    fn recorded() -> Self {
        let mut program = Self::new();
        program.ledger.changes = Changes {
            is_enabled: true,
            ..Changes::default()
        };
        program
    }

    fn begin(&mut self, pid: u32) {
        let begun = Event::Process(task(pid, pid, self.now_ns));
        self.ledger.apply(&begun, |_| Identity {
            command: Some(format!("program {pid}")),
            ..Identity::default()
        });
    }

    /// A successful call of the function `symbol` with 8 bytes on device 0, changed by `with`.
    fn call(&mut self, symbol: &str, address: u64, with: impl FnOnce(&mut Call)) {
        self.now_ns += 10;
        let mut event = call(PID, symbol, address, self.now_ns);
        if let Event::Call(call) = &mut event {
            with(call);
        }
        self.ledger.apply(&event, |_| Identity::default());
    }

    fn process(&self) -> &Process {
        self.ledger.process_of(PID).unwrap()
    }

    fn process_mut(&mut self) -> &mut Process {
        self.ledger.processes.get_mut(PID).unwrap()
    }

    /// Bytes of GPU memory, host memory and imported memory.
    fn bytes(&self) -> [u64; 3] {
        let sums = self.process().totals.sums;
        [sums.gpu, sums.host, sums.imported].map(|sum| sum.bytes)
    }

    fn gpu_bytes(&self) -> u64 {
        self.bytes()[0]
    }

    /// Addresses and sizes of all allocations, by address.
    fn live(&self) -> Vec<(u64, u64)> {
        let all = self.process().allocations();
        let mut all: Vec<_> = all.map(|a| (a.address, a.size_bytes)).collect();
        all.sort_unstable();
        all
    }

    fn at(&self, address: u64) -> &Allocation {
        let mut all = self.process().allocations();
        all.find(|a| a.address == address).unwrap()
    }

    /// Successful allocations, frees, and frees of something unknown.
    fn counts(&self) -> (u64, u64, u64) {
        let counts = &self.ledger.counts;
        (counts.alloc_calls, counts.free_calls, counts.unknown_frees)
    }

    /// The changes since the last call of this function.
    fn changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.ledger.changes.list)
    }
}

fn detail(call: &mut Call) -> &mut Detail {
    call.detail.get_or_insert_default()
}

/// Sets the first of the extra values.
fn values(call: &mut Call, first: &[u64]) {
    detail(call).values[..first.len()].copy_from_slice(first);
}

#[test]
fn sizes_of_arrays_are_computed() {
    let mut program = Program::new();
    program.call("cudaMallocArray", 0xa0, |call| {
        values(call, &[32, 0, 0, 64, 32]);
    });
    program.call("cuArrayCreate_v2", 0xb0, |call| {
        values(call, &[32, 4, 0, 64, 32]);
    });
    // Mapped external memory: its descriptor is not seen.
    program.call("cuExternalMemoryGetMappedMipmappedArray", 0xc0, |_| {});
    let sizes = [(0xa0, 64 * 32 * 4), (0xb0, 64 * 32 * 16), (0xc0, 8)];
    assert_eq!(program.live(), sizes);
    program.call("cudaFreeArray", 0xa0, |_| {});
    program.call("cudaFreeArray", 0xa0, |_| {});
    assert_eq!(program.live(), sizes[1..]);
    assert_eq!(program.counts(), (3, 2, 1));
}

#[test]
fn calls_on_null_count_as_such() {
    let mut program = Program::new();
    program.call("cudaMalloc", 0, |_| {});
    program.call("cudaFree", 0, |_| {});
    assert_eq!(program.counts(), (1, 0, 0));
    assert_eq!(program.ledger.counts.null_frees, 1);
    assert!(program.process().held() == 0);
}

#[test]
fn the_context_of_an_allocation_is_that_of_its_device() {
    let mut program = Program::new();
    let context = |program: &mut Program, address, device, context| {
        program.call("cuMemAlloc_v2", address, |call| {
            (call.device, call.context) = (device, context);
        });
        program.at(address).context
    };
    assert_eq!(context(&mut program, 0x100, Some(1), 5), 5);
    assert_eq!(context(&mut program, 0x200, Some(1), 0xffff), 0);
    assert_eq!(context(&mut program, 0x300, None, 5), 0);
    // Physical memory belongs to no context.
    program.call("cuMemCreate", 0x50, |call| call.context = 5);
    assert_eq!(program.at(1).context, 0);
    program.process_mut().identity.single_gpu = true;
    assert_eq!(context(&mut program, 0x400, None, 5), 5);
    // From a pool of another device than the current one.
    program.call("cuMemPoolCreate", 0x90, |call| call.device = Some(1));
    program.call("cuMemAllocFromPoolAsync", 0x500, |call| {
        values(call, &[0x90]);
        call.context = 5;
    });
    let made = program.at(0x500);
    assert_eq!((made.context, made.device()), (0, Some(1)));
}

#[test]
fn successful_calls_are_counted_by_function() {
    let mut program = Program::new();
    for result in [0, 0, 2] {
        program.call("cudaMalloc", 0x1000, |call| call.result = result);
    }
    program.call("cudaMalloc", 0x1000, |call| call.captured = true);
    let symbols = gpuprobe_cuda::FUNCTIONS.iter().map(|f| f.symbol);
    let row = symbols
        .into_iter()
        .position(|symbol| symbol == "cudaMalloc");
    let counts = &program.ledger.counts;
    assert_eq!((counts.by_row[row.unwrap()], counts.failed_calls), (2, 1));
}

#[test]
fn sizes_that_overflow_saturate() {
    let mut program = Program::new();
    for number in 1..=3 {
        program.call("cudaMalloc", number << 12, |call| {
            call.size_bytes = u64::MAX;
        });
    }
    assert_eq!(program.gpu_bytes(), u64::MAX);
}
