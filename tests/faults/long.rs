//! Round by round, and with every kind of probe. Removing perf events takes the kernel tens of seconds.

use nix::sys::signal::Signal;

use crate::harness::child::children_of;
use crate::harness::{Backend, Setup, standin, wait_for};
use crate::killed::killed_with;
use crate::rounds;
use crate::stages::command::killed_with_commands;
use crate::stages::stage::Stage;
use crate::stages::{killed_at, killed_while_it_starts};

#[test]
fn root_killed_with_perf_probes_it_leaves_nothing() {
    killed_with("perf");
}

#[test]
fn root_no_child_stays_stopped_after_a_kill_of_gpuprobe() {
    let (program, runtime) = (standin().program_text(Backend::Dlopen), standin().runtime());
    let child = format!("{program} -c 'load {runtime}; exit' >/dev/null");
    // At any moment some are held, and more are about to be.
    let script = format!(
        "echo ready $$; while read -r line; do echo begun; \
         for i in 1 2 3 4 5 6 7 8; do (for j in 1 2 3 4 5 6 7 8; do {child}; done) & done; \
         wait; echo ended; done"
    );
    // The second is killed later, with more children started.
    let step = 20 / rounds(20);
    for round in (0..20).step_by(step) {
        let mut gpuprobe = Setup::command(["sh", "-c", &script]).start();
        let shell = gpuprobe.talk.ready();
        gpuprobe.talk.send("go on");
        assert_eq!(gpuprobe.talk.hear(), "begun");
        wait_for("children", || {
            (children_of(shell).len() > round % 8).then_some(())
        });
        gpuprobe.child.signal(Signal::SIGKILL);
        assert_eq!(gpuprobe.exit_code(), 128 + 9);
        assert_eq!(gpuprobe.talk.hear(), "ended", "all of them have gone on");
    }
}

#[test]
fn root_killed_while_it_starts_and_attaches_it_leaves_nothing() {
    let most = [0, 25, 50, 70, 80, 85, 90, 95];
    for (kind, moments) in [
        ("session", &most[..]),
        ("multi", &most[4..]),
        ("perf", &[50]),
    ] {
        // From the last on, some of which have links.
        let moments = moments.iter().rev().step_by(8 / rounds(8));
        killed_while_it_starts(kind, &moments.copied().collect::<Vec<_>>());
    }
}

#[test]
fn root_killed_while_it_traces_and_reports_it_leaves_nothing() {
    killed_at("session", &[(Stage::Tracing, 2), (Stage::Reporting, 3)]);
}

#[test]
fn root_killed_while_it_shuts_down_it_leaves_nothing() {
    // With perf events, `killed` has it.
    for (kind, times) in [("session", 4), ("multi", 2)] {
        killed_at(kind, &[(Stage::LastReport, 1), (Stage::Ending, times)]);
    }
}

#[test]
fn root_killed_with_a_command_it_leaves_nothing_and_no_guard() {
    killed_with_commands(&[
        ("session", Stage::Tracing, 5),
        ("session", Stage::Reporting, 2),
        ("session", Stage::LastReport, 1),
        ("session", Stage::Ending, 2),
        ("multi", Stage::Reporting, 1),
        ("multi", Stage::Ending, 1),
    ]);
}
