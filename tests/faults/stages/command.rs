//! Kills of a gpuprobe that runs a command: the command goes on, and its guard exits.

use procfs::process::Process;

use super::stage::{KilledTracer, Stage};
use super::{ALLOCATIONS, until_hit, wait_until_unprobed};
use crate::harness::child::{children_of, raw, state_of};
use crate::harness::{Backend, OwnCopy, Setup, wait_for};

/// All descendants of a process.
fn descendants_of(pid: u32) -> Vec<u32> {
    let children = children_of(pid);
    let below = children.iter().copied().flat_map(descendants_of);
    children.iter().copied().chain(below).collect()
}

fn is_guard(pid: u32) -> bool {
    let words = Process::new(raw(pid).as_raw()).and_then(|process| process.cmdline());
    words.is_ok_and(|words| words.get(1).is_some_and(|word| word == "__guard"))
}

fn wait_until_gone(pids: &[u32], what: &str) {
    wait_for(what, || {
        let mut states = pids.iter().map(|&pid| state_of(pid));
        // The process that inherits them may leave them as zombies.
        states
            .all(|state| matches!(state, Some('Z') | None))
            .then_some(())
    });
}

/// Whether a gpuprobe was killed in its stage.
fn killed_at(copy: &OwnCopy, kind: &str, stage: Stage) -> bool {
    let mut setup = Setup::command([copy.standin().program_text(Backend::Shared)])
        .args(["--attach", kind, "--api", "driver"]);
    if matches!(stage, Stage::LastReport | Stage::Ending) {
        // gpuprobe's exit, while the command goes on.
        setup = setup.args(["--duration", "1s"]);
    }
    let mut doomed = KilledTracer::spawn(setup, stage);
    let mut command = None;
    doomed.reach(
        |doomed| {
            let talk = &mut doomed.gpuprobe.talk;
            command = Some(talk.ready());
            talk.say(&format!("alloc 64 {ALLOCATIONS}"));
        },
        |_| {},
    );
    let objects = doomed.stop();
    let all = descendants_of(doomed.gpuprobe.child.pid());
    let guards: Vec<_> = all.iter().copied().filter(|&pid| is_guard(pid)).collect();
    doomed.kill();
    let (was_in, _) = doomed.wait(&objects);
    let talk = &mut doomed.gpuprobe.talk;
    if let Some(command) = command {
        // The guard exits at once, while the command still runs.
        let is_guarded = stage != Stage::Ending;
        assert!(!is_guarded || guards.len() == 2, "the guard and its member");
        wait_until_gone(&guards, "the guard to go");
        wait_until_unprobed(command, kind, stage);
        talk.say("alloc 4096 10");
        let truth = talk.done();
        assert_eq!((truth.allocs, truth.failed), (ALLOCATIONS + 10, 0));
    }
    talk.close();
    wait_until_gone(&all, "the command and its guard to end");
    was_in
}

/// Kills gpuprobe, with this kind of probe and at this stage, this many times.
pub(crate) fn killed_with_commands(rows: &[(&str, Stage, usize)]) {
    let copy = OwnCopy::new();
    for &(kind, stage, wanted) in rows {
        until_hit(stage, wanted, |_| killed_at(&copy, kind, stage));
    }
}

#[test]
fn root_killed_with_a_command_it_leaves_nothing_and_no_guard() {
    killed_with_commands(&[
        ("session", Stage::Tracing, 1),
        ("session", Stage::Ending, 1),
    ]);
}
