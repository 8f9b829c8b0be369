//! gpuprobe is killed: the traced program goes on, and nothing stays in the kernel.

use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::harness::breakpoints::{has_breakpoints, is_unprobed};
use crate::harness::child::state_of;
use crate::harness::{Backend, OwnCopy, Setup, Workload, wait_for, wait_within};

/// The kernel takes a tenth of a second to remove a perf-event uprobe, more if busy, and a killed
/// process exits only after all of its uprobes are removed.
const REMOVAL: Duration = Duration::from_secs(300);

pub(crate) fn killed_with(kind: &str) {
    // Libraries of this test alone, so that no other test sets breakpoints in them.
    let copy = OwnCopy::for_attach(kind);
    let folder = TempDir::new().unwrap();
    let recording = folder.path().join("run.sqlite");
    let mut workload = Workload::of(&copy, Backend::Shared);
    workload.say("freenull");
    let pid = workload.pid;
    wait_for("breakpoints of others to go", || {
        is_unprobed(pid).then_some(())
    });
    // One layer only: fewer probes are removed sooner. With a recording, each call is probed at its
    // return, too.
    let mut gpuprobe = Setup::pid(pid)
        .args(["--attach", kind, "--api", "driver"])
        .args(["--record", recording.to_str().unwrap()])
        .start();
    workload.say("alloc 4096 10");
    assert!(has_breakpoints(pid), "while it is traced");
    gpuprobe.child.signal(Signal::SIGKILL);
    workload.say("free 0 5");
    workload.say("race 2 1000 512");
    wait_within(REMOVAL, "the end of the killed gpuprobe", || {
        gpuprobe.child.streams().try_wait().unwrap()
    });
    assert_eq!(gpuprobe.exit_code(), 128 + 9);
    wait_for("the breakpoints to go", || is_unprobed(pid).then_some(()));
    let truth = workload.status();
    assert_eq!((truth.allocs, truth.frees, truth.live), (2010, 2005, 5));
    // The next tracer works as if there had been none; in the mode that is quickest to remove.
    let mut gpuprobe = Setup::pid(pid).start();
    workload.say("alloc 512 3");
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    report.assert_holds(pid, 1536, 3);
    assert_eq!(report.totals().alloc_calls, 3);
    // It has exited; its links, which it leaves behind, remove their probes.
    wait_within(REMOVAL, "the breakpoints to go", || {
        is_unprobed(pid).then_some(())
    });
}

#[test]
fn root_killed_with_session_probes_it_leaves_nothing() {
    killed_with("session");
}

#[test]
fn root_killed_with_multi_probes_it_leaves_nothing() {
    killed_with("multi");
}

#[test]
fn root_process_held_at_shutdown_is_resumed() {
    let copy = OwnCopy::new();
    let mut workload = Workload::of(&copy, Backend::Shared);
    workload.say("freenull");
    let pid = workload.pid;
    for (round, (kind, how)) in [
        ("session", Signal::SIGINT),
        ("multi", Signal::SIGINT),
        ("session", Signal::SIGKILL),
        ("multi", Signal::SIGKILL),
    ]
    .into_iter()
    .enumerate()
    {
        let mut gpuprobe = Setup::pid(pid).args(["--attach", kind]).start();
        workload.say("alloc 4096 10");
        assert!(has_breakpoints(pid), "while it is traced");
        workload.child.signal(Signal::SIGSTOP);
        wait_for("a stopped process", || {
            (state_of(pid) == Some('T')).then_some(())
        });
        gpuprobe.child.signal(how);
        gpuprobe.wait();
        wait_for("the breakpoints to go", || is_unprobed(pid).then_some(()));
        assert_eq!(state_of(pid), Some('T'), "it stays stopped");
        workload.child.signal(Signal::SIGCONT);
        workload.say(&format!("free {} 5", 10 * round));
    }
    let truth = workload.done();
    assert_eq!((truth.allocs, truth.frees, truth.failed), (40, 20, 0));
}
