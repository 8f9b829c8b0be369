//! Required capabilities, and the message when one is missing.

use std::fs;

use nix::unistd::{Uid, chown};

use crate::harness::gpuprobe::BINARY;
use crate::harness::{Backend, OwnCopy, Setup, Workload, copy_program};

const NO_CAPABILITIES: [&str; 3] = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"];

#[test]
fn root_missing_capabilities_are_a_one_line_error() {
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
    assert!(fs::metadata("/tmp/never-made-by-the-tests-of-gpuprobe").is_err());
}

#[test]
fn root_low_limits_do_not_matter() {
    let few = "ulimit -l 0 && ulimit -Sn 64 && exec \"$0\" \"$@\"";
    let mut workload = Workload::start(Backend::Shared);
    // Without CAP_SYS_RESOURCE, which raises the limit of locked memory.
    let mut gpuprobe = Setup::pid(workload.pid)
        .args(["--attach", "perf"])
        .wrapped([
            "setpriv",
            "--inh-caps=-sys_resource",
            "--bounding-set=-sys_resource",
            "sh",
            "-c",
            few,
        ])
        .start();
    workload.say("alloc 4096 3");
    let report = gpuprobe.stop();
    report.assert_totals(workload.status());
    // The command keeps the limits that gpuprobe was started with.
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

/// An unprivileged user.
const USER: u32 = 65_534;

/// A workload that runs as [`USER`], from files that the user may read.
fn workload_of_user(copy: &OwnCopy, backend: Backend) -> Workload {
    let mut command = std::process::Command::new("setpriv");
    command
        .args([format!("--reuid={USER}"), format!("--regid={USER}")])
        .args(["--clear-groups", "--inh-caps=-all", "--bounding-set=-all"])
        .arg(copy.standin().program(backend));
    Workload::spawn(&mut command)
}

#[test]
fn root_every_mode_works_with_two_capabilities() {
    let copy = OwnCopy::for_everyone();
    let mut workload = workload_of_user(&copy, Backend::Shared);
    workload.say("freenull");
    let modes = ["--memleak", "--cudatrace", "--bandwidth-util"];
    for how in ["auto", "dwarf"] {
        let mut gpuprobe = Setup::pid(workload.pid)
            .modes(modes)
            .args(["--stacks", how])
            .run_as(USER, "+bpf,+perfmon")
            .start();
        let before = workload.status().allocs;
        workload.say("alloc 4096 3");
        workload.say("launch 0 5");
        workload.say("copy h2d 65536");
        let report = gpuprobe.stop();
        report.assert_nothing_lost();
        // A copy has its own buffer on the device.
        let allocated = workload.status().allocs - before;
        assert_eq!(report.totals().alloc_calls, allocated, "{how}");
        assert_eq!(report["cudatrace"]["launches"], 5);
        assert_eq!(report["bandwidth_util"]["copies"], 1);
        let stack = &report["memleak"]["processes"][0]["sites"][0]["stack"];
        let names = stack.as_array().unwrap().iter();
        let mut names = names.map(|frame| frame["function"].as_str().unwrap());
        assert!(names.any(|name| name == "main"), "{stack:#}");
    }
}

#[test]
fn root_recording_a_command_works_with_two_capabilities() {
    let copy = OwnCopy::for_everyone();
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(Uid::from_raw(USER)), None).unwrap();
    let recording = folder.path().join("run.sqlite");
    let mut gpuprobe = Setup::command([copy.standin().program_text(Backend::Dlopen)])
        .args(["--record", recording.to_str().unwrap()])
        .run_as(USER, "+bpf,+perfmon")
        .start();
    let pid = gpuprobe.talk.ready();
    // The command has none of the granted capabilities and is free to gain capabilities.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(
            status.contains(&format!("{set}:\t0000000000000000")),
            "{status}"
        );
    }
    assert!(status.contains("NoNewPrivs:\t0"), "{status}");
    let load = format!("load {}", copy.standin().runtime());
    gpuprobe.talk.say(&load);
    gpuprobe.talk.say("alloc 4096 3");
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    report.assert_holds(pid, 12_288, 3);
    let status = std::process::Command::new(BINARY)
        .args(["report", recording.to_str().unwrap(), "--format", "json"])
        .args(["--analysis", "leakage"])
        .output()
        .unwrap();
    let found: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(found["totals"]["total"]["bytes"], 12_288);
}

#[test]
fn root_held_command_survives_with_two_capabilities() {
    let copy = OwnCopy::for_everyone();
    let mut gpuprobe = Setup::command([copy.standin().program_text(Backend::Dlopen)])
        .run_as(USER, "+bpf,+perfmon")
        .start();
    let pid = gpuprobe.talk.ready();
    crate::long::faults::held::killed_while_holding(&mut gpuprobe, pid, &copy.standin().runtime());
}

#[test]
fn root_processes_of_other_users_need_one_more_capability() {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let traced = |capabilities| Setup::pid(workload.pid).run_as(USER, capabilities);
    // Since Linux 6.18, CAP_PERFMON suffices to read the mappings of any process.
    let (uid, capabilities) = (format!("--reuid={USER}"), "-all,+bpf,+perfmon");
    let readable = std::process::Command::new("setpriv")
        .args([
            &uid,
            "--clear-groups",
            &format!("--inh-caps={capabilities}"),
        ])
        .arg(format!("--ambient-caps={capabilities}"))
        .args(["cat", &format!("/proc/{}/maps", workload.pid)])
        .output()
        .unwrap();
    let enough = readable.status.success() && !readable.stdout.is_empty();
    let mut gpuprobe = traced("+bpf,+perfmon").args(["--duration", "1s"]).spawn();
    assert_eq!(gpuprobe.exit_code() == 0, enough);
    let said = gpuprobe.said().join("\n");
    assert!(enough || said.contains("CAP_SYS_PTRACE"), "{said}");
    // CAP_DAC_READ_SEARCH is not needed by gpuprobe here: the build directory of the tests
    // may be closed to other users.
    let mut gpuprobe = traced("+bpf,+perfmon,+sys_ptrace,+dac_read_search").start();
    workload.say("alloc 4096 3");
    let report = gpuprobe.stop();
    report.assert_totals(workload.status());
}

#[test]
fn root_perf_event_uprobes_need_one_more_capability() {
    let copy = OwnCopy::for_attach("perf");
    let mut workload = workload_of_user(&copy, Backend::Driver);
    let pid = workload.pid;
    let traced = |capabilities| {
        let args = ["--attach", "perf", "--stacks", "off"];
        Setup::pid(pid).args(args).run_as(USER, capabilities)
    };
    let mut gpuprobe = traced("+bpf,+perfmon").spawn();
    assert_ne!(gpuprobe.exit_code(), 0);
    let said = gpuprobe.said().join("\n");
    assert!(said.contains("CAP_SYS_ADMIN"), "{said}");
    let mut gpuprobe = traced("+bpf,+perfmon,+sys_admin").start();
    workload.say("alloc 4096 3");
    gpuprobe.stop().assert_totals(workload.status());
}

#[test]
fn root_file_capabilities_suffice() {
    let copy = OwnCopy::for_everyone();
    let mut workload = workload_of_user(&copy, Backend::Shared);
    workload.say("freenull");
    let binary = copy.standin().path("gpuprobe");
    copy_program(BINARY, &binary);
    let given = std::process::Command::new("setcap")
        .arg("cap_bpf,cap_perfmon+ep")
        .arg(&binary)
        .status();
    assert!(given.expect("setcap can be run").success());
    let (uid, gid) = (format!("--reuid={USER}"), format!("--regid={USER}"));
    let mut command = std::process::Command::new("setpriv");
    command
        .args([&uid, &gid, "--clear-groups", "--inh-caps=-all"])
        .arg(&binary)
        .args(["--memleak", "--format", "json", "--interval", "1h", "--pid"])
        .arg(workload.pid.to_string())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut gpuprobe = crate::harness::child::Guarded::spawn(&mut command).unwrap();
    let stderr = gpuprobe.streams().stderr.take().unwrap();
    let stderr = crate::harness::transcript::Transcript::of(stderr);
    stderr.line_starting("gpuprobe: tracing");
    let stdout = gpuprobe.streams().stdout.take().unwrap();
    let stdout = crate::harness::transcript::Transcript::of(stdout);
    workload.say("alloc 4096 3");
    gpuprobe.signal(nix::sys::signal::Signal::SIGINT);
    assert!(gpuprobe.wait().success());
    let report = crate::harness::Report::parse(&stdout.to_end()[0]);
    report.assert_totals(workload.status());
}
