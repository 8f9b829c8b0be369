//! Whatever fails, the program runs on and missing records are reported.

use nix::sys::signal::Signal;

use super::{WORK, cupti, process, setup, sum, traced};
use crate::harness::report::{list, number};
use crate::harness::{Backend, Setup, Workload, standin};

/// Asserts that no records arrive, that the reason is reported, and that the program ran to its
/// end.
fn nothing_comes(setup: Setup, why: &str) {
    let mut gpuprobe = setup.start();
    gpuprobe.talk.ready();
    gpuprobe.talk.say("module k");
    gpuprobe.talk.say("launch k 20");
    assert_eq!(gpuprobe.talk.done().launches, 20);
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    assert_eq!(report["activity"]["records"], 0);
    let said = gpuprobe.said();
    assert!(said.iter().any(|line| line.contains(why)), "{said:#?}");
    let ours = "gpuprobe: no GPU activity recorded";
    assert!(said.iter().any(|line| line.starts_with(ours)), "{said:#?}");
}

#[test]
fn root_program_runs_on_without_cupti() {
    let without = setup(Backend::Shared).env("GPUPROBE_CUPTI", "/nowhere/libcupti.so.13");
    nothing_comes(without, "cannot open shared object file");
    let lacking = setup(Backend::Shared).env("GPUPROBE_CUPTI", &cupti("cupti_lacking"));
    nothing_comes(lacking, "missing symbol cuptiActivityRegisterCallbacks");
    let busy = setup(Backend::Shared).env("STANDIN_CUPTI_FAULTS", "in_use");
    nothing_comes(busy, "another profiler");
}

#[test]
fn root_dropped_and_invalid_activity_records_are_counted() {
    let work = ["module k", "launch k 300"];
    for (faults, what) in [
        ("dropped=7", "cupti_dropped"),
        ("unknown=10", "cupti_unknown"),
        ("truncated=1", "cupti_malformed"),
    ] {
        let setup = setup(Backend::Shared).env("STANDIN_CUPTI_FAULTS", faults);
        let (pid, truth, report) = traced(setup, &work);
        assert!(report.lost(what) > 0, "{faults}: {}", report["lost"]);
        let kernels = sum(process(&report, pid), "kernels", "count", |_| true);
        assert!(kernels <= truth.launches);
        if what == "cupti_unknown" {
            assert_eq!(kernels, truth.launches);
        }
    }
}

#[test]
fn root_hostile_kernel_names_are_sanitised() {
    for faults in ["null_names", "huge_names"] {
        let setup = setup(Backend::Shared).env("STANDIN_CUPTI_FAULTS", faults);
        let (pid, truth, report) = traced(setup, &["module k", "launch k 9"]);
        let kernels = list(process(&report, pid), "kernels");
        assert_eq!(kernels.len(), 1);
        assert_eq!(kernels[0]["count"], truth.launches);
    }
}

#[test]
fn root_exit_status_with_activity_is_the_commands() {
    for (how, code) in [("exit 7", 7), ("kill9", 128 + 9), ("abort", 128 + 6)] {
        let mut gpuprobe = setup(Backend::Shared).start();
        let pid = gpuprobe.talk.ready();
        gpuprobe.talk.say("module k");
        gpuprobe.talk.say("launch k 5");
        gpuprobe.talk.send(how);
        assert_eq!(gpuprobe.exit_code(), code, "{how}");
        let report = gpuprobe.final_report();
        report.assert_nothing_lost();
        let processes = list(&report["activity"], "processes");
        // Records that CUPTI had not delivered are lost when the process is killed.
        for process in processes {
            assert_eq!(process["pid"], pid);
            assert_eq!(process["exited"], true);
            assert_eq!(process["complete"] == true, how == "exit 7", "{how}");
        }
        if how == "exit 7" {
            assert_eq!(sum(process(&report, pid), "kernels", "count", |_| true), 5);
        }
    }
}

#[test]
fn root_forked_child_is_not_collected_and_not_harmed() {
    let work = ["module k", "launch k 4", "fork launch k 100", "launch k 5"];
    let (pid, _, report) = traced(setup(Backend::Shared), &work);
    report.assert_nothing_lost();
    assert_eq!(sum(process(&report, pid), "kernels", "count", |_| true), 9);
}

#[test]
fn root_program_with_collector_outlives_a_killed_gpuprobe() {
    let mut gpuprobe = setup(Backend::Shared).start();
    gpuprobe.talk.ready();
    gpuprobe.talk.say("module k");
    gpuprobe.talk.say("launch k 100");
    gpuprobe.child.signal(Signal::SIGKILL);
    gpuprobe.wait();
    gpuprobe.talk.say("launch k 100");
    gpuprobe.talk.say("copy h2d 4096 3");
    let truth = gpuprobe.talk.done();
    assert_eq!((truth.launches, truth.copies), (200, 3));
}

#[test]
fn root_existing_injection_library_is_respected() {
    let mut gpuprobe = setup(Backend::Shared)
        .env("CUDA_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so")
        .spawn();
    assert_ne!(gpuprobe.exit_code(), 0);
    let said = gpuprobe.said().join("\n");
    assert!(said.contains("/opt/nsys/libToolsInjection64.so"), "{said}");
    assert!(gpuprobe.talk.to_end().is_empty(), "the command was started");
}

#[test]
fn root_activity_of_running_processes_is_refused_with_the_alternative() {
    let workload = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::pid(workload.pid).modes(["--activity"]).spawn();
    assert_eq!(gpuprobe.exit_code(), 2);
    let said = gpuprobe.said().join("\n");
    for word in ["CUPTI", "--cudatrace", "--bandwidth-util", "-- COMMAND"] {
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn root_activity_leaves_no_files_behind() {
    let left = || {
        let entries = ["/run", "/tmp", "/dev/shm"]
            .into_iter()
            .flat_map(std::fs::read_dir);
        let names = entries.flatten().flatten().map(|entry| entry.path());
        names
            .filter(|path| path.join("libgpuprobe-collector.so").exists())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let mut gpuprobe = setup(Backend::Shared).start();
    let pid = gpuprobe.talk.ready();
    for command in &WORK[..2] {
        gpuprobe.talk.say(command);
    }
    let process = procfs::process::Process::new(pid.cast_signed()).unwrap();
    let path = process.environ().unwrap();
    let path = &path[std::ffi::OsStr::new("CUDA_INJECTION64_PATH")];
    let folder = std::path::Path::new(path).parent().unwrap().to_owned();
    assert!(left().contains(&folder), "{}", folder.display());
    gpuprobe.talk.done();
    gpuprobe.final_report();
    assert!(!folder.exists());
    assert!(number(&process_of(&gpuprobe), "records") > 0);
    let _ = standin();
}

fn process_of(gpuprobe: &crate::harness::Gpuprobe) -> serde_json::Value {
    let reports = gpuprobe.reports();
    let report = reports.last().expect("a report");
    list(&report["activity"], "processes")[0].clone()
}
