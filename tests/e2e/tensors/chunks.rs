//! Allocators that report address and size of their blocks, and no sums.

use crate::harness::report::{list, number};
use crate::incidents::{incidents, short};

use super::started;

const MIB: u64 = 1 << 20;

#[test]
fn root_chunks_are_counted_within_their_allocations() {
    for (framework, command) in [("tensorflow", "tchunk"), ("xla", "xchunk")] {
        counted(framework, command);
    }
}

fn counted(framework: &str, command: &str) {
    let (mut gpuprobe, pid) = started(&[]).started();
    let [first, second] = [16 * MIB, 200 * MIB].map(|bytes| {
        let reply = gpuprobe.talk.say(&format!("tregion {bytes}"));
        u64::from_str_radix(reply.trim_start_matches("0x"), 16).unwrap()
    });
    let mut chunk = |name: &str, address: u64, bytes: u64| {
        gpuprobe
            .talk
            .say(&format!("{command} {name} {address} {bytes}"));
    };
    chunk("MemoryAllocation", first, MIB);
    chunk("MemoryAllocation", first + MIB, 2 * MIB);
    chunk("MemoryAllocation", first + 4 * MIB, MIB / 2);
    chunk("MemoryDeallocation", first, MIB);
    chunk("MemoryAllocation", second + 100 * MIB, MIB);
    // There is a host memory allocator, too, and other events come through the same function.
    chunk("MemoryAllocation", 0x1000, 7 * MIB);
    chunk("MemoryDeallocation", 0x1000, 7 * MIB);
    chunk("MemoryAllocationOfNothing", first + 8 * MIB, MIB);
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    report.assert_holds(pid, 216 * MIB, 2);
    let process = report.process(pid);
    let keys = ["pytorch", "tensorflow", "xla"].map(|key| process.get(key).is_some());
    assert_eq!(keys, [false, framework == "tensorflow", framework == "xla"]);
    let [found] = list(process, framework) else {
        panic!("one device in {process}");
    };
    for (key, expected) in [
        ("device", 0),
        ("allocated_bytes", 3 * MIB + MIB / 2),
        ("peak_allocated_bytes", 3 * MIB + MIB / 2),
        ("reserved_bytes", 216 * MIB),
        ("tensors", 3),
        ("before_bytes", 0),
        ("segments", 2),
        ("segment_bytes", 216 * MIB),
        ("largest_free_bytes", 100 * MIB),
        ("pinned_by_small_bytes", 200 * MIB),
        ("pinned_by_tensors", 1),
        ("outside_bytes", 0),
        ("alloc_calls", 4),
        ("free_calls", 1),
        ("unknown_frees", 0),
    ] {
        assert_eq!(found[key], expected, "{key} of {found}");
    }
    assert_eq!(found["since_start"], true);
    let [site] = list(found, "sites") else {
        panic!("one call site in {found}");
    };
    let functions = list(site, "stack").iter().map(|frame| &frame["function"]);
    assert!(
        functions
            .into_iter()
            .any(|name| *name == format!("run_{command}")),
        "{site}"
    );
    assert_eq!(number(site, "alloc_bytes"), 4 * MIB + MIB / 2);
}

#[test]
fn root_xla_gives_up_once_after_its_retries() {
    let (mut gpuprobe, _) = started(&[]).started();
    let region = gpuprobe.talk.say(&format!("tregion {}", 64 * MIB));
    let region = u64::from_str_radix(region.trim_start_matches("0x"), 16).unwrap();
    let tries = format!("alloc {}; ", 32 * MIB).repeat(3);
    gpuprobe.talk.play(&format!(
        "xchunk MemoryAllocation {region} {MIB}; fail cudaMalloc 3 2; {tries}xgiveup {}",
        31 * MIB
    ));
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    assert_eq!(
        short(incidents(&report)),
        [("cudaMalloc", 32 * MIB, 3, "ended")]
    );
    let xla = &incidents(&report)[0]["xla"];
    assert_eq!(xla["gave_up_on_bytes"], 31 * MIB);
    assert_eq!(xla["allocated_bytes"], MIB);
    assert_eq!(xla["sites"][0]["bytes"], MIB);
}

#[test]
fn root_buffers_of_rmm_are_counted_by_the_line_that_took_them() {
    let (mut gpuprobe, pid) = started(&[]).started();
    let region = gpuprobe.talk.say(&format!("tregion {}", 64 * MIB));
    let region = u64::from_str_radix(region.trim_start_matches("0x"), 16).unwrap();
    let [second, third] = [region + MIB, region + 4 * MIB];
    gpuprobe.talk.play(&format!(
        "rallocate {region} {MIB}; rallocate {second} {}; rallocate {third} {MIB}; rfree {second} {}; rfree 4096 512",
        3 * MIB,
        3 * MIB
    ));
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    let [found] = list(report.process(pid), "rmm") else {
        panic!("one device in {report:?}");
    };
    for (key, expected) in [
        ("allocated_bytes", 2 * MIB),
        ("peak_allocated_bytes", 5 * MIB),
        ("reserved_bytes", 64 * MIB),
        ("tensors", 2),
        ("alloc_calls", 3),
        ("free_calls", 1),
    ] {
        assert_eq!(found[key], expected, "{key} of {found}");
    }
    let [site] = list(found, "sites") else {
        panic!("one call site in {found}");
    };
    let mut functions = list(site, "stack").iter().map(|frame| &frame["function"]);
    assert!(functions.any(|name| name == "run_rallocate"), "{site}");
}

#[test]
fn root_chunks_of_cupy_are_its_pools_used_bytes() {
    let (mut gpuprobe, pid) = started(&[]).started();
    let region = gpuprobe.talk.say(&format!("tregion {}", 64 * MIB));
    let region = u64::from_str_radix(region.trim_start_matches("0x"), 16).unwrap();
    let mut used = String::new();
    for command in [
        format!("cmalloc 0 {region} 0 {MIB}"),
        format!("cmalloc 1 {region} {MIB} {}", 3 * MIB),
        format!("cmalloc 2 {region} {} {}", 8 * MIB, MIB / 2),
        // By the function and by its clone; twice, as objects of Python are.
        "cfree 1".to_owned(),
        "cfree 1".to_owned(),
        "cfree 2".to_owned(),
        format!("cmalloc 1 {region} {MIB} {}", 2 * MIB),
    ] {
        used = gpuprobe.talk.say(&command);
    }
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    let [found] = list(report.process(pid), "cupy") else {
        panic!("one device in {report:?}");
    };
    assert_eq!(used, format!("used={}", 3 * MIB));
    for (key, expected) in [
        ("allocated_bytes", 3 * MIB),
        ("peak_allocated_bytes", 4 * MIB + MIB / 2),
        ("reserved_bytes", 64 * MIB),
        ("tensors", 2),
        ("alloc_calls", 4),
        ("free_calls", 2),
    ] {
        assert_eq!(found[key], expected, "{key} of {found}");
    }
    let sites = list(found, "sites");
    let mut functions = list(&sites[0], "stack")
        .iter()
        .map(|frame| &frame["function"]);
    assert!(functions.any(|name| name == "run_cmalloc"), "{found}");
}

#[test]
fn root_buffers_of_onnxruntime_are_found_without_symbols() {
    let (mut gpuprobe, pid) = started(&[]).started();
    let region = gpuprobe.talk.say(&format!("tregion {}", 64 * MIB));
    let region = u64::from_str_radix(region.trim_start_matches("0x"), 16).unwrap();
    let second = region + 4 * MIB;
    gpuprobe.talk.play(&format!(
        "oalloc {region} {MIB} alloc; oalloc {second} {} stream; oalloc 4096 {MIB} alloc; oalloc {region} {} alloc; \
         ofree {second}; ofree 4096; ofree 0; oalloc {second} 1000 stream",
        3 * MIB,
        2048 * MIB
    ));
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    let [found] = list(report.process(pid), "onnxruntime") else {
        panic!("one device in {report:?}");
    };
    for (key, expected) in [
        ("allocated_bytes", MIB + 1000),
        ("peak_allocated_bytes", 4 * MIB),
        ("reserved_bytes", 64 * MIB),
        ("tensors", 2),
        ("alloc_calls", 3),
        ("free_calls", 1),
    ] {
        assert_eq!(found[key], expected, "{key} of {found}");
    }
    let sites = list(found, "sites");
    assert_eq!(sites.len(), 2, "a line for each way to allocate: {found}");
    for site in sites {
        let mut functions = list(site, "stack").iter().map(|frame| &frame["function"]);
        assert!(functions.any(|name| name == "run_oalloc"), "{site}");
    }
}
