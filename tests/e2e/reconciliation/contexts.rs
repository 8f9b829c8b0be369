//! Context sizes, as learnt from processes that were traced from their start.

use super::{MIB, figures, mib, text_of};
use crate::harness::{Family, Nvml, Report, Setup};
use crate::recording::Recording;

/// A process that started before the tracer, and one that starts under it.
const TREE: &str = "@old & (@gate ; @new ; true) & wait";

/// A tracer of `family`.
fn tracer(family: &Family, nvml: &Nvml) -> Setup {
    let setup = Setup::pid(family.root()).args(["--children"]);
    nvml.given_to(setup).interval("50ms")
}

#[test]
fn root_context_size_is_learnt_from_a_process_traced_from_its_start() {
    let nvml = Nvml::with_gpus(2);
    let family = Family::start(TREE);
    let [mut old, gate] = family.members(["old", "gate"]);
    let recording = Recording::new();
    let setup = tracer(&family, &nvml).args(["--record", &recording.text()]);
    let mut gpuprobe = setup.start();
    { gate }.done();
    let mut new = family.member("new");
    let (old_pid, new_pid) = (old.pid, new.pid);
    old.say("alloc 10485760");
    nvml.says(&[(0, old_pid, 1000 * MIB)]);
    // A report may have been begun before an allocation, and ask NVML after it.
    let knows = |(used, tracked): (u64, u64), pid: u32| {
        move |report: &Report| {
            let of_pid = report.entries(pid).into_iter().next();
            of_pid.is_some_and(|p| {
                let nvml = &p["nvml"];
                nvml["used_bytes"] == used * MIB && nvml["tracked_bytes"] == tracked * MIB
            })
        }
    };
    let report = gpuprobe.report_where("the old one's use", knows((1000, 10), old_pid));
    assert_eq!(figures(&report, old_pid), mib([1000, 10, 990], None));

    // While its context is created, only a part is in use.
    new.say("freenull");
    nvml.says(&[(0, old_pid, 1000 * MIB), (0, new_pid, 14 * MIB)]);
    let report = gpuprobe.report_where("a context in the making", knows((14, 0), new_pid));
    assert_eq!(figures(&report, new_pid), mib([14, 0, 14], None));

    // Started under the tracer: all use beyond its allocations is the context.
    new.say("alloc 104857600");
    nvml.says(&[(0, old_pid, 1000 * MIB), (0, new_pid, 600 * MIB)]);
    let report = gpuprobe.report_where("the new one's use", knows((600, 100), new_pid));
    assert_eq!(figures(&report, new_pid), mib([600, 100, 500], 500));
    assert_eq!(figures(&report, old_pid), mib([1000, 10, 990], 500));

    // The minimum counts, now and later.
    for used in [520, 700] {
        nvml.says(&[(0, old_pid, 1000 * MIB), (0, new_pid, used * MIB)]);
        let report = gpuprobe.report_where("a change", knows((used, 100), new_pid));
        let other = used.cast_signed() - 100;
        let expected = mib([used.cast_signed(), 100, other], 420);
        assert_eq!(figures(&report, new_pid), expected);
        assert_eq!(figures(&report, old_pid), mib([1000, 10, 990], 420));
    }

    // NVML and the ledger are not read at the same moment: less than is tracked gives no size.
    nvml.says(&[(0, old_pid, 1000 * MIB), (0, new_pid, 60 * MIB)]);
    let report = gpuprobe.report_where("less than is tracked", knows((60, 100), new_pid));
    assert_eq!(figures(&report, old_pid), mib([1000, 10, 990], 420));

    // A context takes no more than the whole use.
    nvml.says(&[(0, old_pid, 310 * MIB), (0, new_pid, 700 * MIB)]);
    let report = gpuprobe.report_where("a small use", knows((310, 10), old_pid));
    assert_eq!(figures(&report, old_pid), mib([310, 10, 300], 300));

    // On several GPUs there are several contexts, and the size of a single one is unknown.
    nvml.says(&[(0, old_pid, 600 * MIB), (1, old_pid, 401 * MIB)]);
    let report = gpuprobe.report_where("two GPUs", knows((1001, 10), old_pid));
    assert_eq!(figures(&report, old_pid), mib([1001, 10, 991], None));
    assert!(report.process(new_pid).get("nvml").is_none());
    nvml.says(&[
        (0, old_pid, 600 * MIB),
        (1, old_pid, 401 * MIB),
        (1, new_pid, 150 * MIB),
    ]);
    let report = gpuprobe.report_where("a context there", knows((150, 100), new_pid));
    assert_eq!(figures(&report, new_pid), mib([150, 100, 50], 50));
    assert_eq!(figures(&report, old_pid), mib([1001, 10, 991], 470));

    gpuprobe.stop().assert_nothing_lost();
    let text = text_of(&recording);
    let line = "+ context 470.00 MiB + before attach or outside CUDA 521.00 MiB = nvidia-smi \
                1001.00 MiB";
    assert!(text.lines().any(|l| l.ends_with(line)), "{text}");
}
