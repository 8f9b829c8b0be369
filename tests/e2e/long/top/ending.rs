//! Ends of `gpuprobe top`: the terminal is as before, whatever the end is.

use nix::sys::signal::{Signal, kill};

use super::tmux::Screen;
use super::watch;
use crate::harness::child::{raw, state_of};
use crate::harness::{Backend, DEADLINE, Objects, Workload, wait_for};

/// Whether the terminal echoes what is typed, on its usual screen.
fn assert_restored(screen: &Screen) {
    screen.press(&["e", "c", "h", "o", "e", "d", "Enter"]);
    screen.wait("echo", |lines| {
        let echoed = lines.iter().filter(|line| *line == "echoed").count();
        // Once from the terminal, once from cat.
        (echoed == 2).then_some(())
    });
}

#[test]
fn root_the_terminal_is_restored_at_each_end() {
    for (signal, status) in [(Signal::SIGTERM, "status 0"), (Signal::SIGINT, "status 0")] {
        let mut workload = Workload::start(Backend::Shared);
        workload.say("freenull");
        let screen = watch(&workload, (80, 24), &[]);
        screen.line(&[&workload.pid.to_string(), "workload"]);
        kill(raw(screen.pid()), signal).unwrap();
        screen.line(&[status]);
        assert_restored(&screen);
    }
}

#[test]
fn root_a_closed_terminal_ends_top() {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let screen = watch(&workload, (80, 24), &[]);
    screen.line(&[&workload.pid.to_string(), "workload"]);
    let gpuprobe = screen.pid();
    let objects = Objects::of(gpuprobe);
    screen.close();
    wait_for("the end of gpuprobe", || {
        matches!(state_of(gpuprobe), None | Some('Z')).then_some(())
    });
    objects.wait_until_gone(DEADLINE);
    workload.say("alloc 4096");
    assert_eq!(workload.done().live, 1);
}
