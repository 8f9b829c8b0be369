use super::*;
use crate::verdict::{Judgement, judge};

const SECOND_NS: u64 = 1_000_000_000;

fn new(start_ns: u64, end_ns: u64, row: u16) -> NewHandle {
    NewHandle {
        start_ns,
        end_ns,
        caller: (0, row),
        tid: 7,
        device: Some(0),
        slot: Some(3),
    }
}

fn create(handles: &mut Handles, id: u64, made_ns: u64) {
    let key = (HandleKind::Stream, id);
    handles.create(key, &new(made_ns - 1, made_ns, 5), &Sites::default());
}

fn destroy(handles: &mut Handles, id: u64, start_ns: u64) {
    handles.destroy((HandleKind::Stream, id), start_ns, start_ns + 1);
}

/// Created, destroyed and live.
fn counts(handles: &Handles) -> [u64; 3] {
    let site = &handles.sites()[0];
    assert_eq!(site.live(), handles.live.len() as u64);
    [site.created, site.destroyed, site.live()]
}

#[test]
fn the_end_of_a_former_object_leaves_the_one_that_has_its_handle() {
    let mut handles = Handles::default();
    create(&mut handles, 1, 10);
    // Entered at 20, and returns after the handle was given away at 25.
    create(&mut handles, 1, 25);
    assert_eq!(counts(&handles), [2, 1, 1]);
    destroy(&mut handles, 1, 20);
    assert_eq!(counts(&handles), [2, 1, 1]);
    destroy(&mut handles, 1, 30);
    destroy(&mut handles, 1, 40);
    assert_eq!(counts(&handles), [2, 2, 0]);
}

#[test]
fn a_call_within_a_call_makes_one_object() {
    let mut handles = Handles::default();
    create(&mut handles, 1, 10);
    let outer = new(5, 12, 6);
    handles.create((HandleKind::Stream, 1), &outer, &Sites::default());
    assert_eq!(counts(&handles), [1, 0, 1]);
    assert_eq!(handles.sites().len(), 1);
}

#[test]
fn what_a_call_makes_and_destroys_for_itself_is_not_counted() {
    let mut handles = Handles::default();
    // As cufftPlan1d: an inner call makes the plan, another one a second plan that is destroyed.
    for plan in 1..=3 {
        let start_ns = plan * 100;
        for (id, from, to) in [(plan, 2, 4), (plan + 1, 10, 12)] {
            let inner = new(start_ns + from, start_ns + to, 5);
            handles.create((HandleKind::Stream, id), &inner, &Sites::default());
        }
        destroy(&mut handles, plan + 1, start_ns + 20);
        for (from, to) in [(1, 30), (0, 31)] {
            let outer = new(start_ns + from, start_ns + to, 6);
            handles.create((HandleKind::Stream, plan), &outer, &Sites::default());
        }
    }
    assert_eq!(counts(&handles), [3, 0, 3]);
    // One that was made before is no part of the next call.
    destroy(&mut handles, 1, 500);
    create(&mut handles, 9, 600);
    assert_eq!(counts(&handles), [4, 1, 3]);
}

#[test]
fn objects_end_with_their_context() {
    let mut handles = Handles::default();
    (1..=3).for_each(|id| create(&mut handles, id, id));
    handles.end_with(10, |device, slot| (device, slot) == (Some(0), 4));
    assert_eq!(counts(&handles), [3, 0, 3]);
    handles.end_with(10, |device, slot| (device, slot) == (Some(0), 3));
    assert_eq!(counts(&handles), [3, 3, 0]);
}

/// Verdict after 70 s with a new object each second; each is destroyed after `destroyed_after` seconds, if given.
fn judged(destroyed_after: Option<u64>) -> Judgement {
    let mut handles = Handles::default();
    for second in 1..=70 {
        let now_ns = second * SECOND_NS;
        create(&mut handles, second, now_ns);
        if let Some(old) = destroyed_after.and_then(|after| second.checked_sub(after)) {
            destroy(&mut handles, old, now_ns + 1);
        }
    }
    let shape = handles.shape(HandleKind::Stream, handles.sites(), 71 * SECOND_NS);
    judge(&shape).unwrap()
}

#[test]
fn objects_that_are_not_destroyed_are_growing() {
    let left_behind = judged(None);
    assert!(left_behind.is_leak(), "{left_behind:?}");
    assert!(left_behind.blocks > 60, "{left_behind:?}");
    for after in [1, 5, 20] {
        let kept = judged(Some(after));
        assert!(!kept.verdict.is_growth(), "{after}: {kept:?}");
    }
}

#[test]
fn objects_possibly_destroyed_unseen_are_no_leak() {
    let mut handles = Handles::default();
    for second in 1..=70 {
        create(&mut handles, second, second * SECOND_NS);
        destroy(&mut handles, 1000 + second, second * SECOND_NS + 1);
    }
    let shape = handles.shape(HandleKind::Stream, handles.sites(), 71 * SECOND_NS);
    let found = judge(&shape).unwrap();
    assert!(!found.is_leak(), "{found:?}");
}
