use super::*;
use crate::{Identity, Ledger, call, task};
use gpuprobe_model::event::{Event, Task, Tensor};
use std::rc::Rc;

use gpuprobe_model::stack::{CallStack, Location};

/// A ledger with room for so much, and processes `1` and `2` of user 1001.
fn ledger(allocations: usize, others: usize) -> Ledger {
    let most = LedgerUsage {
        allocations,
        others,
    };
    let mut ledger = Ledger {
        limits: LedgerLimits::of(most),
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
    let mut ledger = ledger(100, 10_000);
    for n in 1..=70 {
        apply(&mut ledger, &call(1, "cudaMalloc", n << 8, n));
    }
    for n in 1..=50 {
        apply(&mut ledger, &call(2, "cudaMalloc", n << 8, 100 + n));
    }
    assert_eq!([1, 2].map(|pid| live(&ledger, pid)), [70, 30]);
    assert_eq!(
        (ledger.left_out().calls, ledger.counts.alloc_calls),
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
    assert_eq!(ledger.left_out().calls, 20);
}

#[test]
fn what_is_counted_now_and_then_is_given_back_whole() {
    let mut ledger = ledger(MAX_ALLOCATIONS, MAX_OTHERS);
    for n in 1..=100 {
        apply(&mut ledger, &call(1, "cudaMalloc", n << 8, n));
    }
    let counted = ledger.limits.all.allocations;
    assert!(
        (100 - COUNT_EVERY as usize..100).contains(&counted),
        "{counted}"
    );
    apply(&mut ledger, &Event::Exit(task(1, 1, 400)));
    assert_eq!(ledger.limits.all, LedgerUsage::default());
}

#[test]
fn the_free_of_what_was_left_out_is_no_free_of_something_unknown() {
    let mut ledger = ledger(10, 10_000);
    for n in 1..=15 {
        apply(&mut ledger, &call(1, "cudaMalloc", n << 8, n));
    }
    for n in 1..=16 {
        apply(&mut ledger, &call(1, "cudaFree", n << 8, 100 + n));
    }
    let counts = &ledger.counts;
    assert_eq!((counts.free_calls, counts.unknown_frees), (16, 1));
    let process = ledger.process_of(1).unwrap();
    assert!(process.holds_nothing() && process.totals.sums.is_empty());
    assert_eq!(ledger.limits.all.allocations, 0);
}

#[test]
fn what_is_left_out_takes_the_place_of_what_was_at_its_address() {
    let mut ledger = ledger(2, 10_000);
    for n in [1, 2, 3, 1] {
        apply(&mut ledger, &call(1, "cudaMalloc", n << 8, n));
    }
    // 3 found no room; neither did 1 again, but the first is gone.
    assert_eq!((live(&ledger, 1), ledger.left_out().calls), (1, 2));
}

#[test]
fn call_sites_are_bounded_and_calls_go_on() {
    let mut ledger = ledger(1 << 20, 2000);
    for n in 1..=1000 {
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
    assert!((20..200).contains(&sites), "{sites}");
    assert!(process.kept().others < 2100, "{:?}", process.kept());
    assert_eq!((live(&ledger, 1), ledger.left_out().calls), (1000, 0));
    assert!(ledger.left_out().stacks > 500);
    let of_process = ledger
        .left_out_by_process()
        .find(|loss| loss.what == "stacks");
    assert_eq!(of_process.unwrap().count, ledger.left_out().stacks);
}

#[test]
fn tensors_count_as_allocations_do() {
    let mut ledger = ledger(50, 10_000);
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
    assert_eq!(ledger.limits.all.allocations, 0);
}

#[test]
fn use_is_counted_each_so_many_changes_and_at_once_near_a_limit() {
    let counted = |ledger: &mut Ledger, calls: u64| {
        for n in 1..=calls {
            apply(ledger, &call(1, "cudaMalloc", n << 8, n));
        }
        ledger.limits.all.allocations
    };
    let every = u64::from(COUNT_EVERY);
    assert_eq!(
        counted(&mut ledger(MAX_ALLOCATIONS, MAX_OTHERS), every - 1),
        0
    );
    assert_eq!(counted(&mut ledger(MAX_ALLOCATIONS, MAX_OTHERS), every), 32);
    assert_eq!(counted(&mut ledger(NEAR, MAX_OTHERS), 1), 1);
    for (allocations, others, used, is_near) in [
        (NEAR, MAX_OTHERS, 0, true),
        (NEAR + 1, MAX_OTHERS, 0, false),
        (NEAR + 1, MAX_OTHERS, 1, true),
        (MAX_ALLOCATIONS, NEAR, 0, true),
        (MAX_ALLOCATIONS, NEAR + 1, 0, false),
        (MAX_ALLOCATIONS, NEAR + 1, 1, true),
    ] {
        let mut limits = LedgerLimits::of(LedgerUsage {
            allocations,
            others,
        });
        let now = LedgerUsage {
            allocations: used,
            others: used,
        };
        limits.change(LedgerUsage::default(), now);
        assert_eq!(limits.is_near(), is_near, "{allocations} {others} {used}");
    }
}

#[test]
fn calls_are_refused_by_what_they_need_room_for() {
    let full = |allocations, others| Full {
        allocations,
        others,
    };
    for (op, by_allocations, by_others) in [
        (Op::Allocate, true, false),
        (Op::HandleCreate, true, true),
        (Op::ShareOpen, true, true),
        (Op::Symbol, true, true),
        (Op::HandleRetain, false, true),
        (Op::ModuleLoad, false, true),
        (Op::GraphNode, false, true),
        (Op::Free, false, false),
        (Op::HandleRelease, false, false),
    ] {
        let refuses = |full: Full| full.refuses(op);
        assert_eq!(refuses(full(true, false)), by_allocations, "{op:?}");
        assert_eq!(refuses(full(false, true)), by_others, "{op:?}");
        assert!(!refuses(Full::default()), "{op:?}");
    }
}

#[test]
fn handles_without_room_are_left_out_with_their_releases() {
    let mut ledger = ledger(1 << 20, 0);
    for symbol in ["cuMemCreate", "cudaIpcOpenMemHandle", "cuModuleLoad"] {
        apply(&mut ledger, &call(1, symbol, 0x50, 10));
    }
    assert_eq!((ledger.left_out().calls, live(&ledger, 1)), (3, 0));
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
    let user = Some(5);
    let most = u32::try_from(MAX_LOSERS).unwrap();
    for pid in 1..=most {
        limits.lose(&process(pid, user), "memory", 1);
        limits.lose(&process(pid, user), "stacks", 0);
    }
    limits.lose(&process(1, user), "memory", 9);
    limits.lose(&process(most + 1, user), "memory", 20);
    limits.lose(&process(most + 2, user), "memory", 30);
    limits.lose(&process(1, None), "memory", 100);
    let of = |pid| {
        let found = limits.lost().find(|loss| loss.pid == pid);
        found.map(|loss| loss.count)
    };
    assert_eq!((of(Some(1)), of(Some(2))), (Some(10), Some(1)));
    assert_eq!((of(Some(most + 1)), of(None)), (None, Some(50)));
    assert_eq!(limits.lost().count(), MAX_LOSERS + 1);
}
