use super::*;
use crate::{Ledger, call, task};
use gpuprobe_cuda::FUNCTIONS;
use gpuprobe_model::event::{Call, Event, MemoryEvent};

const PID: u32 = 7;

/// A ledger with allocations of these bytes on these devices.
fn ledger(single_gpu: bool, all: &[(Option<u16>, &str, u64)]) -> Ledger {
    let mut ledger = Ledger::default();
    let identity = || Identity {
        single_gpu,
        ..Identity::default()
    };
    ledger.apply(&Event::Process(task(PID, PID, 0)), |_| identity());
    for (n, &(device, symbol, size_bytes)) in (1..).zip(all) {
        let Event::Call(made) = call(PID, symbol, n << 20, n) else {
            unreachable!("it is a call");
        };
        let made = Event::Call(Call {
            device,
            size_bytes,
            ..made
        });
        ledger.apply(&made, |_| identity());
    }
    ledger
}

#[test]
fn memory_on_an_unknown_device_is_on_the_only_one() {
    let all = [
        (None, "cudaMalloc", 1),
        (Some(1), "cudaMallocManaged", 20),
        (Some(0), "cudaMalloc", 300),
        (Some(0), "cudaMallocManaged", 4000),
        (Some(1), "cudaMalloc", 50_000),
    ];
    use MemoryKind::{Device, Managed};
    for (single_gpu, devices, kinds) in [
        (
            false,
            &[(Some(0), 4300), (Some(1), 50_020), (None, 1)][..],
            &[
                (Some(0), Device, 300),
                (Some(0), Managed, 4000),
                (Some(1), Device, 50_000),
                (Some(1), Managed, 20),
                (None, Device, 1),
            ][..],
        ),
        (
            true,
            &[(Some(0), 4301), (Some(1), 50_020)],
            &[
                (Some(0), Device, 301),
                (Some(0), Managed, 4000),
                (Some(1), Device, 50_000),
                (Some(1), Managed, 20),
            ],
        ),
    ] {
        let ledger = ledger(single_gpu, &all);
        let process = ledger.process_of(PID).unwrap();
        let found = process.devices().into_iter();
        let found: Vec<_> = found.map(|(device, total)| (device, total.bytes)).collect();
        assert_eq!(found, devices);
        let found = process.device_kinds().into_iter();
        let found: Vec<_> = found
            .map(|(device, kind, total)| (device, kind, total.bytes))
            .collect();
        assert_eq!(found, kinds);
        let of_bytes = |bytes| {
            process
                .allocations()
                .find(|a| a.size_bytes == bytes)
                .unwrap()
        };
        let device = |bytes| process.device(of_bytes(bytes));
        assert_eq!(device(1), single_gpu.then_some(0));
        assert_eq!((device(300), device(20)), (Some(0), Some(1)));
    }
}

#[test]
fn what_is_checkpointed_is_not_held() {
    let memory = [
        (Some(0), "cuMemAlloc_v2", 100),
        (Some(1), "cuMemAlloc_v2", 20),
        (None, "cuMemAllocHost_v2", 4),
    ];
    let mut ledger = ledger(false, &memory);
    let figures = |ledger: &Ledger| {
        let process = ledger.process_of(7).unwrap();
        let moved = process.checkpointed().map(|total| total.bytes);
        let sums = process.totals.sums;
        let devices = process.devices().len();
        (
            [sums.gpu.bytes, sums.host.bytes, ledger.live_bytes],
            devices,
            moved,
        )
    };
    let held = ([120, 4, 120], 2, None);
    let away = ([0, 4, 0], 0, Some(120));
    let none = |_: &Task| Identity::default();
    let at = |ns| task(7, 7 << 10, ns);
    assert_eq!(figures(&ledger), held);
    for _ in 0..2 {
        ledger.apply(&Event::Checkpoint(at(20)), none);
        assert_eq!(figures(&ledger), away);
        // Queries return all the same.
        ledger.apply(&call(7, "cuDeviceGetCount", 0, 21), none);
        assert_eq!(figures(&ledger), away);
    }
    ledger.apply(&Event::Restore(at(22)), none);
    assert_eq!(figures(&ledger), held);
    // A restore that was not seen, and an end without one.
    ledger.apply(&Event::Checkpoint(at(23)), none);
    ledger.apply(&call(7, "cuMemAlloc_v2", 0x9000, 24), none);
    assert_eq!(figures(&ledger), ([128, 4, 128], 2, None));
    ledger.apply(&Event::Checkpoint(at(25)), none);
    ledger.apply(&Event::Exit(at(26)), none);
    let ended = ledger.ended(true).next().unwrap();
    assert_eq!(
        (ended.totals.sums.gpu.bytes, ended.checkpointed()),
        (128, None)
    );
    assert_eq!((ledger.live_bytes, ledger.peak_bytes), (0, 128));
    // Nothing is known of this process.
    ledger.apply(&Event::Checkpoint(task(8, 8 << 10, 27)), none);
    assert_eq!(ledger.live_processes().count(), 0);
}

#[test]
fn the_peak_is_when_it_was_reached_first() {
    let mut ledger = ledger(false, &[(None, "cudaMalloc", 100)]);
    for (symbol, n, at_ns) in [
        ("cudaFree", 1, 20),
        ("cudaMalloc", 2, 30),
        ("cudaMallocHost", 3, 40),
    ] {
        let Event::Call(call) = call(PID, symbol, n << 20, at_ns) else {
            unreachable!("it is a call");
        };
        let size_bytes = 100;
        let event = Event::Call(Call { size_bytes, ..call });
        ledger.apply(&event, |_| Identity::default());
    }
    let process = ledger.process_of(PID).unwrap();
    assert_eq!((process.peak_bytes, process.peak_ns), (100, Some(1)));
    assert_eq!((ledger.peak_bytes, ledger.peak_ns), (100, Some(1)));
    let site = process.sites.iter().next().unwrap();
    assert_eq!(ledger.at_peak(process, site).gpu.bytes, 100);
    let of_host = process.sites.iter().last().unwrap();
    assert_eq!(ledger.at_peak(process, of_host), MemorySums::default());
}

#[test]
fn only_the_kinds_that_are_asked_for_are_counted() {
    let counted: KindSet = [MemoryKind::Pinned].into_iter().collect();
    let mut ledger = Ledger::counting(counted);
    for (symbol, address) in [("cudaMalloc", 0x1000), ("cudaMallocHost", 0x2000)] {
        ledger.apply(&call(PID, symbol, address, 1), |_| Identity::default());
    }
    let process = ledger.process_of(PID).unwrap();
    assert_eq!(process.counted, counted);
    let listed: Vec<_> = process.allocations().map(|a| a.address).collect();
    assert_eq!((listed, process.held()), (vec![0x2000], 2));
    let sums = process.totals.sums;
    assert_eq!((sums.gpu.bytes, sums.host.bytes), (0, 8));
    assert_eq!(process.threads().next().unwrap().live, sums);
    assert_eq!(
        process
            .sites
            .iter()
            .map(|site| site.live.all().bytes)
            .sum::<u64>(),
        8
    );
}

#[test]
fn a_process_is_introduced_by_its_events() {
    let mut ledger = ledger(false, &[]);
    let again = Task {
        uid: 9,
        from_birth: false,
        comm: "renamed".to_owned(),
        ..task(PID, PID, 77)
    };
    ledger.apply(&Event::Process(again), |_| unreachable!("it is known"));
    let process = ledger.process_of(PID).unwrap();
    assert_eq!((process.uid, process.first_seen_ns), (Some(9), Some(0)));
    assert!(process.from_birth);
    assert_eq!(process.comm.as_deref(), Some("renamed"));
}

#[test]
fn ended_threads_are_kept_while_they_hold_memory() {
    let mut ledger = ledger(false, &[]);
    let thread = |ledger: &mut Ledger, event: fn(Task) -> Event, tid, comm: &str| {
        let task = Task {
            tid,
            comm: comm.to_owned(),
            ..task(PID, PID, 0)
        };
        ledger.apply(&event(task), |_| Identity::default());
        let mut threads: Vec<_> = ledger
            .process_of(PID)
            .unwrap()
            .threads()
            .map(|t| (t.tid, t.comm.clone().unwrap_or_default(), t.live.gpu.bytes))
            .collect();
        threads.sort_unstable();
        threads
    };
    let of = |tid, comm: &str, bytes| (tid, comm.to_owned(), bytes);
    thread(&mut ledger, Event::Thread, 10, "first");
    thread(&mut ledger, Event::Thread, 11, "second");
    thread(&mut ledger, Event::ThreadExit, 10, "");
    thread(&mut ledger, Event::ThreadExit, 99, "");
    let on = |ledger: &mut Ledger, symbol, tid| {
        let Event::Call(call) = call(PID, symbol, 0x1000, 5) else {
            unreachable!("it is a call");
        };
        ledger.apply(&Event::Call(Call { tid, ..call }), |_| Identity::default());
    };
    on(&mut ledger, "cudaMalloc", 11);
    let left = thread(&mut ledger, Event::ThreadExit, 11, "");
    assert_eq!(left, [of(11, "second", 8)]);
    on(&mut ledger, "cudaFree", 12);
    assert_eq!(
        thread(&mut ledger, Event::Thread, 13, "third"),
        [of(13, "third", 0)]
    );
}

/// A variable in an export.
fn variable(pid: u32, address: u64, time_ns: u64, is_free: bool) -> Event {
    Event::Memory(MemoryEvent {
        pid,
        tid: 0,
        time_ns,
        address,
        bytes: 10,
        kind: MemoryKind::Static,
        space: AddressSpace::Variables,
        device: Some(0),
        row: u16::MAX,
        stack: 1,
        is_free,
        variable: Some(format!("v{address:x}").into()),
    })
}

#[test]
fn memory_of_an_export_has_names_and_sites() {
    let mut ledger = Ledger::of_file(KindSet::ALL);
    let mut apply = |event: &Event| ledger.apply(event, |_| Identity::default());
    apply(&variable(PID, 0x1000, 1, false));
    apply(&variable(PID, 0x2000, 2, false));
    apply(&variable(PID, 0x1000, 40, true));
    apply(&variable(PID, 0x1000, 41, true));
    apply(&variable(9, 0x2000, 42, true));
    for process in ledger.processes_mut() {
        process.name_thread(0, "main");
        process.name_thread(5, "none");
    }
    let process = ledger.process_of(PID).unwrap();
    assert_eq!(
        process.threads().next().unwrap().comm.as_deref(),
        Some("main")
    );
    let names: Vec<_> = process
        .allocations()
        .map(|allocation| process.name_of(allocation))
        .collect();
    assert_eq!(names, [Some("v2000")]);
    let site = process.sites.get(0).unwrap();
    assert_eq!((site.row, site.allocated.gpu.bytes), (u16::MAX, 20));
    assert_eq!((ledger.peak_bytes, ledger.counts.unknown_frees), (20, 2));
    // Of five successful frees, one had an allocation and two had none; the others are of nothing.
    let row = FUNCTIONS.iter().position(|f| f.symbol == "cudaFree");
    ledger.add_calls(u16::try_from(row.unwrap()).unwrap(), 5, 1);
    let counts = &ledger.counts;
    assert_eq!((counts.free_calls, counts.null_frees), (3, 2));
    assert_eq!(counts.failed_calls, 1);
    ledger.reset_sums(50);
    assert_eq!((ledger.peak_bytes, ledger.counts.free_calls), (10, 0));
    ledger.keep_holders();
    assert_eq!(ledger.live_processes().count(), 1);
}

#[test]
fn processes_of_a_file_are_all_listed() {
    let mut ledger = Ledger::of_file(KindSet::ALL);
    for pid in 1..=2049 {
        let exit = Event::Exit(task(pid, pid, 3));
        for event in [variable(pid, 1, 1, false), variable(pid, 1, 2, true), exit] {
            ledger.apply(&event, |_| Identity::default());
        }
    }
    assert_eq!(ledger.ended(true).count(), 2049);
    ledger.keep_holders();
    assert_eq!(ledger.ended(true).count(), 0);
}
