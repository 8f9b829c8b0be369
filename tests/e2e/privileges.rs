//! Which rights are needed, and what is said without them.

use crate::harness::gpuprobe::BINARY;
use crate::harness::report::Totals;
use crate::harness::{Backend, Setup, Workload};

const NO_CAPABILITIES: [&str; 3] = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"];

#[test]
fn root_without_capabilities_one_line_says_which() {
    let workload = Workload::start(Backend::Shared);
    let everything = Setup::everything;
    let pid = || Setup::pid(workload.pid);
    let command = || Setup::command(["touch", "/tmp/never-made-by-the-tests-of-gpuprobe"]);
    for mut gpuprobe in [everything(), pid(), command()].map(|s| s.wrapped(NO_CAPABILITIES).spawn())
    {
        assert_ne!(gpuprobe.exit_code(), 0);
        let said = gpuprobe.said();
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].starts_with("gpuprobe: error: "), "{said:#?}");
        for part in ["CAP_BPF", "CAP_PERFMON", "root"] {
            assert!(said[0].contains(part), "{said:#?}");
        }
        assert!(gpuprobe.talk.to_end().is_empty());
    }
    assert!(std::fs::metadata("/tmp/never-made-by-the-tests-of-gpuprobe").is_err());
}

#[test]
fn root_locked_memory_need_not_be_allowed() {
    let mut workload = Workload::start(Backend::Shared);
    // Without the right to raise the limit.
    let mut gpuprobe = Setup::pid(workload.pid)
        .wrapped([
            "setpriv",
            "--inh-caps=-sys_resource",
            "--bounding-set=-sys_resource",
            "sh",
            "-c",
            "ulimit -l 0 && exec \"$0\" \"$@\"",
        ])
        .start();
    workload.say("alloc 4096 3");
    let report = gpuprobe.stop();
    report.assert_totals(workload.status());
}

#[test]
fn root_few_open_files_do_not_matter() {
    let few = "ulimit -Sn 64 && exec \"$0\" \"$@\"";
    let mut workload = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::pid(workload.pid)
        .args(["--attach", "perf"])
        .wrapped(["sh", "-c", few])
        .start();
    workload.say("alloc 4096 3");
    let report = gpuprobe.stop();
    report.assert_totals(workload.status());
    // The command has what we had.
    let mut traced = std::process::Command::new("sh");
    traced.args([
        "-c",
        few,
        BINARY,
        "--memleak",
        "--",
        "sh",
        "-c",
        "ulimit -Sn",
    ]);
    let said = traced.output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    assert!(said.lines().any(|line| line == "64"), "{said}");
}

#[test]
fn root_two_capabilities_are_enough_for_a_process_of_ones_own() {
    let mut command = std::process::Command::new("setpriv");
    command
        .args(&NO_CAPABILITIES[1..])
        .arg(crate::harness::standin().program(Backend::Shared));
    let mut workload = Workload::spawn(&mut command);
    workload.say("freenull");
    let mut gpuprobe = Setup::pid(workload.pid)
        .wrapped([
            "setpriv",
            "--inh-caps=-all",
            "--bounding-set=-all,+bpf,+perfmon",
        ])
        .start();
    workload.say("alloc 4096 3");
    gpuprobe.stop().assert_totals(Totals {
        alloc_calls: 3,
        live_bytes: 12_288,
        live_allocations: 3,
        ..Totals::default()
    });
}
