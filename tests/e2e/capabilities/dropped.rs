//! Capabilities that remain after gpuprobe has attached.

use std::collections::BTreeSet;
use std::fs;

use caps::Capability;
use tempfile::TempDir;

use crate::harness::child::{children_of, readers_of};
use crate::harness::{Backend, Gpuprobe, OwnCopy, Setup, Workload, wait_for};

#[derive(Debug)]
struct Thread {
    name: String,
    permitted: u64,
    /// `PR_SET_NO_NEW_PRIVS`: the thread gains no capability by exec.
    closed: bool,
}

/// The threads of a process; asserts that none has inheritable capabilities.
fn threads(pid: u32) -> Vec<Thread> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        // A thread may exit meanwhile.
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

/// The threads of a process, once each has dropped its capabilities.
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

/// Each attach mode and the capability that it additionally needs.
const WAYS: [(&str, &[Capability]); 3] = [
    ("session", &[]),
    ("multi", &[]),
    ("perf", &[Capability::CAP_SYS_ADMIN]),
];

/// Asserts that gpuprobe has the expected threads with the capabilities in docs/security.md; of `more`, the main
/// thread has that for signals, and the one that attaches the rest.
fn check_threads(gpuprobe: &Gpuprobe, more: u64, how: &str) {
    let expected = [
        "gpuprobe",
        "gpuprobe-attach",
        "gpuprobe-record",
        "gpuprobe-rings",
        "gpuprobe-stacks",
        "symbols",
    ];
    // Probes that are not needed any more are removed by further threads.
    let found = wait_for("the threads that stay", || {
        let found = settled(gpuprobe.child.pid());
        (found.len() == expected.len()).then_some(found)
    });
    let names: BTreeSet<_> = found.iter().map(|thread| &*thread.name).collect();
    assert_eq!(names, expected.into(), "{how}: {found:?}");
    for thread in &found {
        let allowed = match &*thread.name {
            "gpuprobe" => mask(BPF) | mask(LOOK) | mask(AS_OTHERS) | more & mask(SIGNAL),
            "gpuprobe-attach" => mask(BPF) | mask(LOOK) | mask(AS_OTHERS) | more & !mask(SIGNAL),
            // To start another reader.
            "gpuprobe-stacks" => mask(BPF) | mask(LOOK) | mask(AS_OTHERS),
            "symbols" => mask(LOOK) | mask(AS_OTHERS),
            _ => 0,
        };
        assert_eq!(thread.permitted & !allowed, 0, "{how}: {thread:x?}");
    }
    // The one that writes is of the recording alone.
    let mut threads = found.len() - 1;
    let helpers = readers_of(gpuprobe.child.pid());
    assert_eq!(helpers.len(), 2, "{how}");
    for helper in helpers {
        let words = fs::read(format!("/proc/{helper}/cmdline")).unwrap();
        let allowed = match words.split(|&byte| byte == 0).nth(2) {
            Some(b"reader") => mask(LOOK) | mask(AS_OTHERS),
            _ => 0,
        };
        let found = settled(helper);
        threads += found.len();
        for thread in found {
            assert_eq!(thread.permitted & !allowed, 0, "{how}: {thread:x?}");
        }
    }
    assert!(threads <= 8, "{how}: {threads}");
}

/// The only child of a process besides `other`.
fn only_child(pid: u32, other: Option<u32>) -> u32 {
    let mut children = children_of(pid);
    children.retain(|child| Some(*child) != other);
    assert_eq!(children.len(), 1, "children of {pid}: {children:?}");
    children[0]
}

/// Selects call stacks for every call and records everything.
fn arguments(attach: &str, folder: &TempDir) -> Vec<String> {
    let recording = folder.path().join(attach);
    let recording = recording.to_str().unwrap();
    let words = [
        "--attach", attach, "--stacks", "dwarf", "--record", recording,
    ];
    words.map(str::to_owned).into()
}

#[test]
fn root_unneeded_capabilities_are_dropped_with_a_command() {
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
        // The guard, and the process that keeps the command's process group alive.
        let guard = only_child(gpuprobe.child.pid(), Some(command));
        let member = only_child(guard, None);
        for (pid, allowed) in [(guard, mask(BPF) | mask(SIGNAL)), (member, 0)] {
            for thread in settled(pid) {
                assert_eq!(thread.permitted & !allowed, 0, "{attach}: {thread:x?}");
            }
        }
        // The command keeps root's capabilities.
        let of_command = &threads(command)[0];
        let is_roots = of_command.permitted & mask(SIGNAL) != 0 && !of_command.closed;
        assert!(is_roots, "{of_command:x?}");
        // Late attach, recording and shutdown still work.
        gpuprobe.talk.done();
        let report = gpuprobe.final_report();
        report.assert_nothing_lost();
        report.assert_holds(command, 8192, 2);
    }
}

#[test]
fn root_unneeded_capabilities_are_dropped_with_a_process() {
    let folder = TempDir::new().unwrap();
    for (attach, more) in WAYS {
        let copy = OwnCopy::for_attach(attach);
        let mut workload = Workload::start(Backend::Dlopen);
        let mut gpuprobe = Setup::pid(workload.pid)
            .args(arguments(attach, &folder))
            .env("GPUPROBE_LOG", "info")
            .start();
        settled(gpuprobe.child.pid());
        // What is left suffices to attach to libraries that are loaded now.
        workload.say(&format!("load {}", copy.standin().runtime()));
        // The runtime loads the driver at its first call.
        workload.say("freenull");
        wait_for("the driver to be probed", || {
            let said = gpuprobe.stderr.so_far();
            said.iter()
                .any(|line| line.contains("libcuda.so.1 are probed"))
                .then_some(())
        });
        workload.say("alloc 4096 2");
        // No process to resume, and so no guard.
        check_threads(&gpuprobe, mask(more), attach);
        assert!(children_of(gpuprobe.child.pid()).is_empty());
        gpuprobe.stop().assert_holds(workload.pid, 8192, 2);
    }
}
