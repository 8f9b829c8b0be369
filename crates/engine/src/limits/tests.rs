use super::*;
use crate::{Identity, Ledger, call, task};
use gpuprobe_model::event::{Event, Task, Tensor};
use std::rc::Rc;

use gpuprobe_model::stack::{CallStack, Location};

/// A ledger with room for so much, and processes `1` and `2` of user 1001.
fn ledger(most: usize) -> Ledger {
    let mut ledger = Ledger {
        limits: LedgerLimits {
            barred: MAX_UNITS - most,
            ..LedgerLimits::default()
        },
        ..Ledger::default()
    };
    for pid in [1, 2] {
        let begun = Task {
            uid: 1001,
            comm: format!("p{pid}"),
            ..task(pid, pid, 0)
        };
        apply(&mut ledger, &Event::Process(begun));
    }
    ledger
}

fn apply(ledger: &mut Ledger, event: &Event) {
    ledger.apply(event, |_| Identity::default());
}

fn live(ledger: &Ledger, pid: u32) -> usize {
    ledger.process_of(pid).unwrap().live.len()
}

#[test]
fn what_is_beyond_the_limit_is_lost_under_its_process() {
    // A site and a thread of each process, too.
    let mut ledger = ledger(100 + 2 * (24 + 2));
    for n in 1..=70 {
        apply(&mut ledger, &call(1, "cudaMalloc", n << 8, n));
    }
    for n in 1..=50 {
        apply(&mut ledger, &call(2, "cudaMalloc", n << 8, 100 + n));
    }
    assert_eq!([1, 2].map(|pid| live(&ledger, pid)), [70, 30]);
    assert_eq!(
        (ledger.left_out().memory, ledger.counts.alloc_calls),
        (20, 120)
    );
    let expected = UserLoss {
        uid: 1001,
        pid: Some(2),
        comm: Some("p2".to_owned()),
        what: "memory".to_owned(),
        count: 20,
    };
    let lost: Vec<_> = ledger.left_out_by_process().collect();
    assert_eq!(lost, [expected]);
    // As much as is freed is kept again.
    for n in 1..=10 {
        apply(&mut ledger, &call(1, "cudaFree", n << 8, 300));
        apply(&mut ledger, &call(2, "cudaMalloc", (1000 + n) << 8, 301));
    }
    assert_eq!([1, 2].map(|pid| live(&ledger, pid)), [60, 40]);
    assert_eq!(ledger.left_out().memory, 20);
}

#[test]
fn what_is_counted_is_given_back_whole() {
    let mut ledger = ledger(1000);
    for n in 1..=100 {
        apply(&mut ledger, &call(1, "cudaMalloc", n << 8, n));
    }
    assert_eq!(ledger.limits.units, 100 + 24 + 2);
    apply(&mut ledger, &Event::Exit(task(1, 1, 400)));
    assert_eq!(ledger.limits.units, 0);
}

#[test]
fn the_free_of_what_was_left_out_is_no_free_of_something_unknown() {
    let mut ledger = ledger(10 + 24 + 2);
    for n in 1..=15 {
        apply(&mut ledger, &call(1, "cudaMalloc", n << 8, n));
    }
    for n in 1..=16 {
        apply(&mut ledger, &call(1, "cudaFree", n << 8, 100 + n));
    }
    let counts = &ledger.counts;
    assert_eq!((counts.free_calls, counts.unknown_frees), (16, 1));
    let process = ledger.process_of(1).unwrap();
    assert!(process.held() == 0 && process.totals.sums.is_empty());
    assert_eq!(ledger.limits.units, 24 + 2);
}

#[test]
fn what_is_left_out_takes_the_place_of_what_was_at_its_address() {
    let mut ledger = ledger(2 + 24 + 2);
    for n in [1, 2, 3, 1] {
        apply(&mut ledger, &call(1, "cudaMalloc", n << 8, n));
    }
    // 3 found no room; neither did 1 again, but the first is gone.
    assert_eq!((live(&ledger, 1), ledger.left_out().memory), (1, 2));
}

#[test]
fn call_sites_are_bounded_and_calls_go_on() {
    let mut ledger = ledger(2000);
    for n in 1..=100 {
        let location = Location {
            address: n,
            module: None,
            offset: n,
        };
        let stack = CallStack {
            locations: vec![location; 20],
            is_complete: true,
        };
        ledger.set_stack(1, n, Rc::new(stack));
        let mut made = call(1, "cudaMalloc", n << 8, n);
        if let Event::Call(call) = &mut made {
            call.stack = n;
        }
        apply(&mut ledger, &made);
    }
    let process = ledger.process_of(1).unwrap();
    let sites = process.sites.iter().len();
    assert!((20..80).contains(&sites), "{sites}");
    assert!(process.kept() < 2100, "{}", process.kept());
    let dropped = ledger.left_out();
    assert_eq!(live(&ledger, 1) as u64 + dropped.memory, 100);
    assert!(dropped.stacks >= 20, "{dropped:?}");
    let of_process = ledger
        .left_out_by_process()
        .find(|loss| loss.what == "stacks");
    assert_eq!(of_process.unwrap().count, ledger.left_out().stacks);
}

#[test]
fn tensors_count_as_allocations_do() {
    let mut ledger = ledger(50 + 24 + 2);
    let tensor = |address: u64, is_free| {
        Event::Tensor(Tensor {
            pid: 1,
            tid: 1,
            row: 1,
            device: Some(0),
            time_ns: address,
            address: address << 8,
            bytes: 512,
            is_free,
            allocated_bytes: 512,
            reserved_bytes: 4096,
            stack: 0,
        })
    };
    for n in 1..=70 {
        apply(&mut ledger, &tensor(n, false));
    }
    for n in 1..=70 {
        apply(&mut ledger, &tensor(n, true));
    }
    let process = ledger.process_of(1).unwrap();
    let allocator = process.tensors.iter().next().unwrap();
    assert_eq!((allocator.allocations, allocator.frees), (70, 70));
    assert_eq!(allocator.unknown_frees, 0);
    assert_eq!(ledger.left_out().tensors, 20);
    assert_eq!(ledger.limits.units, 24 + 2);
}

#[test]
fn handles_without_room_are_left_out_with_their_releases() {
    let mut ledger = ledger(0);
    for symbol in ["cuMemCreate", "cudaIpcOpenMemHandle", "cuModuleLoad"] {
        apply(&mut ledger, &call(1, symbol, 0x50, 10));
    }
    assert_eq!((ledger.left_out().memory, live(&ledger, 1)), (3, 0));
    // Two of them would have allocated memory.
    for (symbol, unknown) in [
        ("cuMemRelease", 0),
        ("cudaIpcCloseMemHandle", 0),
        ("cuMemRelease", 1),
        ("cudaIpcCloseMemHandle", 2),
    ] {
        apply(&mut ledger, &call(1, symbol, 0x50, 20));
        assert_eq!(ledger.counts.unknown_frees, unknown, "{symbol}");
    }
    assert_eq!(
        (ledger.counts.alloc_calls, ledger.counts.free_calls),
        (2, 4)
    );
}

#[test]
fn losses_of_many_processes_are_summed_by_user() {
    let mut limits = LedgerLimits::default();
    let process = |pid, uid| {
        let mut process = Process::new(pid, gpuprobe_cuda::KindSet::ALL);
        process.uid = uid;
        process
    };
    let lose = |limits: &mut LedgerLimits, process: &Process, calls| {
        limits.lose(process, [calls, 0, 0, 0]);
    };
    let user = Some(5);
    let most = u32::try_from(MAX_LOSERS).unwrap();
    for pid in 1..=most {
        lose(&mut limits, &process(pid, user), 1);
    }
    lose(&mut limits, &process(1, user), 9);
    lose(&mut limits, &process(most + 1, user), 20);
    lose(&mut limits, &process(most + 2, user), 30);
    lose(&mut limits, &process(1, None), 100);
    let of = |pid| {
        let found = limits.lost().find(|loss| loss.pid == pid);
        found.map(|loss| loss.count)
    };
    assert_eq!((of(Some(1)), of(Some(2))), (Some(10), Some(1)));
    assert_eq!((of(Some(most + 1)), of(None)), (None, Some(50)));
    assert_eq!(limits.lost().count(), MAX_LOSERS + 1);
    assert_eq!(limits.left_out.memory, u64::from(most) + 159);
}
