//! Processes whose memory, or root, blocks whoever reads it.
//!
//! They need `/dev/fuse`: without it the tests fail with a message.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::mounts::{OF_ROOTS, Served, USER};
use super::watch::Watched;
use super::{Attacker, program, source};
use crate::harness::{Backend, Nvml, Setup, Workload, alone, standin};

pub(super) const BLOCKS: &str = "it blocks readers";

/// A process that can hide its memory or its root.
pub(super) fn hidden(folder: &Path) -> Attacker {
    let mut command = Command::new(program(folder, "hidden", &[&source("hidden.c")]));
    Attacker::start(command.arg(standin().runtime()))
}

/// Traces a process that hides what `server` serves, and a well-behaved one: nothing but the former's facts is
/// missing.
fn check(mut attacker: Attacker, server: Attacker, with: impl FnOnce(Setup) -> Setup) {
    attacker.say(&format!("user {USER}"));
    let victim = Workload::start(Backend::Shared);
    let pid = attacker.child.pid();
    let setup = Setup::pid(victim.pid).args(["--pid", &pid.to_string()]);
    let mut watched = Watched::start(with(setup), victim);
    // Dropped first, if this fails: a gpuprobe that hangs cannot be killed before.
    let _server = server;
    watched.go_on();
    attacker.say("call");
    watched.gpuprobe.report_where("the call", |report| {
        let entries = report.entries(pid);
        entries.iter().any(|process| process["live_bytes"] == 4096)
    });
    watched.go_on();
    let victim = watched.victim_pid();
    let (report, said) = watched.end();
    let told = said.iter().filter(|line| line.contains(BLOCKS)).count();
    assert_eq!(told, 1, "{said:#?}");
    let command = &report.process(victim)["command"];
    assert!(command.is_string(), "the other's is known");
}

#[test]
fn root_python_types_on_a_hanging_file_system_delay_no_other_process() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let served = Served::new();
    let mut server = served.start(&OF_ROOTS, USER, false);
    let mut attacker = hidden(folder.path());
    attacker.say(&format!("type {}/libcuda.so.1", served.seen(&server)));
    server.say("stop");
    check(attacker, server, |setup| setup.args(["--stacks", "dwarf"]));
}

#[test]
fn root_devices_on_a_hanging_file_system_delay_no_other_process() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let served = Served::new();
    let mut server = served.start(&OF_ROOTS, USER, false);
    let mut attacker = hidden(folder.path());
    attacker.say(&format!("root {}", served.seen(&server)));
    server.say("stop");
    let nvml = Nvml::with_gpus(2);
    check(attacker, server, |setup| {
        let setup = setup.without_stacks().env("STANDIN_NVML_MINORS", "100");
        nvml.given_to(setup)
    });
}
