//! Fork, exec and exit of processes.

use nix::sys::signal::{Signal, kill};

use crate::harness::child::raw;
use crate::harness::report::{Totals, number};
use crate::harness::{Backend, Report, Session, Setup, Workload, alone, host_wide, standin};

/// Splits `PID status=N live=...` into the PID and the exit status.
fn child_of(reply: &str) -> (u32, &str) {
    let mut words = reply.split(' ');
    let pid = words.next().unwrap().parse().unwrap();
    (pid, words.next().unwrap())
}

#[test]
fn root_forked_children_and_new_programs_have_entries_of_their_own() {
    let mut session = Session::start(|setup| setup.without_stacks().interval("50ms"));
    let shared = "alloc 4096 3; fork alloc 512 3 | free 1 | exit 3; free 0";
    let parent = session.play("", Backend::Shared, shared);
    let (child, ending) = child_of(&parent.replies[1]);
    assert_eq!(ending, "status=3");
    // A forked child does not free its parent's memory.
    let foreign = session.play(
        "",
        Backend::Driver,
        "alloc 4096; fork freeaddr $alloc | exit",
    );
    let (frees, _) = child_of(&foreign.replies[1]);

    let mut changes = session.workload(Backend::Shared);
    changes.play("alloc 4096 3; free 0");
    changes.send(&format!("exec {}", standin().program_text(Backend::Driver)));
    assert_eq!(changes.ready(), changes.pid);
    changes.play("alloc 512 2; alloc 1024; freeaddr $alloc");
    let changed = session.done(changes);

    // A leak is reported once, and again at the end.
    let mut keeps = session.workload(Backend::Shared);
    keeps.say("alloc 4096");
    let reply = keeps.say("fork alloc 512 2 | kill9");
    let (killed, ending) = child_of(&reply);
    assert_eq!(ending, "signal=9");
    let has_ended = |report: &Report| report.entries(killed).iter().any(|e| e["exited"] == true);
    session.gpuprobe.report_where("the child's leak", has_ended);
    for _ in 0..3 {
        session.gpuprobe.next_report();
    }
    let after = session.gpuprobe.reports().pop().unwrap();
    assert!(after.entries(killed).is_empty());
    after.assert_holds(keeps.pid, 4096, 1);
    let kept = session.done(keeps);

    let (last, _) = session.end();
    last.assert_totals(Totals {
        alloc_calls: 16,
        free_calls: 5,
        unknown_frees: 1,
        live_bytes: 8192 + 1024 + 4096 + 8192 + 1024 + 4096 + 1024,
        live_allocations: 12,
        ..Totals::default()
    });
    last.assert_calls(&[("cudaMalloc", 6 + 3 + 3), ("cuMemAlloc_v2", 1 + 3)]);
    last.assert_holds(parent.pid, 8192, 2);
    last.assert_holds(child, 1024, 2);
    assert_eq!(last.process(child)["comm"], "workload");
    last.assert_holds(foreign.pid, 4096, 1);
    last.assert_holds(frees, 0, 0);
    let mut entries = last.entries(changed.pid);
    entries.sort_by_key(|entry| number(entry, "live_bytes"));
    let held = entries
        .iter()
        .map(|e| (e["comm"].as_str().unwrap(), number(e, "live_bytes")));
    assert_eq!(
        held.collect::<Vec<_>>(),
        [("workload_driver", 1024), ("workload", 8192)]
    );
    assert!(entries.iter().all(|entry| entry["exited"] == true));
    let mut reports = session.gpuprobe.reports();
    reports.pop();
    let ended = reports.iter().filter(|report| has_ended(report));
    assert_eq!(ended.count(), 1, "periodic reports with the leak");
    last.assert_holds(killed, 1024, 2);
    last.assert_holds(kept.pid, 4096, 1);
    assert_eq!(last.process(killed)["exited"], true);
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
    let [mut victim, mut noisy, mut other] = [Backend::Driver; 3].map(Workload::start);
    let mut gpuprobe = Setup::everything().interval("50ms").start();
    victim.say("alloc 4096 3");
    let pid = victim.pid;
    gpuprobe.report_where("the victim", |report| !report.entries(pid).is_empty());
    gpuprobe.child.signal(Signal::SIGSTOP);
    // One process alone leaves room in the ring.
    for workload in [&mut noisy, &mut other] {
        workload.say("race 2 200000 4096");
    }
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
