//! `gpuprobe top` on a terminal.

mod ending;
mod stopped;
mod tmux;

use std::fs;

use crate::harness::{Backend, Report, Workload};
use tmux::Screen;

/// `20.00 MiB`, as screens have it.
fn size(bytes: u64) -> String {
    gpuprobe_model::text::size(bytes)
}

/// Live bytes of a process in a report; 0 if it is not listed.
fn held(report: &Report, pid: u32) -> u64 {
    let processes = report["memleak"]["processes"].as_array().unwrap();
    let process = processes.iter().find(|process| process["pid"] == pid);
    process.map_or(0, |process| process["live_bytes"].as_u64().unwrap())
}

/// The last whole report in the file `reports` that satisfies `wanted`.
fn last(screen: &Screen, wanted: impl Fn(&Report) -> bool) -> Option<Report> {
    let text = fs::read_to_string(screen.path("reports")).ok()?;
    let whole = &text[..text.rfind('\n')? + 1];
    Report::parse_unless_copy(whole.lines().next_back()?).filter(wanted)
}

/// Starts top for one process, with its reports in a file.
fn watch(workload: &Workload, size: (u16, u16), more: &[&str]) -> Screen {
    let pid = workload.pid.to_string();
    let arguments = ["top", "--pid", &pid, "--interval", "200ms", "-o", "reports"];
    Screen::start(size, &[&arguments[..], more].concat())
}

#[test]
fn root_top_is_walked_through_with_keys() {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let screen = watch(&workload, (80, 40), &[]);
    let pid = workload.pid.to_string();
    screen.line(&[&pid, "workload"]);
    workload.say("alloc 1048576 30");
    screen.line(&[&pid, "workload", &size(30 << 20)]);
    screen.press(&["Enter"]);
    screen.line(&["sites", "tensors", "kernels", "pools"]);
    screen.line(&[&size(30 << 20), " 30 ", "workload.c:", "tally_alloc"]);
    screen.press(&["Enter"]);
    screen.line(&["allocated 30.00 MiB in 30 allocations"]);
    screen.line(&["run_alloc", "workload_memory.c:"]);
    screen.press(&["h", "Tab", "Tab"]);
    workload.say("launch 0 7");
    screen.line(&["LAUNCHES", "PER S"]);
    screen.line(&[" 7 ", "vecAdd"]);
    screen.press(&["Tab"]);
    workload.say("copy h2d 4096 3");
    screen.line(&["H2D", "sync", " 3 ", &size(3 * 4096)]);
    screen.press(&["Tab"]);
    screen.line(&[" 3 ", &size(3 * 4096), "workload_copy"]);
    screen.press(&["Tab"]);
    screen.line(&[&size(30 << 20), " 30 "]);
    screen.press(&["e"]);
    screen.line(&["PID", &pid, "workload"]);
    screen.press(&["Escape"]);
    screen.line(&["THREAD"]);
    screen.press(&["?"]);
    screen.line(&["start a recording of the process"]);
    screen.press(&["q"]);
    screen.line(&["status 0"]);
}

#[test]
fn root_keys_write_a_flame_graph_and_a_recording() {
    let mut workload = Workload::start(Backend::Shared);
    let screen = watch(&workload, (160, 24), &[]);
    let pid = workload.pid.to_string();
    screen.line(&[&pid]);
    workload.say("alloc 1048576 4");
    screen.line(&[&pid, &size(4 << 20)]);
    screen.press(&["f"]);
    let said = screen.line(&["flame graph in", ".svg"]);
    let name = said.split(' ').next_back().unwrap();
    let svg = fs::read_to_string(screen.path(name)).unwrap();
    assert!(svg.contains("tally_alloc"), "{svg}");
    screen.press(&["r"]);
    let said = screen.line(&["recording into", &pid, ".sqlite"]);
    assert!(!said.contains("error"), "{said}");
    workload.say("alloc 2097152 3");
    screen.line(&[&pid, &size((4 + 6) << 20)]);
    screen.press(&["r"]);
    let said = screen.line(&["recorded", "calls in", ".sqlite"]);
    let name = said.split(' ').next_back().unwrap().to_owned();
    screen.press(&["q"]);
    screen.line(&["status 0"]);
    // After the end, the messages are on the terminal.
    screen.line(&["recorded", &name]);
    let file = screen.path(&name);
    let report = std::process::Command::new(crate::harness::gpuprobe::BINARY)
        .args(["report", "--analysis", "leakage", file.to_str().unwrap()])
        .output()
        .unwrap();
    let text = String::from_utf8(report.stdout).unwrap();
    assert!(text.contains(&size(6 << 20)), "{text}");
    // It is played with the same screens.
    let file = file.to_str().unwrap();
    let screen = Screen::start((120, 24), &["top", file, "--speed", "1000x"]);
    screen.line(&[&pid, &size(6 << 20)]);
    screen.press(&["{"]);
    screen.press(&["Space"]);
    screen.line(&["stopped"]);
    screen.press(&["}"]);
    screen.line(&[&pid, &size(6 << 20)]);
    screen.press(&["q"]);
    screen.line(&["status 0"]);
}
