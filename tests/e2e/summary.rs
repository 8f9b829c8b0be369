//! Memory from before the attach, and screens.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use gpuprobe_os::color::unpainted;
use nix::pty::{OpenptyResult, Winsize, openpty};

use crate::harness::child::{Guarded, shell_code};
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
    let setup = nvml.given_to(Setup::everything());
    let mut gpuprobe = setup.env("STANDIN_NVML_BUSY", "42").start();
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
    let gpus = list(&report["memleak"], "gpus").iter();
    let gpus: Vec<_> = gpus
        .map(|gpu| ["index", "busy_percent"].map(|key| number(gpu, key)))
        .collect();
    assert_eq!(gpus, [[0, 42], [1, 42]]);
}

/// A terminal, and gpuprobe on it.
struct OnTerminal {
    gpuprobe: Guarded,
    pty: OpenptyResult,
    written: Vec<u8>,
}

impl OnTerminal {
    fn start(arguments: &[&str], pid: u32) -> Self {
        require_bpf();
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
            .args(arguments)
            .args(["--interval", "50ms", "--pid", &pid.to_string()])
            .env("TERM", "xterm")
            .env_remove("COLUMNS")
            .stdin(slave())
            .stdout(slave())
            .stderr(Stdio::null());
        Self {
            gpuprobe: Guarded::spawn(&mut command).unwrap(),
            pty,
            written: Vec::new(),
        }
    }

    /// Waits until all that was written is as wanted.
    fn wait(&mut self, what: &str, wanted: impl Fn(&str) -> bool) {
        let mut terminal = fs::File::from(self.pty.master.try_clone().unwrap());
        wait_for(what, || {
            let mut buffer = [0; 4096];
            let count = terminal.read(&mut buffer).unwrap();
            self.written.extend(&buffer[..count]);
            wanted(&self.text()).then_some(())
        });
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written).into_owned()
    }

    fn resize(&self, columns: usize) {
        let slave = self.pty.slave.try_clone().unwrap();
        let mut stty = Command::new("stty");
        let sized = stty.args(["cols", &columns.to_string()]).stdin(slave);
        assert!(sized.status().unwrap().success());
    }
}

#[test]
fn root_on_a_terminal_a_report_overwrites_the_last() {
    let workload = Workload::start(Backend::Shared);
    let mut redrawn = OnTerminal::start(&["--memleak", "-v"], workload.pid);
    redrawn.wait("three reports", |text| {
        text.matches("lost: nothing").count() >= 3
    });
    let text = redrawn.text();
    assert!(text.contains("\x1b[J"), "{text:?}");
    assert!(text.contains("\x1b[1m"), "coloured: {text:?}");
    let too_wide = |line: &str| line.chars().count() > 120;
    assert!(!unpainted(&text).lines().any(too_wide), "{text}");
    // The time is at the end of the first line.
    for columns in [100, 160, 80] {
        redrawn.resize(columns);
        redrawn.wait("a report of this width", |text| {
            let text = unpainted(&text.replace("\x1b[J", "\n"));
            let last = text.lines().rfind(|line| line.contains("  pid "));
            last.is_some_and(|line| line.chars().count() == columns)
        });
    }
}

/// `long::top` plays its keys.
#[test]
fn root_top_is_drawn_until_q_is_pressed() {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let mut top = OnTerminal::start(&["top"], workload.pid);
    top.wait("the process", |text| text.contains("workload"));
    workload.say("alloc 1048576 30");
    top.wait("its memory", |text| text.contains("30.00 MiB"));
    fs::File::from(top.pty.master.try_clone().unwrap())
        .write_all(b"q")
        .unwrap();
    let what = "the end of the other screen";
    top.wait(what, |text| text.contains("\x1b[?1049l"));
    assert_eq!(shell_code(top.gpuprobe.wait()), 0);
}
