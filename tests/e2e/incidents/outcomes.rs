//! Outcomes of refused requests.

use serde_json::Value;

use super::{counts, incidents, said, short};
use crate::harness::Backend::{Driver, Shared};
use crate::harness::{Report, Setup, Workload};

/// A command, its function in the runtime and in the driver backend, and the bytes that it
/// requests.
const FUNCTIONS: &[(&str, &str, &str, u64)] = &[
    ("alloc 4096", "cudaMalloc", "cuMemAlloc_v2", 4096),
    (
        "pitched 100 10",
        "cudaMallocPitch",
        "cuMemAllocPitch_v2",
        1000,
    ),
    (
        "pitched3d 600 4 3",
        "cudaMalloc3D",
        "cuMemAllocPitch_v2",
        7200,
    ),
    (
        "managed 1000",
        "cudaMallocManaged",
        "cuMemAllocManaged",
        1000,
    ),
    ("pinned 4096", "cudaMallocHost", "cuMemAllocHost_v2", 4096),
    ("hostalloc 100", "cudaHostAlloc", "cuMemHostAlloc", 100),
    ("async 4096", "cudaMallocAsync", "cuMemAllocAsync", 4096),
    (
        "poolalloc 0 512",
        "cudaMallocFromPoolAsync",
        "cuMemAllocFromPoolAsync",
        512,
    ),
    ("vcreate 2097152", "cuMemCreate", "cuMemCreate", 2_097_152),
    (
        "array 64 32 0 4 8",
        "cudaMallocArray",
        "cuArrayCreate_v2",
        64 * 32 * 4,
    ),
];

/// Each function is refused once; the retry succeeds.
#[test]
fn root_each_function_that_is_refused_is_an_incident() {
    for backend in [Shared, Driver] {
        let refused = FUNCTIONS.iter().map(|(command, runtime, driver, bytes)| {
            let function = if backend == Shared { runtime } else { driver };
            (*command, *function, *bytes)
        });
        let mut script = "pool create".to_owned();
        for (command, function, _) in refused.clone() {
            script += &format!("; fail {function} 1 2; {command}; {command}");
        }
        let mut run = Setup::workload(backend).run(&script);
        let (report, truth) = (run.report(), run.truth);
        let count = FUNCTIONS.len() as u64;
        assert_eq!((truth.failed, truth.allocs), (count, count), "{backend:?}");
        // Above eight at once, further incidents are counted in the eighth.
        assert_eq!(counts(&report), [count, 8]);
        let incident = |(_, function, bytes)| (function, bytes, 1, "retried");
        let expected: Vec<_> = refused.take(8).map(incident).collect();
        assert_eq!(short(incidents(&report)), expected, "{backend:?}");
        assert_eq!(incidents(&report)[7]["repeats"], count - 8);
        report.assert_nothing_lost();
    }
}

/// The incidents of one process.
fn of(report: &Report, pid: u32) -> Vec<Value> {
    let all = incidents(report).iter();
    all.filter(|one| one["pid"] == pid).cloned().collect()
}

#[test]
fn root_incident_without_retry_has_the_outcome_of_its_process() {
    let [mut goes_on, mut killed, mut running, mut other] = [Shared; 4].map(Workload::start);
    running.play("alloc 1048576 2");
    let all = [&goes_on, &killed, &running, &other];
    let mut gpuprobe = Setup::pids_without_stacks(all.map(|workload| workload.pid)).start();
    goes_on.play(
        "fail cudaMalloc 2 2; alloc 65536; alloc 4096; alloc 100; fail cudaMallocManaged 1 2; \
         managed 5000; free 0",
    );
    goes_on.done();
    killed.play("fail cudaMalloc 1 2; alloc 65536");
    let of_killed = format!("(pid {}", killed.pid);
    gpuprobe
        .stderr
        .line_with(&["gpuprobe: out of memory #", &of_killed]);
    killed.child.signal(nix::sys::signal::Signal::SIGKILL);
    killed.child.wait();
    // A real refusal: no GPU has this much memory.
    running.play("alloc 4096; alloc 4611686018427387904");
    // Other errors are no incidents.
    other.play("fail cudaMalloc 1 1; alloc 64; alloc 64; fail cudaFree 1 2; free 0");
    let truth = other.status();
    let report = gpuprobe.stop();
    assert_eq!(
        short(&of(&report, goes_on.pid)),
        [
            ("cudaMalloc", 65_536, 1, "continued"),
            ("cudaMalloc", 4096, 1, "continued"),
            ("cudaMallocManaged", 5000, 1, "ended"),
        ]
    );
    let of_killed_json = of(&report, killed.pid);
    assert_eq!(short(&of_killed_json), [("cudaMalloc", 65_536, 1, "ended")]);
    let pending = of(&report, running.pid);
    assert_eq!(short(&pending), [("cudaMalloc", 1 << 62, 1, "pending")]);
    // Memory from before the attach is unknown.
    assert_eq!(pending[0]["live_bytes"], 4096);
    assert!(pending[0]["outcome_seconds"].is_null());
    assert_eq!((truth.failed, of(&report, other.pid).len()), (2, 0));
    assert_eq!(counts(&report), [5, 5]);
    // Three, one and one were refused, and two had other errors.
    assert_eq!(report["memleak"]["failed_calls"], 5 + truth.failed);
    // The killed one is reported once the program went on, and again at the end.
    let said = said(&mut gpuprobe);
    let about = |pid: u32, what: &str| {
        let who = format!("(pid {pid}");
        let has = |line: &&String| line.contains(&who) && line.contains(what);
        said.iter().filter(has).count()
    };
    let so_far = "not retried with success so far";
    assert_eq!(about(killed.pid, so_far), 1, "{said:#?}");
    assert_eq!(about(killed.pid, "the program ended"), 1, "{said:#?}");
    assert!(about(goes_on.pid, "the program ended") > 0, "{said:#?}");
    assert_eq!(about(other.pid, ""), 0, "{said:#?}");
}
