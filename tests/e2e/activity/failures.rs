//! Whatever fails, the program runs on and missing records are reported.

use super::{WORK, cupti, process, setup, sum};
use crate::harness::report::{list, number};
use crate::harness::{Backend, Setup};

/// Asserts that no records arrive, that the reason is reported, and that the program ran to its
/// end.
fn nothing_comes(setup: Setup, why: &str) {
    let mut run = setup.run("module k; launch k 20");
    assert_eq!(run.truth.launches, 20);
    assert_eq!(run.gpuprobe.exit_code(), 0);
    assert_eq!(run.report()["activity"]["records"], 0);
    let said = run.gpuprobe.said();
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
fn root_exit_status_with_activity_is_the_commands() {
    for (how, code) in [("exit 7", 7), ("kill9", 128 + 9), ("abort", 128 + 6)] {
        let (mut gpuprobe, pid) = setup(Backend::Shared).started();
        gpuprobe.talk.play("module k; launch k 5");
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
    let (mut gpuprobe, pid) = setup(Backend::Shared).started();
    gpuprobe.talk.play(WORK);
    let process = procfs::process::Process::new(pid.cast_signed()).unwrap();
    let path = process.environ().unwrap();
    let path = &path[std::ffi::OsStr::new("CUDA_INJECTION64_PATH")];
    let folder = std::path::Path::new(path).parent().unwrap().to_owned();
    assert!(left().contains(&folder), "{}", folder.display());
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    assert!(!folder.exists());
    let processes = list(&report["activity"], "processes");
    assert!(number(&processes[0], "records") > 0);
}
