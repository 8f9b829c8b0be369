//! The mouse, with `--mouse`.

use super::tmux::Screen;
use super::{size, watch};
use crate::harness::{Backend, Workload};

/// Clicks on the first line with all of `parts`, where the first of them is, as a terminal reports it.
fn click(screen: &Screen, parts: &[&str]) {
    let (x, y) = screen.wait(&format!("{parts:?}"), |lines| {
        let has = |line: &String| parts.iter().all(|part| line.contains(part));
        let y = lines.iter().position(has)?;
        let before = lines[y].find(parts[0])?;
        Some((lines[y][..before].chars().count() + 1, y + 1))
    });
    screen.press(&["-l", &format!("\u{1b}[<0;{x};{y}M\u{1b}[<0;{x};{y}m")]);
}

#[test]
fn root_top_is_walked_through_with_the_mouse() {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let screen = watch(&workload, (120, 24), &["--mouse"]);
    let pid = workload.pid.to_string();
    screen.line(&[&pid, "workload"]);
    assert_eq!(screen.format("#{mouse_any_flag}#{mouse_sgr_flag}"), "11");
    workload.say("alloc 1048576 30");
    workload.say("managed 4096");
    screen.line(&[&pid, &size(30 << 20)]);
    click(&screen, &[&pid, "workload"]);
    click(&screen, &[&pid, "workload"]);
    screen.line(&["sites", "tensors", "kernels"]);
    // Sorted by the number of allocations, the other way round.
    click(&screen, &["N ", "HELD"]);
    screen.line(&["N▼"]);
    click(&screen, &["N▼"]);
    screen.line(&["N▲"]);
    click(&screen, &["threads", "pools"]);
    screen.line(&["TID", "THREAD"]);
    click(&screen, &["sites", "tensors"]);
    click(&screen, &[&size(30 << 20), " 30 "]);
    click(&screen, &[&size(30 << 20), " 30 "]);
    // Once the source is there, the text is longer than the screen.
    screen.line(&[">", "api.alloc(&address, bytes)"]);
    let begins = |lines: &[String]| lines.iter().any(|line| line.starts_with("holds "));
    screen.wait("the beginning", |lines| begins(lines).then_some(()));
    screen.press(&["-l", "\u{1b}[<65;5;5M"]);
    screen.wait("what is below", |lines| (!begins(lines)).then_some(()));
    screen.press(&["-l", "\u{1b}[<64;5;5M"]);
    screen.wait("the beginning", |lines| begins(lines).then_some(()));
    screen.press(&["q"]);
    screen.line(&["status 0"]);
    assert_eq!(screen.format("#{mouse_any_flag}"), "0");
}

#[test]
fn root_the_mouse_is_the_terminals_unless_asked_for() {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let screen = watch(&workload, (80, 24), &[]);
    screen.line(&[&workload.pid.to_string(), "workload"]);
    assert_eq!(screen.format("#{mouse_any_flag}"), "0");
}
