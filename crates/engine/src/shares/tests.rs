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

#[test]
fn use_is_counted_each_so_many_changes_and_at_once_where_room_is_scarce() {
    let most = (MAX_ALLOCATIONS, MAX_OTHERS);
    let counted = |ledger: &mut Ledger, calls: u64| {
        for n in 1..=calls {
            apply(ledger, &call(1, "cudaMalloc", n << 8, n));
        }
        ledger.kept_allocations()
    };
    let every = u64::from(COUNT_EVERY);
    assert_eq!(counted(&mut ledger(most.0, most.1), every - 1), 0);
    assert_eq!(counted(&mut ledger(most.0, most.1), every), 32);
    let mut scarce = ledger(most.0, most.1);
    scarce.set_room(MemoryRoom::Little);
    assert_eq!(counted(&mut scarce, 1), 1);
    for (allocations, others, used, is_near) in [
        (2 * NEAR, most.1, 0, true),
        (2 * NEAR + 2, most.1, 0, false),
        (2 * NEAR + 2, most.1, 1, true),
        (most.0, 2 * NEAR, 0, true),
        (most.0, 2 * NEAR + 2, 0, false),
        (most.0, 2 * NEAR + 2, 1, true),
    ] {
        let mut shares = UserShares::of(UserUsage {
            allocations,
            others,
        });
        let now = UserUsage {
            allocations: used,
            others: used,
        };
        shares.change(None, UserUsage::default(), now);
        assert_eq!(shares.is_near, is_near, "{allocations} {others} {used}");
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
    assert_eq!((ledger.left_out(), live(&ledger, 1)), (3, 0));
    // Two of them would have allocated memory.
    for (symbol, unknown) in [
        ("cuMemRelease", 0),
        ("cudaIpcCloseMemHandle", 0),
        ("cuMemRelease", 1),
        ("cudaIpcCloseMemHandle", 2),
    ] {
        apply(&mut ledger, &call(1, symbol, 0x50, 20));
        assert_eq!(ledger.counts().unknown_frees, unknown, "{symbol}");
    }
    assert_eq!(
        (ledger.counts().alloc_calls, ledger.counts().free_calls),
        (2, 4)
    );
}

#[test]
fn losses_of_many_processes_are_told_by_user() {
    let mut shares = UserShares::default();
    let process = |pid, uid| {
        let mut process = Process::new(pid, gpuprobe_cuda::KindSet::ALL);
        process.uid = uid;
        process
    };
    let user = Some(5);
    let most = u32::try_from(MAX_LOSERS).unwrap();
    for pid in 1..=most {
        shares.lose(&process(pid, user), "memory", 1);
        shares.lose(&process(pid, user), "stacks", 0);
    }
    shares.lose(&process(1, user), "memory", 9);
    shares.lose(&process(most + 1, user), "memory", 20);
    shares.lose(&process(most + 2, user), "memory", 30);
    shares.lose(&process(1, None), "memory", 100);
    let of = |pid| {
        let found = shares.lost().find(|loss| loss.pid == pid);
        found.map(|loss| loss.count)
    };
    assert_eq!((of(Some(1)), of(Some(2))), (Some(10), Some(1)));
    assert_eq!((of(Some(most + 1)), of(None)), (None, Some(50)));
    assert_eq!(shares.lost().count(), MAX_LOSERS + 1);
}
