//! Call paths that a program takes on command: each is distinguished.

use std::collections::BTreeMap;
use std::fs;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde_json::Value;

use super::{functions, sites};
use crate::harness::report::number;
use crate::harness::{Gpuprobe, Report, Session, Setup, Workload, standin, wait_for};

/// The functions of `tests/standin/paths.c` for PATH, innermost first.
fn expected(depth: u32, path: u64, start: &str) -> Vec<String> {
    let names = (0..depth).map(|level| {
        if path >> level & 1 == 1 {
            "right"
        } else {
            "left"
        }
    });
    let mut names: Vec<_> = names.collect();
    names.reverse();
    names.insert(0, "bottom");
    names.extend(["carry_out", start]);
    names.into_iter().map(str::to_owned).collect()
}

fn started(program: &str, arguments: &[&str]) -> (Gpuprobe, u32) {
    let setup = Setup::command([standin().path(program).to_str().unwrap()]);
    setup.args(arguments.iter().copied()).started()
}

/// Ends the program; returns the last report.
fn ended(mut gpuprobe: Gpuprobe) -> Report {
    gpuprobe.talk.send("exit");
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    report
}

/// Asserts that the call paths of these programs are named, traced with these options.
pub(crate) fn are_named(programs: &[&str], options: &[&str]) {
    let mut session = Session::start(|setup| setup.args(options.iter().copied()));
    let start = |program: &&str| {
        let path = standin().path(program);
        let mut member = session.program(path.to_str().unwrap());
        member.play("call 5 21 4096 2; thread 3 5 100 1; call 5 22 512 3; call 0 0 64 1");
        member.send("exit");
        member.pid
    };
    let pids: Vec<_> = programs.iter().map(start).collect();
    let (report, _) = session.end();
    report.assert_nothing_lost();
    for (pid, program) in pids.into_iter().zip(programs) {
        let what = format!("{program} with {options:?}");
        let all = sites(&report, pid).iter();
        let found: BTreeMap<u64, _> = all.map(|site| (number(site, "live_bytes"), site)).collect();
        for (bytes, calls, depth, path, start) in [
            (8192, 2, 5, 21, "main"),
            (100, 1, 3, 5, "worker"),
            (1536, 3, 5, 22, "main"),
            (64, 1, 0, 0, "main"),
        ] {
            let site = found.get(&bytes);
            let site = site.unwrap_or_else(|| panic!("no {bytes} B: {what}, {found:?}"));
            let names = expected(depth, path, start);
            assert_eq!(functions(site, start), names, "{what}");
            assert_eq!(number(site, "live_allocations"), calls, "{what}");
            assert_eq!(site["complete"], true, "{what}");
            assert_eq!(site["api"], "cudaMalloc");
        }
        assert_eq!(found.len(), 4, "{what}");
    }
}

#[test]
fn root_call_paths_are_named_with_and_without_frame_pointers() {
    are_named(&["paths", "paths_bare"], &["--stacks", "auto"]);
    are_named(&["paths", "paths_bare"], &["--stacks", "dwarf"]);
    are_named(&["paths"], &["--stacks", "fp"]);
    are_named(&["paths_bare"], &["--attach", "multi"]);
}

#[test]
fn root_alternating_call_paths_are_distinguished_and_too_deep_ones_truncated() {
    const DEPTH: u32 = 6;
    const ROUNDS: u64 = 20;
    let (mut gpuprobe, pid) = started("paths_bare", &[]);
    for _ in 0..ROUNDS {
        gpuprobe.talk.say(&format!("all {DEPTH} 512"));
    }
    gpuprobe.talk.say("call 10000 0 4096 2");
    gpuprobe.talk.send("exit");
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_no_call_lost();
    let (deep, whole): (Vec<_>, Vec<_>) = sites(&report, pid)
        .iter()
        .partition(|site| number(site, "live_bytes") == 8192);
    let [site] = deep[..] else {
        panic!("one site: {deep:?}");
    };
    assert_eq!(site["complete"], false);
    let stack = site["stack"].as_array().unwrap();
    assert!(stack.len() > 500, "{}", stack.len());
    let is_left = |f: &Value| f["function"] == "left" || f["inlined"] == true;
    assert!(stack[1..].iter().all(is_left));
    let mut found: Vec<_> = whole
        .into_iter()
        .map(|site| (functions(site, "main"), number(site, "live_allocations")))
        .collect();
    found.sort();
    let paths = (0..1 << DEPTH).map(|path| (expected(DEPTH, path, "main"), ROUNDS));
    let mut paths: Vec<_> = paths.collect();
    paths.sort();
    assert_eq!(found, paths);
}

/// Waits until the thread that empties the rings has done so: before it waits again, it has emptied all.
fn wait_for_empty_rings(pid: u32) {
    let waits = || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let mut of_rings = tasks.filter_map(|task| {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let waits = status.split("\nvoluntary_ctxt_switches:").nth(1)?;
            let is_it = status.starts_with("Name:\tgpuprobe-rings\n");
            is_it.then(|| waits.split_whitespace().next()?.parse::<u64>().ok())?
        });
        of_rings.next().expect("it has the thread")
    };
    // The first may be that of a round that had begun, or of a record that is still being written.
    let before = waits();
    wait_for("the rings to be emptied", || {
        (waits() > before + 2).then_some(())
    });
}

/// Takes every path of these depths, the next ones once the ring of call stacks is empty: asserts that each is whole.
pub(crate) fn new_paths_are_whole(depths: &[u32], is_busy: bool) {
    let (mut gpuprobe, pid) = started("paths_bare", &[]);
    // The program is held until the event loop has seen the library that it loads for this.
    gpuprobe.talk.say("call 0 0 64 1");
    let event_loop = Pid::from_raw(gpuprobe.child.pid().cast_signed());
    if is_busy {
        // Its thread is stopped, the others run.
        ptrace::seize(event_loop, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(event_loop).unwrap();
        waitpid(event_loop, Some(WaitPidFlag::__WALL)).unwrap();
    }
    for depth in depths {
        gpuprobe.talk.say(&format!("all {depth} 512"));
        wait_for_empty_rings(gpuprobe.child.pid());
    }
    if is_busy {
        ptrace::detach(event_loop, None).unwrap();
    }
    let report = ended(gpuprobe);
    let sites = sites(&report, pid);
    let made: usize = depths.iter().map(|depth| 1 << depth).sum();
    assert_eq!(sites.len(), made + 1);
    assert!(sites.iter().all(|site| site["complete"] == true));
}

/// `long::stacks` has more than are copied a second, and than the ring holds.
#[test]
fn root_new_call_paths_are_whole_while_the_event_loop_is_busy() {
    new_paths_are_whole(&[9, 8, 7], true);
}

#[test]
fn root_late_attach_has_stacks() {
    let program = standin().path("paths_bare");
    let mut workload = Workload::spawn(&mut std::process::Command::new(program));
    workload.say("call 4 3 512 1");
    let mut gpuprobe = Setup::pid(workload.pid).start();
    workload.play("call 4 9 4096 2; call 4 6 100 1");
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    let found: Vec<_> = sites(&report, workload.pid)
        .iter()
        .map(|site| (number(site, "live_bytes"), functions(site, "main")))
        .collect();
    assert_eq!(
        found,
        [
            (8192, expected(4, 9, "main")),
            (100, expected(4, 6, "main"))
        ]
    );
}

#[test]
fn root_without_stacks_reports_have_none() {
    let (mut gpuprobe, pid) = started("paths_bare", &["--stacks", "off"]);
    gpuprobe.talk.say("call 4 9 4096 2");
    assert!(ended(gpuprobe).process(pid).get("sites").is_none());
}

#[test]
fn root_memory_of_graphs_is_at_the_site_that_added_it() {
    let (mut gpuprobe, pid) = started("workload_driver", &[]);
    for (graph, node) in ["", "node", "node2"].into_iter().enumerate() {
        gpuprobe.talk.say("gnew");
        let bytes = 1000 * (graph + 1);
        gpuprobe.talk.say(&format!("galloc {graph} {bytes} {node}"));
        gpuprobe.talk.say(&format!("glaunch {graph}"));
    }
    let report = ended(gpuprobe);
    let sites = sites(&report, pid);
    let mut held: Vec<_> = sites.iter().map(|s| number(s, "live_bytes")).collect();
    held.sort_unstable();
    assert_eq!(held, [1000, 2000, 3000]);
    for site in sites {
        functions(site, "run_galloc");
    }
}
