//! Fork, exec and exit of processes.

use nix::sys::signal::{Signal, kill};

use crate::harness::child::raw;
use crate::harness::report::{Totals, number};
use crate::harness::{Backend, Report, Setup, Truth, Workload, alone, host_wide, standin};
use crate::long::fairness::Hog;

/// Splits `PID status=N live=...` into the PID, the exit status and the totals.
fn child_of(reply: &str) -> (u32, String, Truth) {
    let mut words = reply.split(' ');
    let pid = words.next().unwrap().parse().unwrap();
    (pid, words.next().unwrap().to_owned(), Truth::parse(reply))
}

#[test]
fn root_forked_child_has_its_own_process_entry() {
    let mut gpuprobe =
        Setup::command_without_stacks([standin().program_text(Backend::Shared)]).start();
    let talk = &mut gpuprobe.talk;
    let pid = talk.ready();
    talk.say("alloc 4096 3");
    let (child, ending, truth) = child_of(&talk.say("fork alloc 512 3 | free 1 | exit 3"));
    assert_eq!(ending, "status=3");
    talk.say("free 0");
    let total = talk.done() + truth;
    let report = gpuprobe.final_report();
    report.assert_totals(total);
    report.assert_calls(&[("cudaMalloc", 6)]);
    report.assert_holds(pid, 8192, 2);
    report.assert_holds(child, 1024, 2);
    assert_eq!(report.process(child)["comm"], "workload");
}

#[test]
fn root_a_forked_child_does_not_free_its_parents_memory() {
    let mut gpuprobe =
        Setup::command_without_stacks([standin().program_text(Backend::Driver)]).start();
    let talk = &mut gpuprobe.talk;
    let pid = talk.ready();
    let address = talk.say("alloc 4096");
    let child: u32 = talk.ask(&format!("fork freeaddr {address} | exit"));
    talk.done();
    let report = gpuprobe.final_report();
    report.assert_totals(Totals {
        alloc_calls: 1,
        free_calls: 1,
        unknown_frees: 1,
        live_bytes: 4096,
        live_allocations: 1,
        ..Totals::default()
    });
    report.assert_holds(pid, 4096, 1);
    report.assert_holds(child, 0, 0);
}

#[test]
fn root_exec_starts_a_new_entry() {
    let mut gpuprobe =
        Setup::command_without_stacks([standin().program_text(Backend::Shared)]).start();
    let talk = &mut gpuprobe.talk;
    let pid = talk.ready();
    talk.say("alloc 4096 3");
    talk.say("free 0");
    let old = talk.status();
    talk.send(&format!("exec {}", standin().program_text(Backend::Driver)));
    assert_eq!(talk.ready(), pid);
    talk.say("alloc 512 2");
    let address = talk.say("alloc 1024");
    talk.say(&format!("freeaddr {address}"));
    let new = talk.done();
    let report = gpuprobe.final_report();
    report.assert_totals(old + new);
    report.assert_calls(&[("cuMemAlloc_v2", 3), ("cudaMalloc", 3)]);
    let mut entries = report.entries(pid);
    entries.sort_by_key(|entry| number(entry, "live_bytes"));
    let held: Vec<_> = entries
        .iter()
        .map(|e| (&e["comm"], number(e, "live_bytes")))
        .collect();
    assert_eq!(held[0], (&"workload_driver".into(), 1024));
    assert_eq!(held[1], (&"workload".into(), 8192));
    assert!(entries.iter().all(|entry| entry["exited"] == true));
}

#[test]
fn root_exec_after_late_attach_starts_a_new_entry() {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid)
        .interval("50ms")
        .start();
    workload.say("alloc 4096 3");
    workload.send(&format!("exec {}", standin().program_text(Backend::Shared)));
    assert_eq!(workload.ready(), workload.pid);
    let pid = workload.pid;
    let report = gpuprobe.report_where("the end of the first program", |report| {
        report.entries(pid).iter().any(|e| e["exited"] == true)
    });
    report.assert_holds(pid, 12_288, 3);
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    let ended: Vec<_> = report
        .entries(pid)
        .into_iter()
        .filter(|e| e["exited"] == true)
        .collect();
    assert_eq!(ended.len(), 1);
    assert_eq!(number(ended[0], "live_bytes"), 12_288);
}

#[test]
fn root_a_leak_is_reported_once_and_again_at_the_end() {
    let mut gpuprobe = Setup::command_without_stacks([standin().program_text(Backend::Shared)])
        .interval("50ms")
        .start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.say("alloc 4096");
    let (child, ending, _) = child_of(&gpuprobe.talk.say("fork alloc 512 2 | kill9"));
    assert_eq!(ending, "signal=9");
    gpuprobe.report_where("the child's leak", |report| {
        report.entries(child).iter().any(|e| e["exited"] == true)
    });
    for _ in 0..3 {
        gpuprobe.next_report();
    }
    gpuprobe.talk.done();
    let last = gpuprobe.final_report();
    let mut reports = gpuprobe.reports();
    reports.pop();
    let ended = reports
        .iter()
        .filter(|r| r.entries(child).iter().any(|e| e["exited"] == true));
    assert_eq!(ended.count(), 1, "periodic reports with the leak");
    let after = reports.last().unwrap();
    assert!(after.entries(child).is_empty());
    after.assert_holds(pid, 4096, 1);
    last.assert_holds(child, 1024, 2);
    last.assert_holds(pid, 4096, 1);
    assert_eq!(last.process(child)["exited"], true);
}

#[test]
fn root_killed_process_is_in_the_last_host_wide_report() {
    let _shared = host_wide();
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let mut gpuprobe = Setup::everything().interval("50ms").start();
    workload.say("alloc 4096 3");
    let pid = workload.pid;
    kill(raw(pid), Signal::SIGKILL).unwrap();
    gpuprobe.report_where("the leak", |report| {
        report.entries(pid).iter().any(|e| e["exited"] == true)
    });
    let report = gpuprobe.stop();
    report.assert_holds(pid, 12_288, 3);
    assert_eq!(report.process(pid)["exited"], true);
}

#[test]
fn root_lost_exit_is_detected() {
    let _alone = alone();
    let (mut victim, mut noisy) = (
        Workload::start(Backend::Driver),
        Workload::start(Backend::Driver),
    );
    let mut other = Hog::start(1001, "calls", 400_000);
    let mut gpuprobe = Setup::everything().interval("50ms").start();
    victim.say("alloc 4096 3");
    let pid = victim.pid;
    gpuprobe.report_where("the victim", |report| !report.entries(pid).is_empty());
    gpuprobe.child.signal(Signal::SIGSTOP);
    // One user's processes leave map entries free, so exits are seen.
    noisy.say("race 2 200000 4096");
    other.begin();
    other.made();
    victim.child.signal(Signal::SIGKILL);
    victim.child.wait();
    gpuprobe.child.signal(Signal::SIGCONT);
    let report = gpuprobe.stop();
    assert!(report.lost("memory") > 0, "the ring was to overflow");
    assert!(report.lost("tasks") > 0, "the end was to be lost");
    assert_eq!(report.process(pid)["exited"], true);
    report.assert_holds(pid, 12_288, 3);
}

#[test]
fn root_several_processes_are_traced_until_all_have_ended() {
    let mut workloads = [Backend::Shared, Backend::Driver, Backend::Shared].map(Workload::start);
    for workload in &mut workloads {
        workload.say("freenull");
    }
    let [first, second, other] = &mut workloads;
    let both = format!("{},{}", first.pid, second.pid);
    let again = second.pid.to_string();
    let mut gpuprobe = Setup::everything()
        .args(["--pid", &both, "-p", &again])
        .interval("50ms")
        .start();
    first.say("alloc 4096 3");
    other.say("alloc 4096");
    let did = first.done();
    // The other process goes on.
    let shown = |report: &Report| !report.entries(first.pid).is_empty() && !report.is_final();
    gpuprobe.report_where("the first one's memory", shown);
    second.say("alloc 512 2");
    let did = did + second.done();
    let report = gpuprobe.final_report();
    assert_eq!(gpuprobe.exit_code(), 0);
    report.assert_nothing_lost();
    report.assert_totals(did);
    report.assert_holds(first.pid, 3 * 4096, 3);
    report.assert_holds(second.pid, 1024, 2);
    assert!(report.entries(other.pid).is_empty());
}
