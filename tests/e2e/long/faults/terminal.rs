//! The controlling terminal of gpuprobe is closed.

use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::Programs;
use crate::harness::child::Guarded;
use crate::harness::gpuprobe::BINARY;
use crate::harness::transcript::Transcript;
use crate::harness::{Backend, DEADLINE, Objects, Workload, wait_for, wait_within};

#[test]
fn root_a_closed_terminal_ends_the_run_and_its_recording() {
    let programs = Programs::built(&["terminal.c"]);
    let folder = TempDir::new().unwrap();
    for to_terminal in [true, false] {
        let recording = folder.path().join(format!("{to_terminal}.sqlite"));
        let mut workload = Workload::start(Backend::Shared);
        workload.say("freenull");
        let mut command = Command::new(programs.path("terminal"));
        command
            .args([BINARY, "--memleak", "--interval", "50ms"])
            .args(["--pid", &workload.pid.to_string(), "--record"])
            .arg(&recording)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if !to_terminal {
            command.arg("-o").arg(folder.path().join("reports"));
        }
        let mut terminal = Guarded::spawn(&mut command).unwrap();
        let streams = terminal.streams();
        let (input, output) = (streams.stdin.take(), streams.stdout.take().unwrap());
        let said = Transcript::of(streams.stderr.take().unwrap());
        let shown = Transcript::of(output);
        said.line_starting("gpuprobe: tracing");
        workload.say("alloc 4096 3");
        let tracer = wait_for("gpuprobe", || {
            let children = crate::harness::child::children_of(terminal.pid());
            children.first().copied()
        });
        let objects = Objects::of(tracer);
        assert!(!objects.links.is_empty());
        drop(input);
        let status = shown.line_starting("status");
        assert_eq!(status, "status 0", "{:#?}", said.so_far());
        assert!(terminal.wait().success());
        objects.wait_until_gone(DEADLINE);
        // The recording is complete and has its end.
        let file = recording.to_str().unwrap();
        let report = Command::new(BINARY)
            .args(["report", file])
            .output()
            .unwrap();
        assert!(report.status.success());
        let text = String::from_utf8(report.stdout).unwrap();
        assert!(!text.contains("note: "), "{text}");
        assert!(text.contains("12.00 KiB"), "{text}");
        // The traced program goes on.
        workload.say("free 0");
        assert_eq!(workload.done().live, 2);
        wait_within(DEADLINE, "the end", || {
            terminal.streams().try_wait().unwrap()
        });
    }
}
