//! Which ended processes are listed, and sums over the others.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::event::{Call, Event};
use gpuprobe_model::identity::{DeviceIdentity, Identity};

use super::{MAX_FORGOTTEN_DEVICES, MAX_SIZE, OF_PROCESS};
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
fn the_oldest_become_sums_but_for_the_last_one() {
    let mut ledger = ended(&[30, 10, 20, 10, 0, 40]);
    let size = ledger.ended.size;
    let each: Vec<_> = ledger.ended.list.iter().map(|one| one.size).collect();
    assert_eq!(each.iter().sum::<usize>(), size);
    let kept_of = ledger.ended.list[1].process.kept();
    assert_eq!((each[0] - each[1], each[1]), (20, OF_PROCESS + kept_of));
    ledger.ended.shrink(size);
    assert_eq!(kept(&ledger), [1, 2, 3, 4, 5, 6]);
    ledger.ended.shrink(size - each[0] - 1);
    assert_eq!(kept(&ledger), [3, 4, 5, 6]);
    assert_eq!(ledger.forgotten().sums.gpu.bytes, 8 * (30 + 10));
    // However much it takes.
    ledger.ended.shrink(0);
    assert_eq!((kept(&ledger), ledger.ended.size), (vec![6], each[5]));
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
    ledger.ended.shrink(0);
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

#[test]
fn the_size_of_ended_processes_is_bounded() {
    let mut ledger = ended(&[2, 1]);
    for (size, left) in [(MAX_SIZE, 2), (MAX_SIZE + 1, 1)] {
        ledger.ended.size = size;
        ledger.ended.shrink(MAX_SIZE);
        assert_eq!(kept(&ledger).len(), left);
    }
}

#[test]
fn many_processes_that_leak_take_bounded_memory() {
    let mut ledger = Ledger::default();
    let count = 20_000;
    for size_bytes in 1..=count {
        let Event::Call(made) = call(7, "cudaMalloc", 0x1000, 10) else {
            unreachable!("it is a call");
        };
        let made = Event::Call(Call { size_bytes, ..made });
        ledger.apply(&made, |_| Identity::default());
        ledger.apply(&Event::Exit(task(7, 7, 20)), |_| Identity::default());
    }
    let kept = ledger
        .ended(true)
        .map(|process| process.totals.sums.gpu.bytes);
    let kept: Vec<_> = kept.collect();
    assert!(kept.len() <= 8192, "{}", kept.len());
    assert!(kept.contains(&count) && !kept.contains(&1));
    let (forgotten, listed) = (ledger.forgotten(), kept.iter().sum::<u64>());
    let sum = count * (count + 1) / 2;
    assert_eq!(forgotten.sums.gpu.bytes + listed, sum);
    let of_kinds: u64 = forgotten.kinds.values().map(|total| total.bytes).sum();
    assert_eq!(of_kinds + listed, sum);
}
