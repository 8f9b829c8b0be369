//! A terminal that takes no output holds up nothing.

use super::{held, last, size, watch};
use crate::harness::{Backend, Workload, alone, wait_for};

#[test]
fn root_a_stopped_terminal_loses_no_event() {
    let _alone = alone();
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let screen = watch(&workload, (80, 24), &[]);
    let pid = workload.pid.to_string();
    screen.line(&[&pid, "workload"]);
    screen.press(&["C-s"]);
    // A flood, while reports go on.
    for _ in 0..20 {
        workload.say("alloc 4096 5000");
        workload.say("launch 0 5000");
    }
    let truth = workload.status();
    assert_eq!(truth.live, 100_000);
    let report = wait_for("the report of all", || {
        last(&screen, |report| {
            held(report, workload.pid) == 100_000 * 4096
        })
    });
    report.assert_nothing_lost();
    let before = screen.lines();
    assert!(
        !before
            .iter()
            .any(|line| line.contains(&size(100_000 * 4096))),
        "{before:#?}"
    );
    screen.press(&["C-q"]);
    screen.line(&[&pid, &size(100_000 * 4096)]);
    // Stopped again, it ends all the same.
    screen.press(&["C-s"]);
    nix::sys::signal::kill(
        crate::harness::child::raw(screen.pid()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    screen.line(&["status 0"]);
}
