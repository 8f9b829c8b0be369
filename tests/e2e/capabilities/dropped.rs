//! Which capabilities are left once gpuprobe traces.

use std::collections::BTreeSet;
use std::fs;

use caps::Capability;
use tempfile::TempDir;

use crate::harness::child::{children_of, readers_of};
use crate::harness::{Backend, Gpuprobe, OwnCopy, Setup, Workload, wait_for};

/// A thread.
#[derive(Debug)]
struct Thread {
    name: String,
    permitted: u64,
    /// It cannot gain any capability by executing something.
    closed: bool,
}

/// The threads of a process, none of which has capabilities that it would pass on.
fn threads(pid: u32) -> Vec<Thread> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        // A thread may end meanwhile.
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else {
            continue;
        };
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        let permitted = u64::from_str_radix(&value("CapPrm:"), 16).unwrap();
        let effective = u64::from_str_radix(&value("CapEff:"), 16).unwrap();
        assert_eq!(effective & !permitted, 0);
        assert_eq!(value("CapInh:"), "0000000000000000");
        assert_eq!(value("CapAmb:"), "0000000000000000");
        found.push(Thread {
            name: value("Name:"),
            permitted,
            closed: value("NoNewPrivs:") == "1",
        });
    }
    found
}

/// The threads of a process, once each has dropped what it can.
fn settled(pid: u32) -> Vec<Thread> {
    wait_for("all threads to drop what they can", || {
        let found = threads(pid);
        found.iter().all(|thread| thread.closed).then_some(found)
    })
}

fn mask(all: &[Capability]) -> u64 {
    let bits = all.iter().map(Capability::bitmask);
    bits.fold(0, |a, b| a | b)
}

const BPF: &[Capability] = &[Capability::CAP_BPF, Capability::CAP_PERFMON];
const LOOK: &[Capability] = &[
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_CHECKPOINT_RESTORE,
];
const AS_OTHERS: &[Capability] = &[Capability::CAP_SETUID, Capability::CAP_SETGID];
const SIGNAL: &[Capability] = &[Capability::CAP_KILL];

/// Each way to attach, and what it takes more.
const WAYS: [(&str, &[Capability]); 3] = [
    ("session", &[]),
    ("multi", &[]),
    ("perf", &[Capability::CAP_SYS_ADMIN]),
];

/// gpuprobe has the threads that it should have, and these the capabilities that the README says; the
/// first one, which attaches, has `more` than others.
fn check_threads(gpuprobe: &Gpuprobe, more: u64, how: &str) {
    let found = settled(gpuprobe.child.pid());
    let names: BTreeSet<_> = found.iter().map(|thread| &*thread.name).collect();
    let expected = ["gpuprobe", "gpuprobe-record", "source lines", "symbols"];
    assert_eq!(names, expected.into(), "{how}: {found:?}");
    assert_eq!(found.len(), expected.len(), "{how}: {found:?}");
    for thread in &found {
        let allowed = match &*thread.name {
            "gpuprobe" => mask(BPF) | mask(LOOK) | more,
            // To start another opener.
            "symbols" | "source lines" => mask(LOOK) | mask(AS_OTHERS),
            _ => 0,
        };
        assert_eq!(thread.permitted & !allowed, 0, "{how}: {thread:x?}");
    }
    // What reads files may do nothing; what opens them, only that.
    let readers = readers_of(gpuprobe.child.pid());
    assert_eq!(readers.len(), 3, "{how}");
    let mut filtered = 0;
    for reader in readers {
        let status = fs::read_to_string(format!("/proc/{reader}/status")).unwrap();
        let is_filtered = status.contains("Seccomp:\t2");
        filtered += usize::from(is_filtered);
        let allowed = if is_filtered {
            0
        } else {
            mask(LOOK) | mask(AS_OTHERS)
        };
        for thread in settled(reader) {
            assert_eq!(thread.permitted & !allowed, 0, "{how}: {thread:x?}");
        }
    }
    assert_eq!(filtered, 2, "{how}");
}

/// The only child of a process besides `other`.
fn only_child(pid: u32, other: Option<u32>) -> u32 {
    let mut children = children_of(pid);
    children.retain(|child| Some(*child) != other);
    assert_eq!(children.len(), 1, "children of {pid}: {children:?}");
    children[0]
}

/// Each call stack is asked for, and all is recorded.
fn arguments(attach: &str, folder: &TempDir) -> Vec<String> {
    let recording = folder.path().join(attach);
    let recording = recording.to_str().unwrap();
    let words = [
        "--attach", attach, "--stacks", "dwarf", "--record", recording,
    ];
    words.map(str::to_owned).into()
}

#[test]
fn root_with_a_command_capabilities_that_are_not_needed_any_more_are_dropped() {
    let folder = TempDir::new().unwrap();
    for (attach, more) in WAYS {
        let copy = OwnCopy::for_attach(attach);
        let program = copy.standin().program_text(Backend::Driver);
        let mut gpuprobe = Setup::command([program])
            .args(arguments(attach, &folder))
            .start();
        let command = gpuprobe.talk.ready();
        gpuprobe.talk.say("alloc 4096 2");
        check_threads(&gpuprobe, mask(more) | mask(SIGNAL), attach);
        // The guard, and the member that it keeps in the command's group.
        let guard = only_child(gpuprobe.child.pid(), Some(command));
        let member = only_child(guard, None);
        for (pid, allowed) in [(guard, mask(BPF) | mask(SIGNAL)), (member, 0)] {
            for thread in settled(pid) {
                assert_eq!(thread.permitted & !allowed, 0, "{attach}: {thread:x?}");
            }
        }
        // The command is root's as before.
        let of_command = &threads(command)[0];
        let is_roots = of_command.permitted & mask(SIGNAL) != 0 && !of_command.closed;
        assert!(is_roots, "{of_command:x?}");
        // Attaching later, recording and ending go on working.
        gpuprobe.talk.done();
        let report = gpuprobe.final_report();
        report.assert_nothing_lost();
        report.assert_holds(command, 8192, 2);
    }
}

#[test]
fn root_with_a_process_capabilities_that_are_not_needed_any_more_are_dropped() {
    let folder = TempDir::new().unwrap();
    for (attach, more) in WAYS {
        let copy = OwnCopy::for_attach(attach);
        let mut workload = Workload::of(&copy, Backend::Driver);
        let mut gpuprobe = Setup::pid(workload.pid)
            .args(arguments(attach, &folder))
            .start();
        workload.say("alloc 4096 2");
        // There is nobody to let go on, and no guard.
        check_threads(&gpuprobe, mask(more), attach);
        assert!(children_of(gpuprobe.child.pid()).is_empty());
        gpuprobe.stop().assert_holds(workload.pid, 8192, 2);
    }
}

#[test]
fn root_libraries_that_come_later_are_attached_to_without_the_rest() {
    for attach in ["session", "multi", "perf"] {
        let copy = OwnCopy::for_attach(attach);
        let mut workload = Workload::start(Backend::Dlopen);
        let mut gpuprobe = Setup::pid(workload.pid)
            .args(["--attach", attach, "--api", "driver", "--stacks", "off"])
            .env("GPUPROBE_LOG", "info")
            .start();
        settled(gpuprobe.child.pid());
        workload.say(&format!("load {}", copy.standin().runtime()));
        // The runtime loads the driver when it is first used.
        workload.say("freenull");
        wait_for("the driver to be probed", || {
            let said = gpuprobe.stderr.so_far();
            said.iter()
                .any(|line| line.contains("libcuda.so.1 are probed"))
                .then_some(())
        });
        workload.say("alloc 512 2");
        let report = gpuprobe.stop();
        report.assert_holds(workload.pid, 1024, 2);
    }
}
