use zerocopy::{FromZeros, IntoBytes};

use super::*;

/// A stack record with one frame of a process that does not exist.
fn stack(pid: u32, process: u32, id: u64) -> Vec<u8> {
    let mut raw = RawStack::new_zeroed();
    raw.record_type = record::STACK;
    raw.tgid = pid;
    raw.process = process;
    raw.id = id;
    raw.ip = id;
    raw.as_bytes().to_vec()
}

#[test]
fn calls_may_arrive_after_the_first_stack_of_a_reused_id() {
    let pid = u32::MAX - 1;
    let mut store = Taken::default();
    assert!(store.take(&stack(pid, 1, 11)));
    assert!(store.of_call(pid, 11).unwrap().new.is_some());
    assert!(store.take(&stack(pid, 2, 22)));
    // One more call of the first, its end, then a call of the second.
    assert!(store.of_call(pid, 11).unwrap().new.is_none());
    store.forget(pid, 1);
    assert!(store.of_call(pid, 11).is_none());
    assert!(store.of_call(pid, 22).unwrap().new.is_some());
    store.forget(pid, 2);
    assert!(store.of_call(pid, 22).is_none());
    assert!(store.earlier.is_empty() && store.processes.is_empty());
}

#[test]
fn stacks_of_a_user_have_no_more_room_than_he_may_have() {
    let pid = u32::MAX - 1;
    let mut taken = Taken {
        shares: ByteShares::of(1 << 20),
        ..Taken::default()
    };
    let kept = |taken: &mut Taken, pid, ids: std::ops::Range<u64>| {
        let take = |id: &u64| {
            assert!(taken.take(&stack(pid, 1, *id)));
            taken.of_call(pid, *id).is_some()
        };
        ids.filter(take).count()
    };
    // Calls beyond have none, which whoever asks counts.
    let first = kept(&mut taken, pid, 1..10_000);
    assert!((1000..4000).contains(&first), "{first}");
    assert!(
        kept(&mut taken, pid - 1, 1..100) <= 1,
        "it is the same user's"
    );
    let all = [pid, pid - 1].map(|pid| taken.processes[&pid].bytes());
    assert!(all.iter().sum::<usize>() < (1 << 19) + 1024, "{all:?}");
    taken.forget(pid, 1);
    assert_eq!(kept(&mut taken, pid - 1, 100..200), 100);
    taken.forget(pid - 1, 1);
    assert!(taken.shares.has_room(None));
    assert_eq!(taken.shares.total(), 0);
}

#[test]
fn lost_exits_do_not_accumulate() {
    let pid = u32::MAX - 1;
    let mut store = Taken::default();
    for process in 1..1000 {
        store.take(&stack(pid, process, u64::from(process)));
    }
    assert_eq!(store.earlier[&pid].len(), MAX_EARLIER);
    assert!(store.of_call(pid, 990).is_some());
    store.forget(pid, 999);
    assert!(store.earlier.is_empty());
}
