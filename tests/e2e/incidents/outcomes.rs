//! Outcomes of refused requests.

use super::{counts, incidents, said, short, started, workload};
use crate::harness::Backend::{Driver, Shared, Static};
use crate::harness::{Backend, Setup, Workload};

/// A command, its function in the runtime and in the driver backend, and the bytes that it
/// requests.
const FUNCTIONS: &[(&str, [&str; 2], u64)] = &[
    ("alloc 4096", ["cudaMalloc", "cuMemAlloc_v2"], 4096),
    (
        "pitched 100 10",
        ["cudaMallocPitch", "cuMemAllocPitch_v2"],
        1000,
    ),
    (
        "pitched3d 600 4 3",
        ["cudaMalloc3D", "cuMemAllocPitch_v2"],
        7200,
    ),
    (
        "managed 1000",
        ["cudaMallocManaged", "cuMemAllocManaged"],
        1000,
    ),
    ("pinned 4096", ["cudaMallocHost", "cuMemAllocHost_v2"], 4096),
    ("hostalloc 100", ["cudaHostAlloc", "cuMemHostAlloc"], 100),
    ("async 4096", ["cudaMallocAsync", "cuMemAllocAsync"], 4096),
    (
        "poolalloc 0 512",
        ["cudaMallocFromPoolAsync", "cuMemAllocFromPoolAsync"],
        512,
    ),
    ("vcreate 2097152", ["cuMemCreate", "cuMemCreate"], 2_097_152),
    (
        "array 64 32 0 4 8",
        ["cudaMallocArray", "cuArrayCreate_v2"],
        64 * 32 * 4,
    ),
];

/// Refuses each function once; the retry succeeds.
fn each_function(backend: Backend, layer: usize) {
    let mut script = "pool create".to_owned();
    for (command, functions, _) in FUNCTIONS {
        script += &format!("; fail {} 1 2; {command}; {command}", functions[layer]);
    }
    let (mut gpuprobe, _) = started(workload(backend));
    gpuprobe.talk.play(&script);
    let truth = gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    let count = FUNCTIONS.len() as u64;
    assert_eq!((truth.failed, truth.allocs), (count, count), "{backend:?}");
    // Above eight at once, further incidents are counted in the eighth.
    assert_eq!(counts(&report), [count, 8]);
    let expected: Vec<_> = FUNCTIONS
        .iter()
        .take(8)
        .map(|(_, functions, bytes)| (functions[layer], *bytes, 1, "retried"))
        .collect();
    assert_eq!(short(incidents(&report)), expected, "{backend:?}");
    assert_eq!(incidents(&report)[7]["repeats"], count - 8);
    report.assert_nothing_lost();
}

#[test]
fn root_each_function_of_the_runtime_that_is_refused_is_an_incident() {
    each_function(Shared, 0);
}

#[test]
fn root_each_function_of_the_driver_that_is_refused_is_an_incident() {
    each_function(Driver, 1);
}

#[test]
fn root_successful_retry_is_no_failure() {
    for backend in [Shared, Static] {
        let api = backend.allocates_with();
        let (mut gpuprobe, pid) = started(workload(backend));
        gpuprobe.talk.play(&format!(
            "alloc 1048576 3; fail {api} 2 2; alloc 65536; alloc 65536; free 0; alloc 65536"
        ));
        gpuprobe.talk.done();
        let report = gpuprobe.final_report();
        assert_eq!(counts(&report), [2, 1]);
        let all = incidents(&report);
        assert_eq!(short(all), [(api, 65_536, 2, "retried")]);
        let one = &all[0];
        assert_eq!(one["pid"], pid);
        assert_eq!(one["result"], 2);
        // Memory held at the first refusal: before the free, and without the retry's.
        assert_eq!(one["live_bytes"], 3 << 20);
        assert_eq!(one["sites"][0]["bytes"], 3 << 20);
        assert_eq!(one["sites"][0]["allocations"], 3);
        let label = one["label"].as_str().unwrap();
        assert!(label.contains("tally_alloc"), "{label}");
        let said = said(&mut gpuprobe);
        assert!(said[0].contains(": retried with success "), "{said:#?}");
        assert!(said[1].contains("failed 2 times"), "{said:#?}");
        assert!(said[0].contains("was refused 64.00 KiB"), "{said:#?}");
    }
}

#[test]
fn root_incident_without_retry_is_continued_or_ended() {
    let (mut gpuprobe, _) = started(workload(Shared));
    gpuprobe.talk.play(
        "fail cudaMalloc 2 2; alloc 65536; alloc 4096; alloc 100; fail cudaMallocManaged 1 2; \
         managed 5000; free 0",
    );
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    assert_eq!(
        short(incidents(&report)),
        [
            ("cudaMalloc", 65_536, 1, "continued"),
            ("cudaMalloc", 4096, 1, "continued"),
            ("cudaMallocManaged", 5000, 1, "ended"),
        ]
    );
    let said = said(&mut gpuprobe);
    assert!(
        said.iter()
            .any(|line| line.contains("#3") && line.contains("the program ended"))
    );
}

#[test]
fn root_killed_process_has_outcome_ended() {
    let mut program = Workload::start(Shared);
    let mut gpuprobe = Setup::pid(program.pid).start();
    program.play("fail cudaMalloc 1 2; alloc 65536");
    gpuprobe.stderr.line_starting("gpuprobe: out of memory #1");
    program.child.signal(nix::sys::signal::Signal::SIGKILL);
    program.child.wait();
    let report = gpuprobe.final_report();
    assert_eq!(
        short(incidents(&report)),
        [("cudaMalloc", 65_536, 1, "ended")]
    );
    // Reported once the program went on, and again at the end.
    let said = said(&mut gpuprobe);
    let about = |what: &str| said.iter().filter(|line| line.ends_with(what)).count();
    assert_eq!(about("not retried with success so far"), 1, "{said:#?}");
    let ended = said
        .iter()
        .filter(|line| line.contains("the program ended"));
    assert_eq!(ended.count(), 1, "{said:#?}");
}

#[test]
fn root_outcome_of_a_running_process_is_pending() {
    let mut program = Workload::start(Shared);
    program.play("alloc 1048576 2");
    let mut gpuprobe = Setup::pid(program.pid).start();
    // A real refusal: no GPU has this much memory.
    program.play("alloc 4096; alloc 4611686018427387904");
    let report = gpuprobe.stop();
    let all = incidents(&report);
    assert_eq!(short(all), [("cudaMalloc", 1 << 62, 1, "pending")]);
    // Memory from before the attach is unknown.
    assert_eq!(all[0]["live_bytes"], 4096);
    assert!(all[0]["outcome_seconds"].is_null());
    program.done();
}

#[test]
fn root_other_errors_are_no_incidents() {
    let (mut gpuprobe, _) = started(workload(Shared));
    gpuprobe
        .talk
        .play("fail cudaMalloc 1 1; alloc 64; alloc 64; fail cudaFree 1 2; free 0");
    let truth = gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    assert_eq!(report["memleak"]["failed_calls"], truth.failed);
    assert_eq!((truth.failed, counts(&report)), (2, [0, 0]));
    assert!(incidents(&report).is_empty() && report.get("out_of_memory").is_none());
    assert!(said(&mut gpuprobe).is_empty());
}
