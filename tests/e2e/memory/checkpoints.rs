//! Processes that are checkpointed, by themselves or by others, which need not be traced and may see other PIDs.

use std::fs;

use serde_json::json;

use crate::harness::child::children_of;
use crate::harness::gpuprobe::output_of;
use crate::harness::report::number;
use crate::harness::{Backend, Family, Setup, Workload, standin, wait_for};
use crate::recording::{Recording, count};

const MIB: u64 = 1 << 20;

/// The descendant of `pid` with this name.
fn descendant(pid: u32, name: &str) -> Option<u32> {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut children = children_of(pid).into_iter();
    let found = (comm.trim_end() == name).then_some(pid);
    found.or_else(|| children.find_map(|child| descendant(child, name)))
}

#[test]
fn root_a_checkpointed_process_holds_no_gpu_memory_until_it_is_restored() {
    let driver = standin().program_text(Backend::Driver);
    let members = format!("( @inside & @neighbour={driver} & wait )");
    let family = Family::start(&format!(
        "unshare --pid --fork --mount-proc sh -c \" {members} \""
    ));
    let [mut inside, mut neighbour] = family.members(["inside", "neighbour"]);
    let inside_pid = descendant(family.root(), "inside").unwrap();
    let inner_pid = inside.pid;
    let mut plain = Workload::start(Backend::Shared);
    let mut own = Workload::start(Backend::Driver);
    let mut caller = Workload::start(Backend::Driver);
    let (plain_pid, own_pid) = (plain.pid, own.pid);
    let recording = Recording::new();
    let setup = Setup::pids([plain_pid, inside_pid, own_pid]).interval("50ms");
    let mut gpuprobe = setup.args(["--record", &recording.text()]).start();
    for target in [&mut *plain, &mut *inside, &mut *own] {
        target.play("alloc 1048576 2; pinned 4096");
    }
    let live = |figures: [u64; 3]| {
        wait_for("these figures", || {
            let report = gpuprobe.reports().pop()?;
            let processes = [plain_pid, inside_pid, own_pid];
            let of = |pid| {
                report
                    .entries(pid)
                    .first()
                    .map(|p| number(p, "live_bytes") / MIB)
            };
            (processes.map(of) == figures.map(Some)).then_some(report)
        })
    };
    live([2, 2, 2]);
    let script = |verb: &str, pid: u32| match verb {
        "checkpoint" => format!(
            "!checkpoint checkpoint {pid}; checkpoint lock {pid}; checkpoint checkpoint {pid}"
        ),
        _ => format!("checkpoint restore {pid}; checkpoint unlock {pid}"),
    };
    let mut step = |verb: &str, of: usize| match of {
        0 => caller.play(&script(verb, plain_pid)),
        // Outside of its PID namespace, and inside.
        1 => caller.play(&script(verb, inside_pid)),
        2 => neighbour.play(&script(verb, inner_pid)),
        _ => own.play(&script(verb, own_pid)),
    };
    for (of, pid, figures) in [
        (0, plain_pid, [0, 2, 2]),
        (1, inside_pid, [2, 0, 2]),
        (2, inside_pid, [2, 0, 2]),
        (3, own_pid, [2, 2, 0]),
    ] {
        step("checkpoint", of);
        let report = live(figures);
        let process = report.process(pid);
        assert_eq!(
            process["checkpointed"],
            json!({"bytes": 2 * MIB, "allocations": 2})
        );
        assert_eq!(
            [number(process, "host_bytes"), number(process, "peak_bytes")],
            [4096, 2 * MIB]
        );
        assert_eq!([&process["devices"], &process["sites"]], [&json!([]); 2]);
        assert_eq!(number(&report["memleak"], "live_bytes"), 4 * MIB);
        step("restore", of);
        let report = live([2, 2, 2]);
        assert_eq!(report.process(pid)["checkpointed"], json!(null));
    }
    plain.play("free 0; free 1");
    step("checkpoint", 1);
    let last = gpuprobe.stop();
    last.assert_nothing_lost();
    assert_eq!(last.process(inside_pid)["checkpointed"]["bytes"], 2 * MIB);
    assert_eq!(last.process(own_pid)["live_bytes"], 2 * MIB);
    assert_eq!(number(&last["memleak"], "peak_bytes"), 6 * MIB);
    // None but the targets.
    assert_eq!(last["memleak"]["processes"].as_array().unwrap().len(), 3);

    assert_eq!(count(&recording.file, "GPUPROBE_CHECKPOINTS"), 9);
    let text = output_of(&["replay", &recording.text(), "--last"]);
    for said in [
        "(checkpointed)",
        "checkpointed to host memory 2.00 MiB in 2",
    ] {
        assert!(text.contains(said), "{text}");
    }
}
