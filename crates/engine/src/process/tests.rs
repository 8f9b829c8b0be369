use super::*;
use crate::{AllocationRow, Ledger, call, task};
use gpuprobe_model::event::{CONTEXT_UNKNOWN, Call, Event};

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
    assert_eq!((ledger.peak_bytes(), ledger.peak_ns()), (100, Some(1)));
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
    assert_eq!(process.counted(), counted);
    let listed: Vec<_> = process.allocations().map(|a| a.address).collect();
    assert_eq!((listed, process.held()), (vec![0x2000], 2));
    let sums = process.totals.sums;
    assert_eq!((sums.gpu.bytes, sums.host.bytes), (0, 8));
    assert_eq!(process.threads()[0].live, sums);
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
fn places_of_ended_threads_without_memory_are_used_again() {
    let mut ledger = ledger(false, &[]);
    let mut thread = |event: fn(Task) -> Event, tid, comm: &str| {
        let task = Task {
            tid,
            comm: comm.to_owned(),
            ..task(PID, PID, 0)
        };
        ledger.apply(&event(task), |_| Identity::default());
    };
    thread(Event::Thread, 10, "first");
    thread(Event::Thread, 11, "second");
    thread(Event::ThreadExit, 10, "");
    thread(Event::ThreadExit, 99, "");
    thread(Event::Thread, 12, "third");
    let mut on = |symbol, tid| {
        let Event::Call(call) = call(PID, symbol, 0x1000, 5) else {
            unreachable!("it is a call");
        };
        ledger.apply(&Event::Call(Call { tid, ..call }), |_| Identity::default());
    };
    on("cudaMalloc", 11);
    let mut exit = |tid| {
        let task = Task {
            tid,
            ..task(PID, PID, 0)
        };
        ledger.apply(&Event::ThreadExit(task), |_| Identity::default());
        let threads = ledger.process_of(PID).unwrap().threads();
        let names: Vec<_> = threads.iter().map(|t| (t.tid, t.comm.clone())).collect();
        names
    };
    let names = [
        (12, Some("third".to_owned())),
        (11, Some("second".to_owned())),
    ];
    // What it has allocated is still its own.
    assert_eq!(exit(11), names);
    let process = ledger.processes.get_mut(PID).unwrap();
    assert_eq!(process.thread(13), 2);
    assert!(process.thread_mut(11).is_none());
    assert_eq!(process.thread_mut(12).map(|thread| thread.tid), Some(12));
    let freed = call(PID, "cudaFree", 0x1000, 6);
    ledger.apply(&freed, |_| Identity::default());
    let process = ledger.processes.get_mut(PID).unwrap();
    assert_eq!(process.threads()[1].live, MemorySums::default());
    assert_eq!((process.thread(14), process.thread(15)), (1, 3));
}

/// A variable in a file.
fn row(address: u64, time_ns: u64, name: &str) -> AllocationRow<'_> {
    AllocationRow {
        pid: PID,
        tid: 0,
        address,
        bytes: 10,
        time_ns,
        kind: MemoryKind::Static,
        space: AddressSpace::Variables,
        device: Some(0),
        function: 0,
        caller: 1,
        name: Some(name),
    }
}

#[test]
fn rows_of_a_file_have_names_and_contexts() {
    let mut ledger = Ledger::of_rows();
    ledger.allocate(&row(0x1000, 1, "weights"));
    ledger.allocate(&row(0x2000, 2, "bias"));
    for number in 1..=3 {
        ledger.create_context(PID, number, 10);
    }
    ledger.destroy_context(PID, 2, 20);
    ledger.destroy_context(PID, CONTEXT_UNKNOWN, 30);
    ledger
        .processes_mut()
        .for_each(|process| process.name_thread(0, "main"));
    ledger
        .processes_mut()
        .for_each(|process| process.name_thread(5, "none"));
    ledger.free(PID, AddressSpace::Variables, 0x1000, 40);
    assert!(
        ledger
            .free(9, AddressSpace::Variables, 0x1000, 40)
            .is_none()
    );
    let process = ledger.process_of(PID).unwrap();
    assert_eq!(process.made_contexts(), 2);
    let shape = process.contexts_shape(50);
    assert_eq!((shape.left, shape.unknown_frees), (vec![2], vec![1]));
    assert_eq!(process.threads()[0].comm.as_deref(), Some("main"));
    // At the peak, both had their names.
    let then = ledger.at_peak_of_rows();
    let process = then.process_of(PID).unwrap();
    let mut names: Vec<_> = process
        .allocations()
        .filter_map(|a| process.name_of(a))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["bias", "weights"]);
    assert_eq!(then.peak_bytes(), 20);
}

#[test]
fn processes_of_a_file_are_all_listed() {
    let mut ledger = Ledger::of_rows();
    for pid in 1..=2049 {
        ledger.allocate(&AllocationRow {
            pid,
            ..row(0x1000, 1, "variable")
        });
        ledger.free(pid, AddressSpace::Variables, 0x1000, 2);
        ledger.end_process(pid, 3);
    }
    assert_eq!(ledger.ended(true).count(), 2049);
}
