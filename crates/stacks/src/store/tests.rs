use gpuprobe_model::stack::{CallStack, Location, ModuleId};
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::python::code::tests::{code_record, stack_record};
use crate::python::interpreter::tests::interpreter;
use gpuprobe_model::abi::record;

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

fn of_call(store: &StackStore, pid: u32, id: u64) -> Option<NamedStack> {
    store.calls.lock().of_call(pid, id, 0)
}

fn processes(store: &StackStore) -> Vec<u32> {
    store.calls.lock().programs.keys().copied().collect()
}

#[test]
fn calls_may_arrive_after_the_first_stack_of_a_reused_id() {
    let pid = u32::MAX - 1;
    let mut store = StackStore::default();
    assert!(store.take(&stack(pid, 1, 11)));
    assert!(of_call(&store, pid, 11).unwrap().new.is_some());
    assert!(store.take(&stack(pid, 2, 22)));
    // One more call of the first, its end, then a call of the second.
    assert!(of_call(&store, pid, 11).unwrap().new.is_none());
    store.forget(pid, 1);
    assert!(of_call(&store, pid, 11).is_none());
    assert!(of_call(&store, pid, 22).unwrap().new.is_some());
    store.forget(pid, 2);
    assert!(of_call(&store, pid, 22).is_none());
    assert!(processes(&store).is_empty());
}

#[test]
fn stacks_have_no_more_room_than_the_limit() {
    let pid = u32::MAX - 1;
    let mut store = StackStore {
        max_bytes: 1 << 19,
        ..StackStore::default()
    };
    let kept = |store: &mut StackStore, pid, ids: std::ops::Range<u64>| {
        let take = |id: &u64| {
            assert!(store.take(&stack(pid, 1, *id)));
            of_call(store, pid, *id).is_some()
        };
        ids.filter(take).count()
    };
    // Calls beyond have none, which whoever asks counts.
    let first = kept(&mut store, pid, 1..10_000);
    assert!((1000..4000).contains(&first), "{first}");
    assert!(kept(&mut store, pid - 1, 1..100) <= 1);
    let calls = &store.calls;
    let all = [pid, pid - 1].map(|pid| calls.current(pid, |one| one.bytes()).unwrap());
    assert!(all.iter().sum::<usize>() < (1 << 19) + 1024, "{all:?}");
    store.forget(pid, 1);
    assert_eq!(kept(&mut store, pid - 1, 100..200), 100);
}

#[test]
fn lost_exits_do_not_accumulate() {
    let pid = u32::MAX - 1;
    let mut store = StackStore::default();
    for process in 1..1000 {
        store.take(&stack(pid, process, u64::from(process)));
    }
    assert_eq!(store.calls.lock().programs[&pid].len(), calls::MAX_PROGRAMS);
    assert!(of_call(&store, pid, 990).is_some());
    store.forget(pid, 999);
    assert!(processes(&store).is_empty());
}

const PID: u32 = u32::MAX - 2;

/// A Python record of process [`PID`].
fn python_record(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[4..8].copy_from_slice(&PID.to_ne_bytes());
    bytes
}

#[test]
fn python_records_are_kept_or_counted_as_lost() {
    let code = || python_record(code_record(1, "f", &[0x80, 0]));
    let frames = || python_record(stack_record(5, &[], 0));
    for (limit, lost) in [(1 << 20, [0, 0]), (0, [1, 2])] {
        let mut store = StackStore {
            max_bytes: limit,
            ..StackStore::default()
        };
        assert!(store.take(&code()));
        assert_eq!(store.calls.lock().lost_python, lost[0]);
        assert!(store.take(&frames()));
        assert_eq!(store.calls.lock().lost_python, lost[1]);
        assert_eq!(store.calls.current(PID, |one| one.id), Some(70));
        assert!(!store.take(&code()[..100]) && !store.take(&frames()[..100]));
        assert!(!store.take(&stack(PID, 1, 1)[..100]));
        assert_eq!(store.calls.lock().undecodable, 3);
    }
}

#[test]
fn calls_before_the_layout_was_known_are_counted() {
    let mut store = StackStore::default();
    let interpreter = interpreter(11, 0..1);
    let raw = interpreter.layout(0).unwrap();
    let running = Running::sample(interpreter, ModuleId(1), raw);
    let early = |store: &mut StackStore, id| {
        // The current program takes the interpreter with its next record.
        store.take(&stack(PID, 70, id));
        assert!(of_call(store, PID, id).is_some());
        store.calls.lock().lost_python
    };
    assert_eq!(early(&mut store, 11), 0);
    store.python.running.insert(PID, None);
    assert_eq!(early(&mut store, 12), 0);
    assert!(!store.runs_python(PID));
    store.python.running.insert(PID, Some(Arc::new(running)));
    assert_eq!(early(&mut store, 13), 1);
    assert!(store.runs_python(PID));
    let frames = CallStack {
        locations: vec![Location::python(1)],
        is_complete: true,
    };
    store.calls.current(PID, |one| one.name(14, frames));
    of_call(&store, PID, 14).unwrap();
    let mut calls = store.calls.lock();
    calls.entered.insert(PID, (raw, 5));
    for (start_ns, lost) in [(4, 2), (5, 2)] {
        calls.of_call(PID, 13, start_ns).unwrap();
        assert_eq!(calls.lost_python, lost);
    }
    drop(calls);
    assert_eq!(store.lines().get(0).unwrap().file, None);
}

#[test]
fn ended_processes_are_forgotten_at_the_second_sweep() {
    let mut store = StackStore::default();
    store.take(&stack(PID, 1, 11));
    store.take(&stack(PID - 1, 2, 22));
    for (pid, id) in [(PID, 11), (PID - 1, 22)] {
        of_call(&store, pid, id);
        let place = Location {
            address: 1,
            module: Some(ModuleId(1)),
            offset: 0,
        };
        let call = CallStack {
            locations: vec![place],
            is_complete: true,
        };
        store.calls.current(pid, |one| one.name(id + 1, call));
        of_call(&store, pid, id + 1);
    }
    let is_alive = |pid| pid == PID;
    assert_eq!(store.take_updates().begun, [PID, PID - 1]);
    store.sweep(is_alive);
    assert_eq!(processes(&store).len(), 2, "it may have calls in the ring");
    store.sweep(is_alive);
    assert_eq!(processes(&store), [PID]);
    let places = store.calls.lock().take_last_places();
    assert_eq!(places.len(), 1);
    assert_eq!((places[0].0, places[0].2), (PID - 1, true));
    assert_eq!(store.take_updates().new_code, [PID - 1]);
    for _ in 0..3 {
        store.sweep(|_| true);
    }
    store.sweep(|_| false);
    store.sweep(is_alive);
    assert_eq!(processes(&store).len(), 1, "it is alive again");
}

#[test]
fn paths_are_learnt_again_when_there_are_too_many() {
    let mut store = StackStore::default();
    store.take(&stack(PID, 1, 11));
    store.take_updates();
    let learn = |store: &mut StackStore, root| {
        let learn = |one: &mut StackStoreProcess| one.paths.learn(root, &[], root);
        store.calls.current(PID, learn).unwrap()
    };
    for root in 1..MAX_PATHS as u64 {
        learn(&mut store, root);
    }
    let change = learn(&mut store, MAX_PATHS as u64);
    store.tell(change);
    assert_eq!(
        (store.updates.learnt.len(), store.updates.forgotten.len()),
        (1, 0)
    );
    store.updates.recognised.push(1);
    let change = learn(&mut store, u64::MAX);
    store.tell(change);
    assert_eq!(store.updates.forgotten.len(), MAX_PATHS + 1);
    assert!(store.updates.learnt.is_empty() && store.updates.recognised.is_empty());
    let states = store.calls.current(PID, |one| one.paths.states().len());
    assert_eq!(states, Some(0));
    // Of a process that has ended, only its own are.
    store.take_updates();
    let change = learn(&mut store, 7);
    store.tell(change);
    store
        .updates
        .learnt
        .extend(Paths::default().learn(8, &[], 8));
    store.forget(PID, 1);
    assert_eq!(store.updates.forgotten, [7]);
    assert_eq!(store.updates.learnt[0].0, 8);
    assert_eq!(store.updates.learnt.len(), 1);
}

#[test]
fn stale_mappings_are_read_again_after_a_while() {
    let mut store = StackStore::default();
    let mut raw = RawStack::new_zeroed();
    (raw.record_type, raw.tgid, raw.process) = (record::STACK, PID, 1);
    raw.is_stale = 1;
    store.take(raw.as_bytes());
    assert_eq!(store.take_updates().new_code, [PID], "only as it began");
    let past = Instant::now().checked_sub(2 * LOOK_AGAIN).unwrap();
    store.calls.current(PID, |one| one.looked = past);
    store.take(raw.as_bytes());
    assert_eq!(store.take_updates().new_code, [PID]);
    assert!(store.calls.current(PID, |one| one.looked) > Some(past));
}

#[test]
fn steps_are_the_offsets_of_return_addresses_in_the_copy() {
    let mut raw = RawStack::new_zeroed();
    raw.sp = 0x1000;
    raw.replaced_count = 1;
    raw.replaced[0].at = 0x1018;
    raw.replaced[1].at = 0x1010;
    let copied = [10, 11, 12, 13, 14u64].map(u64::to_ne_bytes).concat();
    let steps = |slots: &[u64]| {
        let steps = walks::steps(&raw, &copied, slots)?;
        Some(
            steps
                .iter()
                .map(|step| (step.offset, step.word))
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(steps(&[0x1000]), Some(vec![]));
    assert_eq!(
        steps(&[0x1000, 0x1010, 0x1020]),
        Some(vec![(2, 12), (4, 14)])
    );
    for wrong in [
        &[][..],
        // Not on top, replaced, not aligned, behind, before.
        &[0x1008, 0x1010],
        &[0x1000, 0x1018],
        &[0x1000, 0x1012],
        &[0x1000, 0x1028],
        &[0x1000, 0xff8],
    ] {
        assert_eq!(steps(wrong), None, "{wrong:x?}");
    }
}

#[test]
fn a_walk_has_the_caller_of_a_function_that_has_just_begun() {
    let walked = |addresses: &[u64]| {
        let mut raw = RawStack::new_zeroed();
        (raw.tgid, raw.ip, raw.return_address) = (PID, 1, 2);
        raw.count = u16::try_from(addresses.len()).unwrap();
        raw.addresses[..addresses.len()].copy_from_slice(addresses);
        let stack = StackStore::default().walked(&raw);
        assert!(!stack.is_complete);
        let locations = stack.locations.iter();
        locations
            .map(|location| location.address)
            .collect::<Vec<_>>()
    };
    assert_eq!(walked(&[]), [1, 2]);
    assert_eq!(walked(&[1, 2, 3]), [1, 2, 3]);
    assert_eq!(walked(&[1, 3]), [1, 2, 3]);
    // A path that ends in the C library is complete.
    let mut store = StackStore::default();
    let pid = std::process::id();
    store.spaces.refresh(pid);
    let here = (a_walk_has_the_caller_of_a_function_that_has_just_begun as fn()) as usize;
    let mut raw = RawStack::new_zeroed();
    (raw.tgid, raw.ip) = (pid, here as u64);
    raw.return_address = (nix::libc::getpid as *const ()).addr() as u64 + 1;
    let stack = store.walked(&raw);
    assert!(stack.is_complete);
    let [inner, outer] = [0, 1].map(|at| stack.locations[at]);
    assert!(inner.module.is_some() && inner.module != outer.module);
    raw.return_address = here as u64 + 1;
    assert!(!store.walked(&raw).is_complete);
}
