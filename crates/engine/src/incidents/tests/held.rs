//! Memory that a process, and others on the same GPU, held when a request failed.

use super::super::held::MAX_SITES;
use super::*;
use gpuprobe_model::identity::DeviceIdentity;
use gpuprobe_model::stack::{CallStack, Location};
use std::rc::Rc;

/// Processes that hold 100 bytes on device 0, and the failed request of one on device `asked`.
fn others(ours: &DeviceIdentity, theirs: &[DeviceIdentity], asked: Option<u16>) -> Vec<u32> {
    let mut ledger = Ledger::default();
    for (pid, device) in (7..).zip([ours].into_iter().chain(theirs)) {
        ledger.apply(&Event::Process(task(pid, pid, 0)), |_| Identity {
            devices: vec![device.clone()],
            ..Identity::default()
        });
        let made = crate::call(pid, "cudaMalloc", 0x1000, 10);
        ledger.apply(&made, |_| Identity::default());
    }
    let Event::Call(call) = crate::call(7, "cudaMalloc", 0, 20) else {
        unreachable!("it is a call");
    };
    let refused = Event::Call(Call {
        result: OUT_OF_MEMORY,
        device: asked,
        ..call
    });
    ledger.apply(&refused, |_| Identity::default());
    let incident = ledger.incidents.get(1).unwrap();
    incident.others.iter().map(|other| other.pid).collect()
}

#[test]
fn gpus_are_the_same_by_uuid_or_index() {
    let gpu = |uuid: Option<&str>, physical_index| DeviceIdentity {
        uuid: uuid.map(str::to_owned),
        physical_index,
    };
    let nothing = gpu(None, None);
    let theirs = [
        gpu(Some("a"), Some(1)),
        gpu(Some("b"), Some(0)),
        gpu(None, Some(0)),
        gpu(None, Some(1)),
        nothing.clone(),
    ];
    let device = Some(0);
    assert_eq!(
        others(&gpu(Some("a"), Some(0)), &theirs, device),
        [8, 10, 12]
    );
    assert_eq!(others(&gpu(Some("c"), None), &theirs, device), [10, 11, 12]);
    assert_eq!(others(&gpu(None, Some(0)), &theirs, device), [9, 10, 12]);
    assert_eq!(others(&nothing, &theirs, device), [8, 9, 10, 11, 12]);
    // Its second device, and one that is not known.
    assert_eq!(others(&nothing, &theirs, Some(1)), [0; 0]);
    assert_eq!(others(&nothing, &theirs, None), [0; 0]);
}

#[test]
fn sizes_of_driver_arrays_and_imports_are_known() {
    let mut scene = Scene::new();
    let mut array = [0; EXTRA];
    array[..5].copy_from_slice(&[32, 4, 0, 64, 32]);
    let mut refuse = |symbol, values| {
        scene.call_with((7, 7), symbol, 500, OUT_OF_MEMORY, values);
    };
    refuse("cuArrayCreate_v2", Some(array));
    refuse("cuImportExternalMemory", Some([0; EXTRA]));
    refuse("cuMemPoolImportPointer", Some([0; EXTRA]));
    refuse("cuMemAllocPitch_v2", Some([7, 0, 0, 0, 0, 0, 0, 0]));
    let asked: Vec<_> = scene.incidents().iter().map(|one| one.0).collect();
    assert_eq!(asked, [Some(64 * 32 * 16), Some(500), None, Some(7)]);
}

#[test]
fn requests_for_host_memory_have_no_device() {
    let mut scene = Scene::new();
    scene.given(4096);
    scene.call_of((7, 7), "cudaMallocHost", 100, 0);
    scene.tensor(512);
    let mut at = [0; EXTRA];
    for (location, symbol, bytes) in [
        (0, "cudaMallocHost", 1 << 30),
        (2, "cuMemCreate", 1 << 30),
        (1, "cuMemCreate", 1 << 31),
    ] {
        at[0] = location;
        scene.call_with((7, 7), symbol, bytes, OUT_OF_MEMORY, Some(at));
    }
    let incidents = scene.ledger.incidents.iter();
    let found = incidents.map(|incident| {
        let held = &incident.held;
        let bytes: Vec<_> = held.sites.iter().map(|site| site.live.bytes).collect();
        (
            incident.asked.at_host,
            incident.device(),
            bytes,
            held.allocator.is_some(),
        )
    });
    let host = (true, None, vec![100], false);
    let expected = [host.clone(), host, (false, Some(0), vec![4096], true)];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn the_allocator_of_the_device_is_told() {
    for (device, is_told) in [(Some(0), true), (Some(1), false), (None, true)] {
        let mut scene = Scene::new();
        scene
            .ledger
            .processes
            .get_mut(7)
            .unwrap()
            .identity
            .single_gpu = false;
        scene.tensor(512);
        let Event::Call(call) = crate::call(7, "cudaMalloc", 0, scene.now_ns) else {
            unreachable!("it is a call");
        };
        scene.apply(&Event::Call(Call {
            device,
            result: OUT_OF_MEMORY,
            ..call
        }));
        let incident = scene.ledger.incidents.get(1).unwrap();
        let told = incident.held.allocator.as_ref();
        assert_eq!(told.is_some(), is_told, "{device:?}");
        if let Some(told) = told {
            assert_eq!(
                (told.device, told.allocated_bytes, told.sites.len()),
                (0, 512, 1)
            );
        }
    }
}

#[test]
fn the_largest_sites_are_listed_and_the_others_summed_up() {
    let mut scene = Scene::new();
    let most = MAX_SITES as u64;
    for number in 1..=most + 2 {
        let location = Location {
            address: number,
            module: None,
            offset: number,
        };
        let stack = CallStack {
            locations: vec![location],
            is_complete: true,
        };
        scene.ledger.set_stack(7, number, Rc::new(stack));
        let Event::Call(call) = crate::call(7, "cudaMalloc", number << 20, scene.now_ns) else {
            unreachable!("it is a call");
        };
        scene.apply(&Event::Call(Call {
            size_bytes: 10 * number,
            stack: number,
            ..call
        }));
    }
    // One holds nothing any more.
    scene.now_ns += 1_000_000;
    let freed = crate::call(7, "cudaFree", 3 << 20, scene.now_ns);
    scene.apply(&freed);
    scene.refused(1 << 30);
    let held = &scene.ledger.incidents.get(1).unwrap().held;
    let bytes: Vec<_> = held.sites.iter().map(|site| site.live.bytes).collect();
    assert_eq!((bytes.len(), bytes[0]), (MAX_SITES, 10 * (most + 2)));
    assert!(bytes.is_sorted_by(|a, b| a > b));
    let (count, sum) = held.other_sites;
    assert_eq!((count, sum.bytes, sum.allocations), (1, 10, 1));
    let first = &held.sites[0];
    let stack = first.stack.as_ref().unwrap();
    assert_eq!(
        (stack.locations[0].address, first.row),
        (most + 2, row("cudaMalloc"))
    );
}

#[test]
fn incidents_are_recorded_when_they_change() {
    let mut scene = Scene::new();
    scene.refused(1 << 30);
    // A tensor that is freed is no sign that the program goes on.
    let freed = Tensor {
        row: row("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"),
        pid: 7,
        tid: 7,
        time_ns: scene.now_ns,
        address: 1 << 40,
        bytes: 512,
        is_free: true,
        allocated_bytes: 0,
        reserved_bytes: 0,
        device: Some(0),
        stack: 0,
    };
    scene.apply(&Event::Tensor(freed));
    assert_eq!(scene.incidents()[0].3, "pending");
    scene.refused(1 << 30);
    scene.given(1 << 30);
    let changes = scene.ledger.changes.list.iter();
    let rows = changes.filter_map(|change| match change {
        Change::Incident(row) => Some((row.id, row.calls, row.outcome.0.name())),
        _ => None,
    });
    let expected = [
        (1, [1, 0], "pending"),
        (1, [2, 0], "pending"),
        (1, [2, 0], "retried"),
    ];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}
