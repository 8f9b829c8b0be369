//! Child processes: of a command, and of a running process with `--pid N --children`.

use nix::sys::signal::Signal;

use crate::harness::child::{children_of, state_of};
use crate::harness::report::Totals;
use crate::harness::{Backend, Family, Gpuprobe, Member, OwnCopy, Setup, Truth, standin, wait_for};

#[test]
fn root_the_commands_children_are_followed() {
    let child = format!(
        "{} -c 'alloc 4096 3; free 0; exit'",
        standin().program_text(Backend::Shared)
    );
    let script = format!("{child} >&2 & {child} >&2; wait; ( {child} >&2 ); exit 3");
    let mut gpuprobe = Setup::command_without_stacks(["sh", "-c", &script]).start();
    assert_eq!(gpuprobe.exit_code(), 3);
    let report = gpuprobe.final_report();
    report.assert_totals(Totals {
        alloc_calls: 9,
        free_calls: 3,
        live_bytes: 6 * 4096,
        live_allocations: 6,
        ..Totals::default()
    });
    report.assert_calls(&[("cudaMalloc", 9)]);
    assert_eq!(report["memleak"]["processes"].as_array().unwrap().len(), 3);
}

#[test]
fn root_many_children_at_once_are_followed() {
    // Different programs, so that each is held at exec.
    let copies: Vec<_> = (0..4).map(|_| OwnCopy::new()).collect();
    let mut script = String::new();
    for round in 0..5 {
        for copy in &copies {
            let backend = Backend::ALL[round % 3];
            let program = copy.standin().program_text(backend);
            script += &format!("{program} -c 'alloc 4096 3; free 0; exit' >&2 & ");
        }
    }
    let mut gpuprobe = Setup::command_without_stacks(["sh", "-c", &(script + "wait")]).start();
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_totals(Totals {
        alloc_calls: 60,
        free_calls: 20,
        live_bytes: 40 * 4096,
        live_allocations: 40,
        ..Totals::default()
    });
    let processes = report["memleak"]["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 20);
    assert!(processes.iter().all(|p| p["live_bytes"] == 8192));
}

#[test]
fn root_a_child_that_outlives_the_command_goes_on() {
    // Tracing ends while the child is started, each time at another moment.
    let copies: Vec<_> = (0..6).map(|_| OwnCopy::new()).collect();
    for copy in &copies {
        let program = copy.standin().program_text(Backend::Shared);
        let script = format!("exec 3<&0; {program} <&3 & exit 5");
        let mut gpuprobe = Setup::command_without_stacks(["sh", "-c", &script]).start();
        gpuprobe.talk.ready();
        gpuprobe.talk.say("alloc 4096 3");
        assert_eq!(gpuprobe.exit_code(), 5);
        gpuprobe.talk.say("free 0");
        let truth = gpuprobe.talk.done();
        assert_eq!((truth.allocs, truth.frees), (3, 1));
        assert!(gpuprobe.final_report().is_final());
    }
}

/// A child, a grandchild, and the program that the shell executes.
const TREE: &str = "@child & (@grandchild & wait) & exec @root";

fn traced(family: &Family) -> Gpuprobe {
    let setup = Setup::pid_without_stacks(family.root()).args(["--children"]);
    setup.interval("50ms").start()
}

/// Runs a command in every member.
fn tell(members: &mut [Member], command: &str) {
    for member in members {
        member.say(command);
    }
}

#[test]
fn root_live_children_and_grandchildren_are_traced() {
    // Each tree has libraries of its own.
    let (copy, late) = (OwnCopy::new(), OwnCopy::new());
    let family = Family::of(&copy.standin().program(Backend::Shared), TREE);
    let mut members = family.members(["root", "child", "grandchild"]);
    assert_eq!(members[0].pid, family.root());
    tell(&mut members, "alloc 100 2");
    let mut gpuprobe = traced(&family);
    let said = gpuprobe.stderr.line_starting("gpuprobe: tracing");
    assert!(said.contains("and its children"), "{said}");
    let before = members.each_mut().map(|m| m.status());
    for (size, member) in (1..).zip(&mut members) {
        member.say(&format!("alloc {} 3", size * 1000));
        member.say("free 3");
    }
    let now = members.each_mut().map(|m| m.status());
    let sum = |truths: [Truth; 3]| truths[0] + truths[1] + truths[2];
    let did = Totals::from(sum(now) - sum(before));
    let report = gpuprobe.report_where("all calls", |report| report.totals() == did);
    report.assert_nothing_lost();
    report.assert_calls(&[("cudaMalloc", 9)]);
    for (size, member) in (1..).zip(&members) {
        report.assert_holds(member.pid, size * 2000, 2);
    }
    // A later child, with libraries that gpuprobe has not attached to.
    let program = late.standin().program_text(Backend::Driver);
    let script = "alloc 512; pace 1000 0.5 64; alloc 1024; exit";
    let child: u32 = members[1].ask(&format!("forkexec {program} -c '{script}'"));
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    let sizes: Vec<_> = report.allocations(child);
    assert!(sizes.iter().any(|a| a["bytes"] == 1024), "{sizes:?}");
}

#[test]
fn root_without_children_only_the_process_is_traced() {
    let family = Family::start(TREE);
    let mut members = family.members(["root", "child", "grandchild"]);
    let mut gpuprobe = Setup::pid_without_stacks(family.root()).start();
    tell(&mut members, "alloc 4096 3");
    members[0].say("fork alloc 512 2");
    let report = gpuprobe.stop();
    report.assert_totals(members[0].status());
    let processes = report["memleak"]["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 1);
    report.assert_holds(family.root(), 12_288, 3);
}

#[test]
fn root_later_children_are_traced() {
    // The script continues after a gate when the gate's workload has exited.
    let script = "(@gate ; (@orphan &) ; @late & wait) & exec @root";
    let family = Family::start(script);
    let [mut root, mut gate] = family.members(["root", "gate"]);
    let mut gpuprobe = traced(&family);
    gate.say("alloc 10");
    let mut truth = gate.done();
    let mut late = family.member("late");
    late.say("alloc 20 2");
    // Its parent has exited: it is reparented and no descendant.
    let mut orphan = family.member("orphan");
    orphan.say("alloc 40");
    let forked = root.say("fork alloc 512 3 | free 1 | fork alloc 80 2 | exit 3");
    // A fork does not duplicate the ledger.
    root.say("alloc 4096 3");
    let idle: u32 = root.ask("fork freenull | exit");
    let static_one = standin().program_text(Backend::Static);
    root.say(&format!("forkexec {static_one} -c 'alloc 64; exit'"));
    root.say("thread t");
    root.say("@t fork alloc 128");
    let report = gpuprobe.stop();
    truth = truth + late.status() + orphan.status() + root.status() + Truth::parse(&forked);
    let others = Totals {
        alloc_calls: 2 + 1 + 1,
        live_bytes: 160 + 64 + 128,
        live_allocations: 2 + 1 + 1,
        ..Totals::default()
    };
    report.assert_totals(Totals {
        alloc_calls: truth.allocs + others.alloc_calls,
        live_bytes: truth.bytes + others.live_bytes,
        live_allocations: truth.live + others.live_allocations,
        ..Totals::from(truth)
    });
    report.assert_calls(&[("cuMemAlloc_v2", 1), ("cudaMalloc", 13)]);
    report.assert_holds(family.root(), 12_288, 3);
    report.assert_holds(idle, 0, 0);
    report.assert_holds(late.pid, 40, 2);
    report.assert_holds(orphan.pid, 40, 1);
    report.assert_holds(gate.pid, 10, 1);
    let named = |name: &str| {
        let processes = report["memleak"]["processes"].as_array().unwrap();
        processes.iter().filter(|p| p["comm"] == name).count()
    };
    assert_eq!((named("orphan"), named("workload_static")), (1, 1));
}

/// One descendant is found before a child is born, and its parent becomes a target after that: only
/// a second search finds the child.
#[test]
fn root_children_born_during_the_search_are_traced() {
    const TRIES: usize = 10;
    assert!(
        (0..TRIES).any(|_| born_while_others_are_found()),
        "each time, all had been found before one was born"
    );
}

/// Whether the parent was not a target yet when the child was born.
fn born_while_others_are_found() -> bool {
    // With libraries of their own, which take a while to attach to.
    let copies: Vec<_> = (0..4).map(|_| OwnCopy::new()).collect();
    let before = copies.iter().zip(["a", "b", "c", "d"]).map(|(copy, name)| {
        let program = copy.standin().program_text(Backend::Shared);
        format!("@{name}={program} & ")
    });
    let before: String = before.collect();
    let family = Family::start(&format!("{before}(@gate ; @late & wait) & exec @root"));
    let _members = family.members(["root", "a", "b", "c", "d"]);
    let mut gate = family.member("gate");
    let mut gpuprobe = Setup::pid_without_stacks(family.root())
        .args(["--children"])
        .env("GPUPROBE_LOG", "info")
        .spawn();
    // Not by breakpoints: a host-wide tracer beside has some in each of them.
    let [first, last] = [0, 3].map(|n: usize| {
        let library = copies[n].standin().path("libcuda.so.1");
        format!("functions of {} are probed", library.display())
    });
    gpuprobe.stderr.line_with(&[&first]);
    gpuprobe.child.signal(Signal::SIGSTOP);
    wait_for("gpuprobe to stop", || {
        (state_of(gpuprobe.child.pid()) == Some('T')).then_some(())
    });
    let said = gpuprobe.stderr.so_far();
    if said.iter().any(|line| line.contains(&last)) {
        return false;
    }
    // The waiting shell starts the next after this one exits.
    gate.done();
    let mut late = family.member("late");
    gpuprobe.child.signal(Signal::SIGCONT);
    gpuprobe.stderr.line_starting("gpuprobe: tracing");
    late.say("alloc 10 2");
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    report.assert_holds(late.pid, 20, 2);
    true
}

#[test]
fn root_run_ends_with_the_last_process_of_the_tree() {
    // The first child is not reaped: it stays a zombie, which does not keep the run alive.
    let mut family = Family::start(&format!("true & {TREE}"));
    let [mut root, mut child, mut grandchild] = family.members(["root", "child", "grandchild"]);
    let pids = [root.pid, child.pid, grandchild.pid];
    let zombie = wait_for("a zombie", || {
        let mut children = children_of(family.root()).into_iter();
        children.find(|&child| state_of(child) == Some('Z'))
    });
    let mut gpuprobe = traced(&family);
    assert_eq!(state_of(zombie), Some('Z'));
    root.say("alloc 4096");
    let mut truth = root.done();
    family.shell.wait();
    gpuprobe.report_where("the end of the first", |report| {
        report.entries(pids[0]).iter().any(|e| e["exited"] == true)
    });
    // After several checks the process goes on.
    (0..4).for_each(|_| drop(gpuprobe.next_report()));
    child.say("alloc 512 2");
    truth = truth + child.done();
    (0..4).for_each(|_| drop(gpuprobe.next_report()));
    grandchild.say("alloc 64 2");
    grandchild.say("free 0");
    truth = truth + grandchild.done();
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_totals(truth);
    for (pid, bytes) in pids.into_iter().zip([4096, 1024, 64]) {
        assert_eq!(report.process(pid)["exited"], true);
        assert_eq!(report.process(pid)["live_bytes"], bytes);
    }
}

#[test]
fn root_a_tree_without_cuda_is_waited_for() {
    let family = Family::of(
        &standin().program(Backend::Dlopen),
        "@child & (@grandchild & wait) & wait",
    );
    let mut members = [family.member("child"), family.member("grandchild")];
    let mut gpuprobe = traced(&family);
    for member in &mut members {
        member.say(&format!("load {}", standin().runtime()));
    }
    for member in &mut members {
        gpuprobe.until_it_sees(member.pid, member);
        member.say("alloc 12345 7");
    }
    let report = gpuprobe.stop();
    for member in &members {
        let found = report.allocations(member.pid);
        assert_eq!(found.iter().filter(|a| a["bytes"] == 12_345).count(), 7);
    }
}
