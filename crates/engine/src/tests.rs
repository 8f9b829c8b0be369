//! All accounts together.

use super::*;
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_model::activity::ActivityBatch;
use gpuprobe_model::event::{Copy, Detail, KernelName};

const PID: u32 = 7;
/// Number of the process, as launch keys have it.
const PROCESS: u32 = 7 << 10;

/// A process with an empty name.
pub(crate) fn task(pid: u32, process: u32, time_ns: u64) -> Task {
    Task {
        pid,
        tid: pid,
        uid: 0,
        process,
        from_birth: true,
        inner_pid: pid,
        cgroup: 0,
        time_ns,
        comm: String::new(),
    }
}

/// A call of one thread, with a size of 8 bytes, on the first device.
pub(crate) fn call(pid: u32, symbol: &str, address: u64, at_ns: u64) -> Event {
    let row = (0u16..)
        .zip(gpuprobe_cuda::FUNCTIONS)
        .find(|(_, f)| f.symbol == symbol);
    let (row, function) = row.unwrap();
    Event::Call(Call {
        pid,
        tid: pid,
        row,
        function,
        result: 0,
        captured: false,
        start_ns: at_ns,
        end_ns: at_ns,
        address,
        size_bytes: 8,
        device: Some(0),
        context: 0,
        stack: 0,
        detail: None,
    })
}

/// Modes with only one of them enabled.
const MEMLEAK: Modes = Modes {
    memleak: true,
    cudatrace: false,
    bandwidth_util: false,
    activity: false,
};
const CUDATRACE: Modes = Modes {
    memleak: false,
    cudatrace: true,
    ..MEMLEAK
};
const BANDWIDTH: Modes = Modes {
    memleak: false,
    bandwidth_util: true,
    ..MEMLEAK
};
const ACTIVITY: Modes = Modes {
    memleak: false,
    activity: true,
    ..MEMLEAK
};
const ALL: Modes = Modes {
    memleak: true,
    cudatrace: true,
    bandwidth_util: true,
    activity: true,
};

/// A host with a variable of 100 bytes, one kernel, and nothing but host memory.
struct Host;

impl HostInfo for Host {
    fn identity(&self, task: &Task) -> Identity {
        Identity {
            command: Some(format!("program {}", task.pid)),
            ..Identity::default()
        }
    }

    fn kernel_at(&self, _: u32, _: u64) -> Option<String> {
        Some("_Z6kernelv".to_owned())
    }

    fn variable_size(&self, pid: u32, name: &str) -> Option<u64> {
        ((pid, name) == (PID, "weights")).then_some(100)
    }

    fn place(&self, _: u32, _: u64) -> Option<AddressKind> {
        Some(AddressKind::Host)
    }
}

fn begun() -> Event {
    Event::Process(task(PID, PROCESS, 0))
}

/// A call that is about a variable.
fn named(symbol: &str, size_bytes: u64, name: &str) -> Event {
    let Event::Call(call) = call(PID, symbol, 0x1000, 10) else {
        unreachable!("it is a call");
    };
    let detail = Detail {
        out: 0x2000,
        name: Some(name.to_owned()),
        ..Detail::default()
    };
    Event::Call(Call {
        size_bytes,
        detail: Some(Box::new(detail)),
        ..call
    })
}

fn copied() -> Event {
    let row = (0u16..).zip(gpuprobe_cuda::FUNCTIONS);
    let (row, function) = row
        .into_iter()
        .find(|(_, f)| f.symbol == "cuMemcpy")
        .unwrap();
    Event::Copy(Copy {
        row,
        function,
        result: 0,
        pid: PID,
        tid: PID,
        start_ns: 100,
        end_ns: 200,
        bytes: 1 << 20,
        destination: 0x1000,
        source: 0x70_0000,
        kind: 0,
        destination_type: 0,
        captured: false,
        stack: 0,
    })
}

fn launched() -> Event {
    let symbols = gpuprobe_cuda::FUNCTIONS.iter().map(|f| f.symbol);
    let row = symbols
        .into_iter()
        .position(|symbol| symbol == "cudaLaunchKernel")
        .unwrap();
    Event::Kernel(KernelName {
        pid: PID,
        key: RawLaunchKey {
            handle: 0x400,
            process: PROCESS,
            row: u16::try_from(row).unwrap(),
            epoch: 0,
        },
        given: false,
        name: None,
        grid: [1; 3],
        block: [32, 1, 1],
    })
}

fn worked() -> Event {
    Event::Activity(ActivityBatch {
        pid: PID,
        process: PROCESS,
        cupti_version: 26,
        is_last: true,
        activities: Vec::new(),
    })
}

/// The state after a process has done one of everything.
fn state(modes: Modes) -> State {
    let mut state = State::default();
    let called = call(PID, "cuMemAlloc_v2", 0x1000, 10);
    for event in [begun(), called, copied(), launched(), worked()] {
        state.apply(&event, modes, &Host);
    }
    state
}

/// Live bytes, kernels, meters, and processes with activity.
fn counts(state: &State) -> [u64; 4] {
    let process = state.ledger.process_of(PID);
    [
        process.map_or(0, |process| process.totals.sums.gpu.bytes),
        state.launches.counted().count() as u64,
        state.transfers.meters().count() as u64,
        state.activity.processes().count() as u64,
    ]
}

#[test]
fn each_mode_has_its_accounts() {
    assert_eq!(counts(&state(MEMLEAK)), [8, 0, 0, 0]);
    assert_eq!(counts(&state(CUDATRACE)), [0, 1, 0, 0]);
    // Allocations tell where copies go to.
    assert_eq!(counts(&state(BANDWIDTH)), [8, 0, 1, 0]);
    assert_eq!(counts(&state(ACTIVITY)), [0, 0, 0, 1]);
    assert_eq!(counts(&state(ALL)), [8, 1, 1, 1]);
    for modes in [MEMLEAK, CUDATRACE, BANDWIDTH, ACTIVITY, ALL] {
        let mut state = state(modes);
        let process = state.ledger.process_of(PID).unwrap();
        assert_eq!(process.identity.command.as_deref(), Some("program 7"));
        state.apply(&Event::Exit(task(PID, PROCESS, 300)), modes, &Host);
        assert_eq!(state.ledger.live_processes().count(), 0);
    }
}

#[test]
fn the_copy_is_returned_with_its_direction() {
    for (modes, direction) in [
        (MEMLEAK, None),
        (BANDWIDTH, Some(gpuprobe_cuda::Direction::HostToDevice)),
        (ALL, Some(gpuprobe_cuda::Direction::HostToDevice)),
    ] {
        let mut state = state(modes);
        let copy = state.apply(&copied(), modes, &Host);
        assert_eq!(copy.map(|copy| copy.which.direction), direction);
    }
}

#[test]
fn the_size_of_a_variable_is_looked_up_if_the_program_does_not_ask_for_it() {
    for (symbol, size_bytes, name, expected) in [
        ("cuModuleGetGlobal_v2", 0, "weights", 100),
        ("cuModuleGetGlobal_v2", 8, "weights", 8),
        ("cuModuleGetGlobal_v2", 0, "other", 0),
        ("cuLibraryGetGlobal", 0, "weights", 100),
        // On the host, a managed variable is a pointer.
        ("cuLibraryGetManaged", 0, "weights", 0),
        ("cuMemAlloc_v2", 0, "weights", 0),
    ] {
        let mut state = State::default();
        state.apply(&named(symbol, size_bytes, name), MEMLEAK, &Host);
        let process = state.ledger.process_of(PID).unwrap();
        let sizes: Vec<_> = process.allocations().map(|a| a.size_bytes).collect();
        assert_eq!(sizes, [expected], "{symbol} {size_bytes} {name}");
    }
}

#[test]
fn changes_are_recorded_while_they_are_watched() {
    let mut state = State::default();
    let freed = call(PID, "cuMemFree_v2", 0x1000, 20);
    let called = call(PID, "cuMemAlloc_v2", 0x1000, 10);
    state.apply(&called, ALL, &Host);
    assert!(state.changes().is_empty());
    state.watch(true);
    for event in [copied(), launched(), freed.clone()] {
        state.apply(&event, ALL, &Host);
    }
    let changes = std::mem::take(state.changes());
    assert!(
        matches!(
            changes[..],
            [Change::Copied(..), Change::Named(..), Change::Freed(_)]
        ),
        "{changes:?}"
    );
    state.apply(&freed, ALL, &Host);
    assert_eq!(*state.changes(), [Change::UnknownFree(0x1000)]);
    state.watch(false);
    state.apply(&called, ALL, &Host);
    assert!(state.changes().is_empty());
}

#[test]
fn a_report_has_shown_everything() {
    let mut state = state(ALL);
    let Event::Kernel(kernel) = launched() else {
        unreachable!("it is a kernel");
    };
    state.launches.set_counts(kernel.key, 5, 2);
    state.apply(&Event::Exit(task(PID, PROCESS, 300)), ALL, &Host);
    assert_eq!(state.ledger.ended(false).count(), 1);
    state.mark_reported();
    assert_eq!(state.ledger.ended(false).count(), 0);
    assert_eq!(state.ledger.ended(true).count(), 1);
    let launch = state.launches.counted().next().unwrap();
    assert_eq!(launch.counted.runs_reported, 5);
    assert!(launch.launcher.unwrap().end_reported);
    let (_, meter) = state.transfers.meters().next().unwrap();
    assert_eq!((meter.bytes_reported, meter.ns_reported), (1 << 20, 100));
    assert!(state.activity.get(PROCESS).unwrap().end_reported);
}

#[test]
fn dropped_calls_are_counted_as_lost() {
    let mut state = State::default();
    (
        state.ledger.limits.left_out.memory,
        state.launches.names_left_out,
    ) = (3, 7);
    let mut lost = Lost {
        memory: 100,
        names: 300,
        ..Lost::default()
    };
    state.add_left_out(&mut lost);
    assert_eq!((lost.memory, lost.names), (103, 307));
}
