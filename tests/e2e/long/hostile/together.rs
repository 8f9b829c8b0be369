//! Several attacks at once.

use tempfile::TempDir;

use super::Attacker;
use super::files::HugeTables;
use super::memory::{BLOCKS, hidden};
use super::mounts::{OF_ROOTS, Served, USER};
use super::watch::Watched;
use crate::harness::{Backend, Nvml, Setup, Workload, alone};

#[test]
fn root_attacks_at_once_delay_no_report() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let served = Served::new();
    let mut server = served.start(&OF_ROOTS, USER, false);
    let hide = |kind: &str, name: &str| -> Attacker {
        let mut attacker = hidden(folder.path());
        attacker.say(&format!("{kind} {}{name}", served.seen(&server)));
        attacker
    };
    let mut hiding = vec![hide("type", "/libcuda.so.1"), hide("root", "")];
    server.say("stop");
    for (attacker, user) in hiding.iter_mut().zip([65_533, 65_534]) {
        attacker.say(&format!("user {user}"));
    }
    let mut tables = HugeTables::new(folder.path());
    tables.add(21_000_000);
    let victim = Workload::start(Backend::Shared);
    let nvml = Nvml::with_gpus(2);
    let setup = Setup::everything().args(["--stacks", "dwarf"]);
    let setup = setup.env("STANDIN_NVML_MINORS", "100");
    let mut watched = Watched::start(nvml.given_to(setup), victim);
    // Dropped first, if this fails: a gpuprobe that hangs cannot be killed before.
    let _server = server;
    watched.go_on();
    for number in 1..8 {
        tables.add(2_000_000 + number);
        for attacker in &mut hiding {
            attacker.say("call");
        }
        watched.go_on();
    }
    let (_, said) = watched.end();
    let says = |what: &str| said.iter().any(|line| line.contains(what));
    assert!(says("it has too many symbols"), "{said:#?}");
    // Of one of the two at least: who is asked while the reader has no processor for 0.7 s is not named.
    assert!(says(BLOCKS), "{said:#?}");
}
