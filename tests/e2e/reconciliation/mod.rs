//! Reconciliation with the memory use that `nvidia-smi` shows.

mod contexts;

use serde_json::{Value, json};

use crate::harness::gpuprobe::output_of;
use crate::harness::report::number;
use crate::harness::{Backend, Nvml, Report, Setup, Workload, nvml};
use crate::recording::Recording;

const MIB: u64 = 1 << 20;

/// Used, tracked, other and context bytes of a process, in MiB.
fn figures(report: &Report, pid: u32) -> [Value; 4] {
    let nvml = &report.process(pid)["nvml"];
    let used = number(nvml, "used_bytes").cast_signed();
    let tracked = number(nvml, "tracked_bytes").cast_signed();
    let other = nvml["other_bytes"].as_i64().expect("a number");
    assert_eq!(tracked + other, used, "{nvml} does not add up");
    let keys = [
        "used_bytes",
        "tracked_bytes",
        "other_bytes",
        "context_bytes",
    ];
    keys.map(|key| match nvml[key].as_i64() {
        Some(bytes) => {
            assert_eq!(bytes % MIB.cast_signed(), 0, "{key} of {nvml}");
            json!(bytes / MIB.cast_signed())
        }
        None => Value::Null,
    })
}

fn mib(figures: [i64; 3], context: impl Into<Option<i64>>) -> [Value; 4] {
    let [used, tracked, other] = figures.map(|figure| json!(figure));
    [used, tracked, other, json!(context.into())]
}

/// The last report of a recording in text.
fn text_of(recording: &Recording) -> String {
    output_of(&["replay", &recording.text(), "--last"])
}

#[test]
fn root_late_attach_remainder_is_memory_from_before() {
    let nvml = Nvml::with_gpus(1);
    let recording = Recording::new();
    let mut early = Workload::start(Backend::Shared);
    early.say("alloc 67108864 2");
    let mut more = Workload::start(Backend::Driver);
    let mut exits = Workload::start(Backend::Shared);
    let pids = [early.pid, more.pid, exits.pid].map(|pid| pid.to_string());
    let setup = nvml.given_to(Setup::everything());
    let setup = setup.args(["--pid", &pids.join(","), "--record"]);
    let setup = setup.args([recording.text()]).interval("50ms");
    let mut gpuprobe = setup.start();
    early.play("alloc 1048576 3; pitched 1048576 2");
    // Neither process may use the GPU now.
    early.play("managed 8388608; pinned 4194304");
    more.say("alloc 2097152 5");
    exits.say("alloc 1048576");
    nvml.says(&[
        (0, early.pid, 612 * MIB),
        (0, more.pid, 4 * MIB),
        (0, exits.pid, 300 * MIB),
        (0, 1, 99 * MIB),
    ]);
    gpuprobe.report_where("the use of all", |report| {
        [early.pid, more.pid, exits.pid].iter().all(|&pid| {
            let entries = report.entries(pid);
            entries.iter().any(|process| process.get("nvml").is_some())
        })
    });
    exits.done();
    nvml.says(&[(0, early.pid, 612 * MIB), (0, more.pid, 4 * MIB)]);
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    let process = report.process(early.pid);
    assert_eq!(process["live_bytes"], (3 + 2 + 8) * MIB);
    assert_eq!(figures(&report, early.pid), mib([612, 5, 607], None));
    // More is tracked than used.
    assert_eq!(figures(&report, more.pid), mib([4, 10, -6], None));
    // An exited process keeps its last use. By then, one MiB was tracked or none.
    let exited = report.process(exits.pid);
    assert_eq!(number(exited, "live_bytes"), MIB);
    assert_eq!(number(&exited["nvml"], "used_bytes"), 300 * MIB, "{exited}");
    let text = text_of(&recording);
    for line in [
        // Managed memory is held, but may be resident anywhere.
        "- managed 8.00 MiB + before attach or outside CUDA 607.00 MiB = nvidia-smi 612.00 MiB",
        "- not at a GPU 6.00 MiB = nvidia-smi 4.00 MiB",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn root_no_reconciliation_without_nvml_or_with_kind_filter() {
    let nvml = Nvml::with_gpus(1);
    let mut workload = Workload::start(Backend::Shared);
    nvml.says(&[(0, workload.pid, 300 * MIB)]);
    let (_folder, without) = nvml::broken(Setup::pid(workload.pid));
    let filtered = nvml.given_to(Setup::pid(workload.pid).args(["--kind", "device"]));
    let mut both = [without.start(), filtered.start()];
    workload.say("alloc 1048576");
    for gpuprobe in &mut both {
        let report = gpuprobe.stop();
        report.assert_holds(workload.pid, MIB, 1);
        assert!(report.process(workload.pid).get("nvml").is_none());
    }
}

#[test]
fn root_unknown_nvml_use_gives_no_reconciliation() {
    let nvml = Nvml::with_gpus(1);
    let setup = nvml.given_to(Setup::workload(Backend::Shared));
    let (mut gpuprobe, pid) = setup.interval("50ms").started();
    nvml.does_not_know(pid);
    gpuprobe.talk.say("alloc 1048576");
    let report = gpuprobe.report_where("the process", |r| !r.entries(pid).is_empty());
    assert!(report.process(pid).get("nvml").is_none());
    gpuprobe.talk.done();
    gpuprobe.final_report();
}
