//! `--comm`, `--uid`, `--exclude`, `--container`, `--cgroup`: only processes that match are
//! reported.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use crate::harness::report::{list, number};
use crate::harness::{
    Backend, Cgroup, Family, Gpuprobe, Member, Report, Setup, Truth, host_wide, standin,
};
use crate::recording::{Recording, count};

const UID: u32 = 54_321;
const LONG: &str = "a_name_of_more_than_15_letters";

/// Commands with events for every report.
const WORK: [&str; 5] = [
    "alloc 4096 3",
    "freenull",
    "launch 0 5",
    "graph 2 3",
    "copy h2d 4096 2",
];

fn modes(setup: Setup) -> Setup {
    setup.modes(["--memleak", "--cudatrace", "--bandwidth-util"])
}

/// The sorted PIDs in a list of a report.
fn pids(rows: &[serde_json::Value]) -> Vec<u32> {
    let rows = rows.iter().map(|row| number(row, "pid"));
    let mut pids: Vec<_> = rows.map(|pid| u32::try_from(pid).unwrap()).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Asserts that the report has exactly the processes of `accepted`, in every mode.
fn check(report: &Report, accepted: &[(u32, Truth)], what: &str) {
    report.assert_nothing_lost_of(accepted.iter().map(|(pid, _)| *pid));
    let sum = accepted
        .iter()
        .fold(Truth::default(), |sum, (_, truth)| sum + *truth);
    assert_eq!(report.totals(), sum.into(), "{what}");
    let launches = [sum.launches, sum.graph_launches, sum.captured];
    assert_eq!(report.launches(), launches, "{what}");
    let bandwidth = &report["bandwidth_util"];
    assert_eq!(number(bandwidth, "copies"), sum.copies, "{what}");
    let mut expected: Vec<_> = accepted.iter().map(|(pid, _)| *pid).collect();
    expected.sort_unstable();
    for (section, key) in [
        ("memleak", "processes"),
        ("cudatrace", "kernels"),
        ("cudatrace", "graphs"),
        ("bandwidth_util", "directions"),
    ] {
        assert_eq!(pids(list(&report[section], key)), expected, "{what}: {key}");
    }
}

/// Runs work in every member while `gpuprobe` traces; asserts that the report has those of
/// `accepted`.
fn work_and_check(gpuprobe: &mut Gpuprobe, members: &mut [Member], accepted: &[usize], what: &str) {
    let before: Vec<_> = members.iter_mut().map(|m| m.status()).collect();
    for member in members.iter_mut() {
        for command in WORK {
            member.say(command);
        }
    }
    let did: Vec<_> = members
        .iter_mut()
        .zip(before)
        .map(|(member, before)| (member.pid, member.status() - before))
        .collect();
    let accepted: Vec<_> = accepted.iter().map(|&i| did[i]).collect();
    check(&gpuprobe.stop(), &accepted, what);
}

#[test]
fn root_all_filters_must_match() {
    let script = format!("@alpha & @beta & setpriv --reuid {UID} @gamma & @{LONG} & exec @root");
    let family = Family::start(&script);
    let mut members = family.members(["root", "alpha", "beta", "gamma", LONG]);
    let beta = members[2].pid.to_string();
    // By user, by name, the long one too, and by PID; src/live/filter.rs tests every combination.
    let excluded = ["--exclude", LONG, "--exclude", &beta];
    let setup = Setup::pid_without_stacks(family.root()).args(["--children", "--uid", "0"]);
    let setup = setup.args(excluded).args(["--comm", "alpha"]);
    let mut gpuprobe = modes(setup.args(["--comm", "beta", "--comm", "gamma"])).start();
    work_and_check(&mut gpuprobe, &mut members, &[1], "all filters");
}

#[test]
fn root_host_wide_reports_only_processes_of_the_container() {
    let _shared = host_wide();
    let (one, two) = (Cgroup::new(), Cgroup::new());
    let (enter, recording) = (two.enter(), Recording::new());
    let script = format!(
        "({} exec @one) & (@outside & wait) & ({enter} exec @unnamed) & ({enter} exec @excluded) & \
         ({enter} exec setpriv --reuid {UID} @other) & {enter} exec @two",
        one.enter(),
    );
    let family = Family::start(&script);
    // Each but the second lacks what one filter wants.
    let names = ["one", "two", "outside", "unnamed", "excluded", "other"];
    let mut members = family.members(names);
    let arguments = ["--cgroup", two.outer(), "--container", &two.id[..12]];
    let comms = names.into_iter().filter(|name| *name != "unnamed");
    let setup = Setup::everything()
        .args(arguments)
        .args(comms.flat_map(|name| ["--comm", name]));
    let setup = setup.args(["--uid", "0", "--exclude", "excluded"]);
    let mut gpuprobe = modes(setup.args(["--record", &recording.text()])).start();
    work_and_check(&mut gpuprobe, &mut members, &[1], "a container");
    let callers = "(SELECT DISTINCT globalTid >> 24 FROM CUPTI_ACTIVITY_KIND_RUNTIME)";
    assert_eq!(count(&recording.file, callers), 1);
}

#[test]
fn root_processes_of_a_command_are_filtered_at_their_start() {
    let script = "@alpha & @beta & wait; @alpha2 ; @beta2 ; exec @gamma";
    // A shell that starts workloads as a command of gpuprobe: each is traced from its first call.
    let folder = TempDir::new().unwrap();
    let program = standin().program(Backend::Shared);
    let commands = WORK.join("; ");
    let words = script.split(' ').map(|word| {
        let Some(name) = word.strip_prefix('@') else {
            return word.to_owned();
        };
        let path = folder.path().join(name);
        symlink(&program, &path).unwrap();
        format!("{} -c '{commands}; exit' >&2", path.display())
    });
    let script = words.collect::<Vec<_>>().join(" ");
    let filters = "--comm gamma --comm sh --comm beta2".split(' ');
    let setup = Setup::command_without_stacks(["sh", "-c", &script]).args(filters);
    let report = modes(setup).start().final_report();
    report.assert_nothing_lost();
    let totals = report.totals();
    assert!(totals.alloc_calls >= 6, "{totals:?}");
    assert_eq!(totals.live_bytes, 2 * 12_288);
    assert_eq!(report.launches(), [10, 6, 4]);
    assert_eq!(report["bandwidth_util"]["copies"], 4);
    assert_eq!(list(&report["memleak"], "processes").len(), 2);
}

#[test]
fn root_filters_are_applied_again_after_exec() {
    let family = Family::start("@before & exec @root");
    let [mut before, _root] = family.members(["before", "root"]);
    let setup = || Setup::pid_without_stacks(family.root()).args(["--children", "--comm"]);
    let mut of_before = setup().args(["before"]).start();
    let mut of_after = setup().args(["workload_driver"]).start();
    before.say("alloc 4096 3");
    let program = standin().program_text(Backend::Driver);
    before.send(&format!("exec {program}"));
    assert_eq!(before.ready(), before.pid);
    before.say("alloc 512 2");
    let report = of_before.stop();
    report.assert_calls(&[("cudaMalloc", 3)]);
    report.assert_holds(before.pid, 12_288, 3);
    assert_eq!(report.process(before.pid)["exited"], true);
    let report = of_after.stop();
    report.assert_calls(&[("cuMemAlloc_v2", 2)]);
    report.assert_totals(before.status());
    report.assert_holds(before.pid, 1024, 2);
}
