//! Reconciliation with the memory use that `nvidia-smi` shows.

mod contexts;

use std::fs;

use serde_json::{Value, json};

use crate::harness::report::number;
use crate::harness::{Backend, Gpuprobe, Nvml, Report, Setup, Workload, nvml, standin};

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

/// The last text report of a tracer of the same process.
fn text_of(gpuprobe: &mut Gpuprobe) -> String {
    gpuprobe.interrupt();
    gpuprobe.wait();
    fs::read_to_string(&gpuprobe.reports).unwrap()
}

#[test]
fn root_late_attach_remainder_is_memory_from_before() {
    let nvml = Nvml::with_gpus(1);
    let mut workload = Workload::start(Backend::Shared);
    workload.say("alloc 67108864 2");
    let setup = || nvml.given_to(Setup::pid(workload.pid));
    let (mut gpuprobe, mut text) = (setup().start(), setup().format("text").start());
    workload.say("alloc 1048576 3");
    workload.say("pitched 1048576 2");
    // Neither process may use the GPU now.
    workload.say("managed 8388608");
    workload.say("pinned 4194304");
    nvml.says(&[(0, workload.pid, 612 * MIB), (0, 1, 99 * MIB)]);
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    assert_eq!(
        report.process(workload.pid)["live_bytes"],
        (3 + 2 + 8) * MIB
    );
    let expected = mib([612, 5, 607], None);
    assert_eq!(figures(&report, workload.pid), expected);
    let text = text_of(&mut text);
    // Managed memory is held, but may be resident anywhere.
    let line =
        "- managed 8.00 MiB + before attach or outside CUDA 607.00 MiB = nvidia-smi 612.00 MiB";
    assert!(text.lines().any(|l| l.ends_with(line)), "{text}");
}

#[test]
fn root_more_tracked_than_used_is_reported() {
    let nvml = Nvml::with_gpus(1);
    let mut workload = Workload::start(Backend::Driver);
    let setup = || nvml.given_to(Setup::pid(workload.pid));
    let (mut gpuprobe, mut text) = (setup().start(), setup().format("text").start());
    workload.say("alloc 2097152 5");
    nvml.says(&[(0, workload.pid, 4 * MIB)]);
    let report = gpuprobe.stop();
    assert_eq!(figures(&report, workload.pid), mib([4, 10, -6], None));
    let text = text_of(&mut text);
    let line = "- not at a GPU 6.00 MiB = nvidia-smi 4.00 MiB";
    assert!(text.lines().any(|l| l.ends_with(line)), "{text}");
}

#[test]
fn root_exited_process_keeps_its_last_use() {
    let nvml = Nvml::with_gpus(1);
    let mut workload = Workload::start(Backend::Shared);
    nvml.says(&[(0, workload.pid, 300 * MIB)]);
    let setup = nvml.given_to(Setup::pid(workload.pid));
    let mut gpuprobe = setup.interval("50ms").start();
    workload.say("alloc 1048576");
    let pid = workload.pid;
    gpuprobe.report_where("its use", |report| {
        let entries = report.entries(pid);
        entries.iter().any(|p| p.get("nvml").is_some())
    });
    workload.done();
    let report = gpuprobe.final_report();
    report.assert_holds(pid, MIB, 1);
    // By then, one MiB was tracked or none.
    let nvml = &report.process(pid)["nvml"];
    assert_eq!(number(nvml, "used_bytes"), 300 * MIB, "{nvml}");
}

#[test]
fn root_no_reconciliation_without_nvml_or_with_kind_filter() {
    let nvml = Nvml::with_gpus(1);
    let mut folders = Vec::new();
    let mut without = |setup| {
        let (folder, setup) = nvml::broken(setup);
        folders.push(folder);
        setup
    };
    for (kinds, has_nvml) in [(&[][..], false), (&["--kind", "device"], true)] {
        let mut workload = Workload::start(Backend::Shared);
        nvml.says(&[(0, workload.pid, 300 * MIB)]);
        let mut setup = || {
            let setup = Setup::pid(workload.pid).args(kinds.iter().copied());
            if has_nvml {
                nvml.given_to(setup)
            } else {
                without(setup)
            }
        };
        let (mut gpuprobe, mut text) = (setup().start(), setup().format("text").start());
        workload.say("alloc 1048576");
        let report = gpuprobe.stop();
        report.assert_holds(workload.pid, MIB, 1);
        assert!(report.process(workload.pid).get("nvml").is_none());
        let text = text_of(&mut text);
        assert!(
            text.contains("1.00 MiB") && !text.contains("nvidia-smi"),
            "{text}"
        );
    }
}

#[test]
fn root_unknown_nvml_use_gives_no_reconciliation() {
    let nvml = Nvml::with_gpus(1);
    let mut gpuprobe = nvml
        .given_to(Setup::command([standin().program_text(Backend::Shared)]))
        .interval("50ms")
        .start();
    let pid = gpuprobe.talk.ready();
    nvml.does_not_know(pid);
    gpuprobe.talk.say("alloc 1048576");
    let report = gpuprobe.report_where("the process", |r| !r.entries(pid).is_empty());
    assert!(report.process(pid).get("nvml").is_none());
    gpuprobe.talk.done();
    gpuprobe.final_report();
}
