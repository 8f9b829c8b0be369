//! Attach to running processes.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::Value;

use crate::harness::breakpoints::{breakpoints, has_breakpoints, is_unprobed};
use crate::harness::child::{Guarded, raw, state_of};
use crate::harness::gpuprobe::NOTHING;
use crate::harness::report::Totals;
use crate::harness::{
    Backend, Gpuprobe, OwnCopy, Report, Setup, Workload, alone, standin, wait_for,
};

#[test]
fn root_nonexistent_pid_is_one_line_error() {
    // The kernel's limit of PIDs.
    let mut gpuprobe = Setup::pid_without_stacks(4_194_305).spawn();
    assert_ne!(gpuprobe.exit_code(), 0);
    let said = gpuprobe.said();
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].starts_with("gpuprobe: error: "), "{said:#?}");
    assert!(said[0].contains("4194305"), "{said:#?}");
}

#[test]
fn root_run_ends_when_the_process_exits() {
    let mut workload = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid).start();
    workload.say("alloc 4096 3");
    let truth = workload.done();
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_totals(truth);
    report.assert_holds(workload.pid, 12_288, 3);
    assert_eq!(report.process(workload.pid)["exited"], true);
    // It is in no container, and has one PID.
    for key in ["container", "container_pid"] {
        assert!(report.process(workload.pid)[key].is_null(), "{key}");
    }
}

/// Asserts that gpuprobe traced and wrote its last report, or printed one line that says why not.
pub(crate) fn has_reported_or_failed_in_one_line(gpuprobe: &mut Gpuprobe) {
    let code = gpuprobe.exit_code();
    let said = gpuprobe.said();
    let is_error = |line: &String| line.starts_with("gpuprobe: error: ");
    if code == 0 {
        assert!(!said.iter().any(is_error), "{said:#?}");
        assert!(gpuprobe.final_report().is_final());
        return;
    }
    let begins = |line: &&String| line.starts_with("gpuprobe: tracing ");
    let rest: Vec<_> = said.iter().filter(|line| !begins(line)).collect();
    assert_eq!(rest.len(), 1, "{said:#?}");
    match code {
        NOTHING => assert!(rest[0].starts_with("gpuprobe: nothing was traced: ")),
        code => assert!(code == 1 && is_error(rest[0]), "{code}: {said:#?}"),
    }
}

#[test]
fn root_a_thread_id_stands_for_its_process() {
    let mut workload = Workload::start(Backend::Shared);
    let tid: u32 = workload.ask("thread a");
    workload.say("alloc 512");
    let mut gpuprobe = Setup::pid_without_stacks(tid).start();
    workload.say("alloc 4096");
    workload.say("@a alloc 8192");
    let report = gpuprobe.stop();
    report.assert_totals(Totals {
        alloc_calls: 2,
        live_bytes: 12_288,
        live_allocations: 2,
        ..Totals::default()
    });
    assert_eq!(report.thread(workload.pid, tid)["live_bytes"], 8192);
}

/// Functions that make a checkpoint of a process, and restore it.
const CHECKPOINTS: usize = 2;

#[test]
fn root_bystanders_of_a_few_traced_processes_are_not_probed() {
    let _alone = alone();
    // Probes of a program and of all of its children are in every process with the library.
    let copy = OwnCopy::new();
    let mut workloads = [(); 3].map(|()| Workload::of(&copy, Backend::Shared));
    for workload in &mut workloads {
        workload.say("freenull");
    }
    let [first, second, bystander] = &mut workloads;
    let mut gpuprobe = Setup::pid_without_stacks(first.pid)
        .args(["--pid", &second.pid.to_string()])
        .start();
    assert!(has_breakpoints(first.pid) && has_breakpoints(second.pid));
    // But for those of checkpoints, which any process may ask for.
    assert!(is_unprobed(bystander.pid) || breakpoints(bystander.pid) == CHECKPOINTS);
    for workload in [&mut *first, second, bystander] {
        workload.say("alloc 4096 3");
    }
    // One that ends takes nothing from the other.
    first.child.signal(Signal::SIGKILL);
    first.child.wait();
    second.say("free 0");
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    report.assert_holds(first.pid, 3 * 4096, 3);
    report.assert_holds(second.pid, 2 * 4096, 2);
    assert_eq!(report.entries(bystander.pid).len(), 0);
}

/// Loads the library in the workload; asserts that it is attached soon, and that no later call is missed. Returns the
/// last report.
fn load_and_see(gpuprobe: &mut Gpuprobe, workload: &mut Workload, library: &str) -> Report {
    workload.say(&format!("load {library}"));
    let latency = gpuprobe.until_it_sees(workload.pid, workload);
    assert!(
        latency < Duration::from_secs(5),
        "noticed after {latency:?}"
    );
    workload.say("alloc 12345 7");
    let report = gpuprobe.stop();
    let sizes = report.allocations(workload.pid);
    assert_eq!(sizes.iter().filter(|a| a["bytes"] == 12_345).count(), 7);
    report
}

#[test]
fn root_a_process_without_cuda_is_waited_for() {
    let mut workload = Workload::start(Backend::Dlopen);
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid)
        .interval("50ms")
        .start();
    gpuprobe.next_report().assert_totals(Totals::default());
    load_and_see(&mut gpuprobe, &mut workload, &standin().runtime()).assert_nothing_lost();
    let said = gpuprobe.said();
    let waits = |line: &&String| line.contains(": waiting for CUDA");
    assert_eq!(said.iter().filter(waits).count(), 1, "{said:#?}");
}

#[test]
fn root_late_loaded_library_is_attached_host_wide() {
    let _shared = crate::harness::host_wide();
    let copy = OwnCopy::new();
    let mut workload = Workload::start(Backend::Dlopen);
    let mut gpuprobe = Setup::everything().interval("50ms").start();
    load_and_see(&mut gpuprobe, &mut workload, &copy.standin().runtime());
}

#[test]
fn root_a_zombie_is_not_waited_for() {
    let workload = Workload::start(Backend::Shared);
    workload.child.signal(Signal::SIGKILL);
    wait_for("a zombie", || {
        (state_of(workload.pid) == Some('Z')).then_some(())
    });
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid).spawn();
    has_reported_or_failed_in_one_line(&mut gpuprobe);
    assert_eq!(state_of(workload.pid), Some('Z'));
}

#[test]
fn root_a_stopped_process_is_left_stopped() {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("alloc 512");
    workload.child.signal(Signal::SIGSTOP);
    wait_for("a stopped process", || {
        (state_of(workload.pid) == Some('T')).then_some(())
    });
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid).start();
    assert_eq!(state_of(workload.pid), Some('T'));
    kill(raw(workload.pid), Signal::SIGCONT).unwrap();
    workload.say("alloc 4096");
    let report = gpuprobe.stop();
    report.assert_holds(workload.pid, 4096, 1);
    assert_eq!(workload.status().live, 2);
}

/// Starts 200 short CUDA programs a second, until it is dropped.
struct ShortPrograms(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl ShortPrograms {
    fn start() -> Self {
        let goes_on = Arc::new(AtomicBool::new(true));
        let seen = Arc::clone(&goes_on);
        let program = standin().program(Backend::Shared);
        let start = move || {
            let mut running = Vec::new();
            while seen.load(Ordering::Relaxed) {
                let mut command = Command::new(&program);
                command.args(["-c", "alloc 512; exit"]).stdin(Stdio::null());
                running.push(Guarded::spawn(command.stdout(Stdio::null())).unwrap());
                if running.len() > 50 {
                    running.remove(0).wait();
                }
                sleep(Duration::from_millis(5));
            }
        };
        Self(goes_on, Some(spawn(start)))
    }
}

impl Drop for ShortPrograms {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn root_new_libraries_are_probed_soon_beside_many_starts_and_their_users_are_listed() {
    const ROUNDS: usize = 10;
    const WANTED: usize = 3;
    let _alone = alone();
    // With call stacks, programs of which these are taken are looked at for longer.
    let setup = Setup::everything().args(["--stacks", "off"]);
    let mut gpuprobe = setup.interval("100ms").start();
    let mut first = Workload::start(Backend::Shared);
    gpuprobe.until_it_sees(first.pid, &mut first);
    let _others = ShortPrograms::start();
    let start = |commands: &str| {
        let copy = OwnCopy::new();
        let mut command = Command::new(copy.standin().program(Backend::Shared));
        (Workload::spawn(command.args(["-c", commands])), copy)
    };
    let mut whole = 0;
    for round in 0..ROUNDS {
        let (at_once, _copy) = start("alloc 4096 3");
        let (later, _other) = start("sleep 0.03; alloc 4096 7");
        let is_whole = |process: &Value| process["live_allocations"] == 7;
        // On a machine that was busy for 30 ms, the program is late, and that is said.
        let is_late = |process: &Value| process["traced_from_ms"].as_u64() > Some(30);
        let report = gpuprobe.report_where("both", |report| {
            let of = |pid| report.entries(pid).into_iter();
            let is_listed = |pid| of(pid).any(|it| it["traced_from_ms"].is_u64());
            of(later.pid).any(|it| is_whole(it) || is_late(it))
                && is_listed(later.pid)
                && is_listed(at_once.pid)
        });
        if round == 0 {
            // Or one of another test: only a few are named.
            gpuprobe.stderr.line_with(&["process ", "is traced from "]);
        }
        whole += usize::from(is_whole(report.process(later.pid)));
        if whole == WANTED {
            break;
        }
    }
    assert_eq!(whole, WANTED);
    gpuprobe.stop().assert_nothing_lost();
}
