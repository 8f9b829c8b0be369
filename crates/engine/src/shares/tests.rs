use super::*;
use crate::{Identity, Ledger, call, task};
use gpuprobe_model::event::{Event, Task, Tensor};
use std::rc::Rc;

use gpuprobe_model::stack::{CallStack, Location};

/// A ledger with room for so much, and processes `1` and `2` of user 1001 and `3` of user 1002.
fn ledger(allocations: usize, others: usize) -> Ledger {
    let most = UserUsage {
        allocations,
        others,
    };
    let mut ledger = Ledger {
        shares: UserShares::of(most),
        ..Ledger::default()
    };
    for (pid, uid) in [(1, 1001), (2, 1001), (3, 1002)] {
        let begun = Task {
            uid,
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
fn a_user_keeps_half_and_others_all_of_theirs() {
    let mut ledger = ledger(200, 10_000);
    for n in 1..=80 {
        apply(&mut ledger, &call(1, "cudaMalloc", n << 8, n));
        apply(&mut ledger, &call(2, "cudaMalloc", n << 8, n));
    }
    for n in 1..=90 {
        apply(&mut ledger, &call(3, "cudaMalloc", n << 8, 100 + n));
    }
    assert_eq!([1, 2, 3].map(|pid| live(&ledger, pid)), [50, 50, 90]);
    assert_eq!((ledger.left_out(), ledger.counts().alloc_calls), (60, 250));
    let mut lost: Vec<_> = ledger.left_out_by_user().collect();
    lost.sort_by_key(|loss| loss.pid);
    let of = |pid: u32| UserLoss {
        uid: 1001,
        pid: Some(pid),
        comm: Some(format!("p{pid}")),
        what: "memory".to_owned(),
        count: 30,
    };
    assert_eq!(lost, [of(1), of(2)]);
    // As much as is freed is kept again.
    for n in 1..=10 {
        apply(&mut ledger, &call(1, "cudaFree", n << 8, 300));
        apply(&mut ledger, &call(2, "cudaMalloc", (1000 + n) << 8, 301));
    }
    assert_eq!([1, 2].map(|pid| live(&ledger, pid)), [40, 60]);
    assert_eq!(ledger.left_out(), 60);
    apply(&mut ledger, &Event::Exit(task(2, 2, 400)));
    for n in 1..=80 {
        apply(&mut ledger, &call(1, "cudaMalloc", (2000 + n) << 8, 401));
    }
    assert_eq!(live(&ledger, 1), 100);
}

#[test]
fn what_is_counted_now_and_then_is_given_back_whole() {
    let mut ledger = ledger(MAX_ALLOCATIONS, MAX_OTHERS);
    for n in 1..=100 {
        apply(&mut ledger, &call(1, "cudaMalloc", n << 8, n));
    }
    let counted = ledger.shares.all.allocations;
    assert!(
        (100 - COUNT_EVERY as usize..100).contains(&counted),
        "{counted}"
    );
    apply(&mut ledger, &Event::Exit(task(1, 1, 400)));
    assert_eq!(ledger.shares.all, UserUsage::default());
    assert!(ledger.shares.by_user.is_empty());
}

#[test]
fn the_free_of_what_was_left_out_is_no_free_of_something_unknown() {
    let mut ledger = ledger(20, 10_000);
    for n in 1..=15 {
        apply(&mut ledger, &call(1, "cudaMalloc", n << 8, n));
    }
    for n in 1..=16 {
        apply(&mut ledger, &call(1, "cudaFree", n << 8, 100 + n));
    }
    let counts = ledger.counts();
    assert_eq!((counts.free_calls, counts.unknown_frees), (16, 1));
    let process = ledger.process_of(1).unwrap();
    assert!(process.holds_nothing() && process.totals.sums.is_empty());
    assert_eq!(ledger.shares.all.allocations, 0);
}

#[test]
fn what_is_left_out_takes_the_place_of_what_was_at_its_address() {
    let mut ledger = ledger(4, 10_000);
    for n in [1, 2, 3, 1] {
        apply(&mut ledger, &call(1, "cudaMalloc", n << 8, n));
    }
    // 3 found no room; neither did 1 again, but the first is gone.
    assert_eq!((live(&ledger, 1), ledger.left_out()), (1, 2));
}

#[test]
fn call_sites_are_bounded_and_calls_go_on() {
    let mut ledger = ledger(1 << 20, 4000);
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
    assert_eq!((live(&ledger, 1), ledger.left_out()), (1000, 0));
    assert!(ledger.stacks_left_out() > 500);
    let of_user = ledger.left_out_by_user().find(|loss| loss.what == "stacks");
    assert_eq!(of_user.unwrap().count, ledger.stacks_left_out());
}

#[test]
fn tensors_count_as_allocations_do() {
    let mut ledger = ledger(100, 10_000);
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
    assert_eq!(ledger.tensors_left_out(), 20);
    assert_eq!(ledger.shares.all.allocations, 0);
}

#[test]
fn what_is_kept_goes_with_its_process() {
    let mut ledger = ledger(1000, 10_000);
    for n in 1..=50 {
        apply(&mut ledger, &call(1, "cudaMalloc", n << 8, n));
        apply(&mut ledger, &call(1, "cuMemCreate", n << 8, n));
    }
    // Nobody has said whose process it is.
    apply(&mut ledger, &call(9, "cudaMalloc", 1 << 8, 1));
    assert_eq!(ledger.shares.by_user[&None].allocations, 1);
    let begun = Task {
        uid: 1002,
        ..task(9, 9, 0)
    };
    apply(&mut ledger, &Event::Process(begun));
    assert!(!ledger.shares.by_user.contains_key(&None));
    assert_eq!(ledger.shares.by_user[&Some(1002)].allocations, 1);
    for pid in [1, 9] {
        apply(&mut ledger, &Event::Exit(task(pid, pid, 1000)));
    }
    assert_eq!(ledger.shares.all, UserUsage::default());
    assert!(ledger.shares.by_user.is_empty());
}
