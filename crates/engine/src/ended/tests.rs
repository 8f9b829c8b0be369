//! Which ended processes are listed, and sums over the others.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::event::Event;
use gpuprobe_model::identity::{DeviceIdentity, Identity};

use super::{
    MAX_CLEAN_ENDED, MAX_ENDED_ALLOCATIONS, MAX_ENDED_UNITS, MAX_FORGOTTEN_DEVICES,
    MAX_LEAKED_ENDED,
};
use crate::{Ledger, call, task};

/// A ledger with ended processes; `holding` gives the number of allocations, of 8 bytes each,
/// of each process.
fn ended(holding: &[u64]) -> Ledger {
    let nowhere = DeviceIdentity::default();
    let holding: Vec<_> = holding.iter().map(|&count| (count, &nowhere)).collect();
    ended_on(&holding)
}

/// The same with the GPU of each process.
fn ended_on(holding: &[(u64, &DeviceIdentity)]) -> Ledger {
    let mut ledger = Ledger::default();
    for (pid, &(count, device)) in (1..).zip(holding) {
        let begun = Event::Process(task(pid, pid, 0));
        ledger.apply(&begun, |_| Identity {
            devices: vec![device.clone()],
            ..Identity::default()
        });
        for address in 1..=count {
            let call = call(pid, "cudaMalloc", address << 8, address);
            ledger.apply(&call, |_| Identity::default());
        }
        ledger.apply(&Event::Exit(task(pid, pid, 1000)), |_| Identity::default());
    }
    ledger
}

fn kept(ledger: &Ledger) -> Vec<u32> {
    ledger.ended(true).map(|process| process.pid).collect()
}

#[test]
fn large_ended_processes_are_reduced_to_sums() {
    let mut ledger = ended(&[50, 60, 0, 70]);
    assert_eq!(ledger.ended.allocations, 180);
    // No report has shown them.
    ledger.ended.forget_large(100);
    assert_eq!(kept(&ledger), [1, 2, 3, 4]);
    ledger.mark_reported();
    ledger.ended.forget_large(130);
    assert_eq!(kept(&ledger), [2, 3, 4]);
    let sums = &ledger.forgotten().sums;
    assert_eq!((sums.gpu.bytes, ledger.ended.allocations), (400, 130));
    // The last one stays, however much it holds.
    ledger.ended.forget_large(1);
    assert_eq!(kept(&ledger), [3, 4]);
    let mut unseen = ended(&[50, 60, 70]);
    unseen.ended.forget_large(40);
    assert_eq!(kept(&unseen), [3]);
}

#[test]
fn processes_with_small_leaks_go_first_when_call_sites_take_too_much() {
    let mut ledger = ended(&[30, 10, 20, 10, 0, 40]);
    let units = ledger.ended.units;
    let each: Vec<_> = ledger.ended.list.iter().map(|one| one.units).collect();
    assert_eq!(each.iter().sum::<usize>(), units);
    assert!(each[0] > 0 && each[4] == 0, "{each:?}");
    // No report has shown them: up to twice as much.
    ledger.ended.forget_small(units / 2);
    assert_eq!(kept(&ledger), [1, 2, 3, 4, 5, 6]);
    ledger.mark_reported();
    ledger.ended.forget_small(units);
    assert_eq!(kept(&ledger), [1, 2, 3, 4, 5, 6]);
    // Half stays; the one without leaks takes nothing.
    ledger.ended.forget_small(units - 1);
    assert_eq!(kept(&ledger), [1, 5, 6]);
    assert_eq!(ledger.forgotten().sums.gpu.bytes, 8 * (10 + 10 + 20));
    assert_eq!((ledger.ended.allocations, ledger.ended.clean), (70, 1));
    // The last one stays, however much it takes.
    ledger.ended.forget_small(0);
    assert_eq!(kept(&ledger), [5, 6]);
    assert_eq!(ledger.ended.units, each[5]);
    let mut equal = ended(&[10, 10, 10, 10, 10]);
    let units = equal.ended.units;
    equal.mark_reported();
    equal.ended.forget_small(units - 1);
    assert_eq!(kept(&equal), [4, 5], "the oldest go first");
    let mut unseen = ended(&[30, 10, 20]);
    let units = unseen.ended.units;
    unseen.ended.forget_small(units / 2 - 1);
    assert_eq!(kept(&unseen), [3]);
}

#[test]
fn forgotten_memory_is_summed_up_by_kind_and_physical_device() {
    let gpu = |number: usize| DeviceIdentity {
        physical_index: None,
        uuid: Some(format!("GPU-{number}")),
    };
    let gpus: Vec<_> = (0..MAX_FORGOTTEN_DEVICES + 2).map(gpu).collect();
    // Each once; two that are beyond the limit, one that is not, and the last one, which stays.
    let mut holding: Vec<_> = gpus.iter().map(|gpu| (1, gpu)).collect();
    holding.extend([(5, &gpus[3]), (9, &gpus[4])]);
    let mut ledger = ended_on(&holding);
    ledger.mark_reported();
    ledger.ended.forget_small(0);
    assert_eq!(kept(&ledger).len(), 1);
    let forgotten = ledger.forgotten();
    let bytes = 8 * (gpus.len() as u64 + 5);
    assert_eq!(forgotten.sums.gpu.bytes, bytes);
    assert_eq!(forgotten.kinds[&MemoryKind::Device].bytes, bytes);
    let by_device = |wanted: &DeviceIdentity| {
        let devices = forgotten.devices.iter();
        let its = devices.filter(|(number, one, _)| *number == Some(0) && one == wanted);
        its.map(|(_, _, total)| total.bytes).collect::<Vec<_>>()
    };
    assert_eq!(by_device(&gpus[2]), [8]);
    assert_eq!(by_device(&gpus[3]), [8 + 8 * 5]);
    assert_eq!(by_device(&gpus[4]), [8]);
    assert_eq!(by_device(&DeviceIdentity::default()), [8 * 2]);
    assert_eq!(forgotten.devices.len(), MAX_FORGOTTEN_DEVICES + 1);
}

/// Numbers of processes up to the one of this number that are listed still.
fn kept_of(ledger: &Ledger, last: u32) -> Vec<u32> {
    let mut kept = kept(ledger);
    kept.retain(|pid| *pid <= last);
    kept
}

#[test]
fn the_largest_leaks_stay_and_processes_without_leaks() {
    let with = |first: &[u64], count: usize| {
        let leaking = first.iter().filter(|count| **count > 0).count();
        let rest = std::iter::repeat_n(4, count - leaking);
        let mut ledger = ended(&first.iter().copied().chain(rest).collect::<Vec<_>>());
        ledger.ended.forget_leaked();
        assert_eq!(
            ledger.ended.list.len() - ledger.ended.clean,
            MAX_LEAKED_ENDED
        );
        kept_of(&ledger, u32::try_from(first.len()).unwrap())
    };
    assert_eq!(
        with(&[1, 0, 1, 3, 2, 0, 4], MAX_LEAKED_ENDED + 3),
        [2, 4, 6, 7]
    );
    // Of equal ones, the oldest go.
    assert_eq!(with(&[2, 3, 2, 2, 1], MAX_LEAKED_ENDED + 2), [2, 4, 5]);
    assert_eq!(with(&[2, 1], MAX_LEAKED_ENDED + 1), [1]);
}

#[test]
fn the_last_processes_without_leaks_stay_and_all_with_leaks() {
    let mut holding = vec![0; MAX_CLEAN_ENDED + 3];
    holding[1] = 5;
    let mut ledger = ended(&holding);
    ledger.ended.forget_clean();
    assert_eq!(kept_of(&ledger, 6), [2, 4, 5, 6]);
    assert_eq!(ledger.ended.clean, MAX_CLEAN_ENDED);
}

#[test]
fn surplus_is_forgotten_beyond_twice_the_limit() {
    for (count, limit) in [(0, MAX_CLEAN_ENDED), (1, MAX_LEAKED_ENDED)] {
        let mut ledger = ended(&vec![count; 2 * limit]);
        ledger.ended.forget_surplus();
        assert_eq!(kept(&ledger).len(), 2 * limit);
        let mut ledger = ended(&vec![count; 2 * limit + 1]);
        ledger.ended.forget_surplus();
        assert_eq!(kept(&ledger).len(), limit);
    }
    // With those of the other sort they have nothing to do.
    let mixed = [vec![0; 2 * MAX_CLEAN_ENDED], vec![1; 2 * MAX_LEAKED_ENDED]].concat();
    assert_eq!(kept(&ended(&mixed)).len(), mixed.len());
}

#[test]
fn allocations_and_what_else_is_kept_are_bounded() {
    let after = |change: &dyn Fn(&mut super::EndedProcesses)| {
        let mut ledger = ended(&[1, 1, 1]);
        ledger.mark_reported();
        change(&mut ledger.ended);
        ledger.ended.forget_surplus();
        kept(&ledger).len()
    };
    assert_eq!(after(&|ended| ended.allocations = MAX_ENDED_ALLOCATIONS), 3);
    assert_eq!(
        after(&|ended| ended.allocations = MAX_ENDED_ALLOCATIONS + 1),
        2
    );
    assert_eq!(after(&|ended| ended.units = MAX_ENDED_UNITS), 3);
    assert_eq!(after(&|ended| ended.units = MAX_ENDED_UNITS + 1), 1);
}
