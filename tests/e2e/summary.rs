//! Report summaries: memory from before the attach, changes on a terminal, and grouping by GPU.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use gpuprobe_os::color::unpainted;
use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;

use crate::harness::child::Guarded;
use crate::harness::gpuprobe::BINARY;
use crate::harness::report::{list, number};
use crate::harness::{Backend, Nvml, Setup, Workload, host_wide, require_bpf, wait_for};

const MIB: u64 = 1 << 20;

/// Processes that hold memory and make no further calls.
fn idle(count: usize) -> Vec<Workload> {
    let start = |_| {
        let mut workload = Workload::start(Backend::Shared);
        workload.say("alloc 1048576 3");
        workload
    };
    (0..count).map(start).collect()
}

#[test]
fn root_memory_from_before_the_attach_is_in_the_first_report() {
    let _shared = host_wide();
    let nvml = Nvml::with_gpus(2);
    let workloads = idle(8);
    let uses: Vec<_> = workloads
        .iter()
        .zip(1..)
        .map(|(workload, index)| (index % 2, workload.pid, (500 + u64::from(index)) * MIB))
        .collect();
    nvml.says(&uses);
    let mut gpuprobe = nvml.given_to(Setup::everything()).start();
    let report = gpuprobe.stop();
    for &(gpu, pid, used) in &uses {
        let process = report.process(pid);
        assert_eq!(process["traced"], false, "{process}");
        assert_eq!(number(process, "live_bytes"), 0);
        assert_eq!(number(&process["nvml"], "used_bytes"), used);
        assert_eq!(number(&process["nvml"], "tracked_bytes"), 0);
        let share = &list(process, "gpus")[0];
        assert_eq!(
            (number(share, "index"), number(share, "used_bytes")),
            (gpu.into(), used)
        );
        assert_eq!(process["comm"], "workload");
        let command = process["command"].as_str().unwrap();
        assert!(command.ends_with("/workload"), "{command}");
    }
    let gpus: Vec<_> = list(&report["memleak"], "gpus")
        .iter()
        .map(|gpu| number(gpu, "index"))
        .collect();
    assert_eq!(gpus, [0, 1]);
}

#[test]
fn root_by_gpu_lists_each_process_under_its_gpu() {
    let _shared = host_wide();
    let nvml = Nvml::with_gpus(2);
    let workloads = idle(2);
    let pids: Vec<_> = workloads.iter().map(|workload| workload.pid).collect();
    nvml.says(&[(0, pids[0], 300 * MIB), (1, pids[1], 700 * MIB)]);
    let mut gpuprobe = nvml
        .given_to(Setup::everything().format("text"))
        .args(["--top", "all"])
        .start();
    gpuprobe.interrupt();
    gpuprobe.wait();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    let line = |wanted: &dyn Fn(&str) -> bool| {
        text.lines()
            .position(wanted)
            .unwrap_or_else(|| panic!("{text}"))
    };
    let process = |pid: u32| {
        line(&|line| {
            line.trim_start().starts_with(&format!("{pid} ")) && line.ends_with("(before attach)")
        })
    };
    let [first, second] = [0, 1].map(|gpu| line(&|line| line.starts_with(&format!("GPU {gpu} "))));
    let order = [first, process(pids[0]), second, process(pids[1])];
    assert!(order.is_sorted(), "{order:?} in {text}");
    let shown = text.lines().nth(process(pids[1])).unwrap();
    assert!(shown.contains("700.00 MiB"), "{shown}");
    assert!(
        !text.contains("0x"),
        "addresses are for --allocations: {text}"
    );
}

#[test]
fn root_process_without_calls_is_reported_with_its_nvml_use() {
    let nvml = Nvml::with_gpus(1);
    let workload = &idle(1)[0];
    nvml.says(&[(0, workload.pid, 2099 * MIB)]);
    let setup = nvml.given_to(Setup::pid(workload.pid).format("text"));
    let mut gpuprobe = setup.start();
    gpuprobe.interrupt();
    gpuprobe.wait();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    assert!(
        text.contains("2.05 GiB held (nvidia-smi), 0 traced since attach\n"),
        "{text}"
    );
}

#[test]
fn root_report_has_changes_since_the_last() {
    let mut workload = Workload::start(Backend::Shared);
    let setup = Setup::pid(workload.pid).interval("50ms");
    let mut gpuprobe = setup.start();
    workload.say("alloc 1048576 2");
    let pid = workload.pid;
    let grown = gpuprobe.report_where("two allocations", |report| {
        let held = report.entries(pid);
        held.iter()
            .any(|process| number(process, "live_bytes") == 2 * MIB)
    });
    // If the first report was made after them, there is no earlier one to compare with.
    let change = &grown.process(pid)["change_bytes"];
    assert!(change.is_null() || change.as_i64() > Some(0), "{change}");
    gpuprobe.report_where("no change", |report| {
        let process = report.process(pid);
        let site = &list(process, "sites")[0];
        process["change_bytes"] == 0 && site["change_bytes"] == 0 && site["change_allocations"] == 0
    });
    workload.say("alloc 4194304");
    let report = gpuprobe.report_where("growth", |report| {
        report.process(pid)["change_bytes"].as_u64() == Some(4 * MIB)
    });
    let process = report.process(pid);
    assert_eq!(number(process, "peak_bytes"), 6 * MIB);
    assert!(
        process["change_bytes_per_minute"].is_null()
            || process["change_bytes_per_minute"].as_i64() > Some(0)
    );
    gpuprobe.stop();
}

#[test]
fn root_on_a_terminal_a_report_overwrites_the_last() {
    require_bpf();
    let workload = Workload::start(Backend::Shared);
    for (arguments, redraws) in [(&[][..], true), (&["--scroll"][..], false)] {
        let size = Winsize {
            ws_row: 40,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        let mut command = Command::new(BINARY);
        command
            .args([
                "--memleak",
                "--interval",
                "50ms",
                "--pid",
                &workload.pid.to_string(),
            ])
            .args(arguments)
            .env("TERM", "xterm")
            .env_remove("COLUMNS")
            .stdout(Stdio::from(pty.slave.as_fd().try_clone_to_owned().unwrap()))
            .stderr(Stdio::null());
        let mut gpuprobe = Guarded::spawn(&mut command).unwrap();
        drop((command, pty.slave));
        let mut terminal = fs::File::from(pty.master);
        let mut written = Vec::new();
        let mut buffer = [0; 4096];
        wait_for("three reports", || {
            let count = terminal.read(&mut buffer).unwrap();
            written.extend(&buffer[..count]);
            let text = String::from_utf8_lossy(&written);
            (text.matches("lost: nothing").count() >= 3).then_some(())
        });
        gpuprobe.signal(Signal::SIGKILL);
        gpuprobe.wait();
        let text = String::from_utf8_lossy(&written);
        assert_eq!(text.contains("\x1b[J"), redraws, "{text:?}");
        assert!(text.contains("\x1b[1m"), "coloured: {text:?}");
        let text = unpainted(&text);
        assert!(
            text.lines().all(|line| line.chars().count() <= 120),
            "{text}"
        );
    }
}

#[test]
fn root_reports_are_as_wide_as_the_terminal_is_by_then() {
    require_bpf();
    let workload = Workload::start(Backend::Shared);
    let size = Winsize {
        ws_row: 40,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(&size, None).unwrap();
    let slave = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut command = Command::new(BINARY);
    command
        .args(["--memleak", "--scroll", "--interval", "50ms"])
        .args(["--pid", &workload.pid.to_string()])
        .env("TERM", "xterm")
        .env_remove("COLUMNS")
        .stdout(slave())
        .stderr(Stdio::null());
    let mut gpuprobe = Guarded::spawn(&mut command).unwrap();
    let mut terminal = fs::File::from(pty.master.try_clone().unwrap());
    let mut written = Vec::new();
    // The time is at the end of the first line.
    for columns in [100, 160, 80] {
        let mut stty = Command::new("stty");
        let sized = stty.args(["cols", &columns.to_string()]).stdin(slave());
        assert!(sized.status().unwrap().success());
        wait_for("a report of this width", || {
            let mut buffer = [0; 4096];
            let count = terminal.read(&mut buffer).unwrap();
            written.extend(&buffer[..count]);
            let text = unpainted(&String::from_utf8_lossy(&written));
            let last = text.lines().rfind(|line| line.contains("  pid "))?;
            (last.chars().count() == columns).then_some(())
        });
    }
    gpuprobe.signal(Signal::SIGKILL);
    gpuprobe.wait();
}
