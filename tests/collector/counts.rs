//! The collector's records match the work that the program did.

use std::collections::{HashMap, HashSet};

use gpuprobe_wire::{Api, UNKNOWN_ID, flags};

use crate::run::{CollectorRun, CollectorSetup, Handed, of};

/// GPU work, excluding memory operations.
const COMMANDS: &str = "module add mul; launch all 5; stream; launch add 7 stream=0; \
     copy h2d 4096 3; copy d2h 100 2; copy d2d 64; copy h2d 512 2 stream=0 pinned; set 256 4; \
     syncstream 0; synchronize";

/// Memory operations. They make copies and sets of their own, which the program does not count.
const MEMORY: &str = "alloc 1000 3; free 0 2; managed 300; pitched 100 7; pinned 8192; \
     async 2048 2; afree 0; freenull 2; alloc 64";

const VERSIONS: [(&str, u32); 6] = [
    ("11.8", 18),
    ("12.1", 18),
    ("12.4", 22),
    ("12.8", 26),
    ("13.0", 130_001),
    ("13.5", 130_500),
];

/// Asserts that counts and bytes of the records equal the program's.
fn agrees(run: &CollectorRun) {
    let handed = &run.handed;
    let kernels = of!(handed, Kernel);
    let copies = of!(handed, Memcpy);
    assert_eq!(kernels.len() as u64, run.truth("launches"));
    assert_eq!(copies.len() as u64, run.truth("copies"));
    let bytes: u64 = copies.iter().map(|copy| copy.size_bytes).sum();
    assert_eq!(bytes, run.truth("copy_bytes"));
    assert_eq!(of!(handed, Memset).len() as u64, run.truth("sets"));
    let header = handed.last();
    assert_eq!(
        (header.dropped, header.unknown, header.malformed),
        (0, 0, 0)
    );
}

/// Every kernel, copy, set and memory record has the correlation id of a recorded call.
fn joined(handed: &Handed) {
    let mut calls: HashMap<u32, Vec<Api>> = HashMap::new();
    for call in of!(handed, Api) {
        calls.entry(call.correlation).or_default().push(call);
    }
    let name = |call: &Api| handed.functions[&(call.domain, call.cbid)].clone();
    let made_by = |correlation: u32, part: &str| {
        let calls = &calls[&correlation];
        let outer = calls.iter().max_by_key(|call| call.end_ns - call.start_ns);
        let outer = name(outer.unwrap());
        assert!(outer.contains(part), "{part} by {outer}");
        for call in calls {
            assert!(call.end_ns >= call.start_ns && call.start_ns > 0);
            assert_eq!(call.result, 0);
        }
    };
    for kernel in of!(handed, Kernel) {
        made_by(kernel.correlation, "Launch");
        assert_eq!(kernel.end_ns - kernel.start_ns, 1500);
    }
    for copy in of!(handed, Memcpy) {
        made_by(copy.correlation, "Memcpy");
    }
    for set in of!(handed, Memset) {
        made_by(set.correlation, "Memset");
    }
    for memory in of!(handed, Memory) {
        let part = if memory.operation == 2 {
            "Free"
        } else {
            "lloc"
        };
        made_by(memory.correlation, part);
    }
}

#[test]
fn memory_records_of_every_version_match_the_program() {
    for (version, _) in VERSIONS {
        let run = CollectorSetup::new("workload", MEMORY)
            .version(version)
            .run();
        let run = run.unharmed().silent();
        let handed = run.handed.complete();
        joined(handed);
        let memory = of!(handed, Memory);
        let of_operation = |wanted| -> Vec<_> {
            let operations = memory.iter().filter(|memory| memory.operation == wanted);
            operations.map(|memory| memory.size_bytes).collect()
        };
        let (taken, given) = (of_operation(1), of_operation(2));
        assert_eq!(taken.len() as u64, run.truth("allocs"));
        assert_eq!(given.len() as u64, run.truth("frees"));
        // Pinned memory is on the host and not in the program's byte count.
        let live = run.truth("bytes") + run.truth("pinned_bytes");
        assert_eq!(taken.iter().sum::<u64>() - given.iter().sum::<u64>(), live);
        let later = memory.iter().filter(|memory| memory.asynchronous != 0);
        assert_eq!(later.count(), 3);
        let source = match version {
            "12.8" | "13.0" | "13.5" => Some("libstandin.so"),
            _ => None,
        };
        for memory in memory {
            let named = handed.texts.get(&memory.source).map(String::as_str);
            assert_eq!(named, source, "{version}");
        }
    }
}

#[test]
fn counts_of_every_version_match_the_program() {
    for (version, number) in VERSIONS {
        let run = CollectorSetup::new("workload", COMMANDS)
            .version(version)
            .run();
        let run = run.unharmed().silent();
        agrees(&run);
        joined(run.handed.complete());
        let header = run.handed.last();
        assert_eq!(header.cupti_version, number);
        assert_eq!(header.flags & flags::MONOTONIC, flags::MONOTONIC);
        assert_eq!(header.cupti_ns, header.monotonic_ns);
    }
}

#[test]
fn counts_are_the_same_for_every_backend() {
    for program in ["workload_static", "workload_driver", "workload_ptsz"] {
        let run = CollectorSetup::new(program, COMMANDS)
            .run()
            .unharmed()
            .silent();
        agrees(&run);
        joined(run.handed.complete());
        let has_runtime = of!(run.handed, Api).iter().any(|call| call.domain == 2);
        assert_eq!(has_runtime, program != "workload_driver");
    }
}

#[test]
fn records_have_the_fields_of_their_calls() {
    let run = CollectorSetup::new("workload", COMMANDS)
        .run()
        .unharmed()
        .silent();
    let handed = &run.handed;
    let names: HashSet<_> = of!(handed, Kernel)
        .iter()
        .map(|kernel| handed.texts[&kernel.name].clone())
        .collect();
    assert_eq!(names, ["add", "mul"].map(str::to_owned).into());
    let [device] = of!(handed, Device)[..] else {
        panic!("not one device");
    };
    assert_eq!(handed.texts[&device.name], "NVIDIA H200");
    assert_eq!((device.capability_major, device.multiprocessors), (9, 132));
    let [context] = of!(handed, Context)[..] else {
        panic!("not one context");
    };
    assert_eq!((context.null_stream, context.compute_api), (7, 1));
    assert_eq!(context.parent_context, UNKNOWN_ID);
    let streams: HashSet<_> = of!(handed, Kernel).iter().map(|k| k.stream).collect();
    let created: HashSet<_> = of!(handed, Stream).iter().map(|s| s.stream).collect();
    assert_eq!(streams, created.into_iter().chain([7]).collect());
    let mut copies: HashMap<u8, (usize, u64)> = HashMap::new();
    for copy in of!(handed, Memcpy) {
        let entry = copies.entry(copy.copy_kind).or_default();
        *entry = (entry.0 + 1, entry.1 + copy.size_bytes);
    }
    assert_eq!(
        copies,
        [(1, (5, 13_312)), (2, (2, 200)), (8, (1, 64))].into()
    );
    let waits: Vec<_> = of!(handed, Sync)
        .iter()
        .map(|w| (w.sync_type, w.stream))
        .collect();
    assert!(waits.contains(&(4, UNKNOWN_ID)), "{waits:?}");
    assert!(
        waits
            .iter()
            .any(|&(kind, stream)| kind == 3 && stream != UNKNOWN_ID)
    );
    let own = run.handed.last().pid;
    assert!(
        of!(handed, Api)
            .iter()
            .all(|call| call.pid == own && call.tid == own)
    );
}

#[test]
fn kernels_of_unloaded_modules_keep_their_names() {
    let commands = "module one; launch one 5; unload 0; module two; launch two 7";
    let run = CollectorSetup::new("workload", commands)
        .faults("held")
        .run()
        .unharmed();
    let named = |wanted: &str| {
        let kernels = of!(run.handed, Kernel).into_iter();
        let named = kernels.filter(|kernel| run.handed.texts[&kernel.name] == wanted);
        named.count()
    };
    assert_eq!((named("one"), named("two")), (5, 7));
}

#[test]
fn concurrent_threads_lose_no_records() {
    let storm = "module k; launchstorm 4 500; churn 4 200 64 10";
    for faults in ["", "threads"] {
        let setup = CollectorSetup::new("workload", storm).faults(faults);
        let run = setup.run().unharmed().silent();
        agrees(&run);
        let tids: HashSet<_> = of!(run.handed, Api).iter().map(|call| call.tid).collect();
        assert!(tids.len() >= 4, "{tids:?}");
        run.handed.complete();
    }
}

#[test]
fn graphs_are_recorded_whole_or_by_kernel() {
    let graph = "module k; stream; graph 3 5";
    let run = CollectorSetup::new("workload", graph)
        .run()
        .unharmed()
        .silent();
    let kernels = of!(run.handed, Kernel);
    assert_eq!(kernels.len() as u64, 3 * run.truth("graph_launches"));
    assert!(kernels.iter().all(|kernel| kernel.graph_node != 0));
    let run = CollectorSetup::new("workload", graph)
        .kinds("kernel,graph")
        .run()
        .unharmed();
    let graphs = of!(run.handed, GraphTrace);
    assert_eq!(graphs.len() as u64, run.truth("graph_launches"));
    assert!(of!(run.handed, Kernel).is_empty());
}

#[test]
fn only_selected_kinds_are_collected() {
    let setup = CollectorSetup::new("workload", COMMANDS).kinds("memcpy,memset");
    let run = setup.run().unharmed().silent();
    assert_eq!(of!(run.handed, Memcpy).len() as u64, run.truth("copies"));
    assert_eq!(of!(run.handed, Memset).len() as u64, run.truth("sets"));
    assert_eq!(
        run.handed.records.len() as u64,
        run.truth("copies") + run.truth("sets")
    );
}

#[test]
fn peer_copies_have_both_devices() {
    for program in ["workload", "workload_driver"] {
        let setup = CollectorSetup::new(program, "copy peer 4096 2; copy d2d 64");
        let run = setup.variable("STANDIN_DEVICES", "2").run().unharmed();
        agrees(&run);
        let copies = of!(run.handed, Memcpy);
        let peers: Vec<_> = copies.iter().filter(|copy| copy.peer == 1).collect();
        assert_eq!(peers.len(), 2);
        for copy in peers {
            assert_eq!((copy.copy_kind, copy.size_bytes), (10, 4096));
            assert_ne!(copy.source_device, copy.destination_device);
            assert_ne!(copy.source_context, copy.destination_context);
        }
        let [other] = copies
            .iter()
            .filter(|copy| copy.peer == 0)
            .collect::<Vec<_>>()[..]
        else {
            panic!("not one copy within a device");
        };
        assert_eq!((other.copy_kind, other.source_device), (8, UNKNOWN_ID));
    }
}

#[test]
fn pool_creation_trim_and_destruction_are_recorded() {
    let commands = "pool create; pool trim 0; pool destroy 0";
    for (version, _) in VERSIONS {
        let run = CollectorSetup::new("workload", commands)
            .version(version)
            .run()
            .unharmed();
        let operations: Vec<_> = of!(run.handed, MemoryPool)
            .iter()
            .map(|pool| (pool.operation, pool.pool_type, pool.pid))
            .collect();
        let pid = run.handed.last().pid;
        assert_eq!(operations, [(1, 1, pid), (3, 1, pid), (2, 1, pid)]);
    }
}

#[test]
fn failed_calls_have_their_result() {
    let commands = "alloc 900000000000000; fail cuMemcpyHtoD_v2 1 719; copy h2d 64";
    let run = CollectorSetup::new("workload", commands).run();
    let failed = |name: &str| -> Vec<_> {
        let named = |call: &Api| run.handed.functions[&(call.domain, call.cbid)].contains(name);
        let calls = of!(run.handed, Api).into_iter();
        let failed = calls.filter(|call| named(call) && call.result != 0);
        failed.map(|call| (call.domain, call.result)).collect()
    };
    // The driver call returns before the runtime call.
    assert_eq!(failed("Alloc"), [(1, 2)]);
    assert_eq!(failed("cudaMalloc"), [(2, 2)]);
    assert_eq!(failed("emcpy"), [(1, 719), (2, 719)]);
    assert!(of!(run.handed, Memcpy).is_empty());
}

#[test]
fn nvtx_and_external_correlation_records_are_passed_over() {
    let run = CollectorSetup::new("workload", "alloc 64")
        .faults("extras")
        .run()
        .unharmed();
    let handed = &run.handed;
    let [marker] = of!(handed, Marker)[..] else {
        panic!("not one marker");
    };
    assert_eq!(handed.texts[&marker.name], "epoch");
    assert_eq!(handed.texts[&marker.domain], "trainer");
    assert_eq!(
        (marker.object.kind, marker.object.a),
        (2, handed.last().pid)
    );
    let [name] = of!(handed, Name)[..] else {
        panic!("not one name");
    };
    assert_eq!(handed.texts[&name.name], "feeder");
    assert_eq!(of!(handed, ExternalCorrelation)[0].external_id, 4711);
    assert_eq!(of!(handed, Overhead)[0].overhead_kind, 1 << 16);
}
