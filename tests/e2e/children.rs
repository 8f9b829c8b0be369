//! Children of the command, and the command while it is held.

use nix::sys::signal::{Signal, kill};

use crate::harness::child::{raw, state_of};
use crate::harness::report::Totals;
use crate::harness::{Backend, OwnCopy, Report, Setup, standin, wait_for};

fn workload() -> String {
    standin().program_text(Backend::Shared)
}

#[test]
fn root_the_commands_children_are_followed() {
    let child = format!("{} -c 'alloc 4096 3; free 0; exit'", workload());
    let script = format!("{child} >&2 & {child} >&2; wait; ( {child} >&2 ); exit 3");
    let mut gpuprobe = Setup::command(["sh", "-c", &script]).start();
    assert_eq!(gpuprobe.exit_code(), 3);
    let report = gpuprobe.final_report();
    report.assert_totals(Totals {
        alloc_calls: 9,
        free_calls: 3,
        live_bytes: 6 * 4096,
        live_allocations: 6,
        ..Totals::default()
    });
    report.assert_calls(&[("cudaMalloc", 9)]);
    assert_eq!(report["memleak"]["processes"].as_array().unwrap().len(), 3);
}

#[test]
fn root_many_children_at_once_are_followed() {
    // Different programs, so that each is held when it starts.
    let copies: Vec<_> = (0..4).map(|_| OwnCopy::new()).collect();
    let mut script = String::new();
    for round in 0..5 {
        for copy in &copies {
            let backend = Backend::ALL[round % 3];
            let program = copy.standin().program_text(backend);
            script += &format!("{program} -c 'alloc 4096 3; free 0; exit' >&2 & ");
        }
    }
    let mut gpuprobe = Setup::command(["sh", "-c", &(script + "wait")]).start();
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_totals(Totals {
        alloc_calls: 60,
        free_calls: 20,
        live_bytes: 40 * 4096,
        live_allocations: 40,
        ..Totals::default()
    });
    let processes = report["memleak"]["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 20);
    assert!(processes.iter().all(|p| p["live_bytes"] == 8192));
}

#[test]
fn root_a_time_limit_ends_tracing_and_not_the_command() {
    let mut gpuprobe = Setup::command([workload()])
        .args(["--duration", "1ms"])
        .start();
    gpuprobe.talk.ready();
    gpuprobe.report_where("the last report", Report::is_final);
    gpuprobe.talk.say("alloc 4096");
    gpuprobe.talk.send("exit 4");
    assert_eq!(gpuprobe.exit_code(), 4);
    assert_eq!(gpuprobe.final_report().totals(), Totals::default());
}

#[test]
fn root_a_command_killed_while_it_is_held_ends_the_run() {
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Dlopen)]).start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.child.signal(Signal::SIGSTOP);
    gpuprobe.talk.send(&format!("load {}", standin().runtime()));
    wait_for("the command to be held", || {
        (state_of(pid) == Some('T')).then_some(())
    });
    kill(raw(pid), Signal::SIGKILL).unwrap();
    gpuprobe.child.signal(Signal::SIGCONT);
    assert_eq!(gpuprobe.exit_code(), 128 + 9);
    gpuprobe.final_report().assert_totals(Totals::default());
}

#[test]
fn root_a_child_that_outlives_the_command_goes_on() {
    // Tracing ends while the child is being started, each time at another moment of it.
    let copies: Vec<_> = (0..6).map(|_| OwnCopy::new()).collect();
    for copy in &copies {
        let program = copy.standin().program_text(Backend::Shared);
        let script = format!("exec 3<&0; {program} <&3 & exit 5");
        let mut gpuprobe = Setup::command(["sh", "-c", &script]).start();
        gpuprobe.talk.ready();
        gpuprobe.talk.say("alloc 4096 3");
        assert_eq!(gpuprobe.exit_code(), 5);
        gpuprobe.talk.say("free 0");
        let truth = gpuprobe.talk.done();
        assert_eq!((truth.allocs, truth.frees), (3, 1));
        assert!(gpuprobe.final_report().is_final());
    }
}
