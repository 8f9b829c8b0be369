//! C and C++; programs that are stripped, not position-independent, or loaded late; stacks outside the thread's own.
//! `crates/stacks/tests` has more builds, and Rust.

use std::path::Path;

use tempfile::TempDir;

use super::{built, functions, sites};
use crate::harness::report::{list, number};
use crate::harness::{Report, Setup};

/// The report of programs that have run to their exits, one after the other, and their PIDs.
fn traced(commands: &[String], mode: &str) -> (Report, Vec<u32>) {
    // Some exit by the signal that they test.
    let run = |command: &String| format!("{command} >/dev/null 2>&1 & echo $!; wait $!");
    let script = commands.iter().map(run).collect::<Vec<_>>().join("; ");
    let setup = Setup::command(["sh", "-c", &script]);
    let mut gpuprobe = setup.args(["--stacks", mode]).spawn();
    gpuprobe.wait();
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    let pids = gpuprobe.talk.to_end();
    (
        report,
        pids.iter().map(|pid| pid.parse().unwrap()).collect(),
    )
}

/// Builds a program in a folder of its own; returns its path.
fn program(folder: &TempDir, name: &str, source: &str, flags: &[&str]) -> String {
    let folder = folder.path().join(name);
    std::fs::create_dir(&folder).unwrap();
    let program = built(&folder, source, flags);
    program.to_str().unwrap().to_owned()
}

fn only(report: &Report, pid: u32) -> &serde_json::Value {
    let [site] = sites(report, pid) else {
        panic!("one site of {pid}: {report:?}");
    };
    site
}

/// Asserts what `chain.c` does: `middle` calls `inner` on two lines.
fn check_chain(report: &Report, pid: u32) {
    assert_eq!(sites(report, pid).len(), 2);
    for site in sites(report, pid) {
        let path = functions(site, "main");
        assert_eq!(path, ["leaf", "inner", "middle", "outer", "main"]);
        assert_eq!(site["complete"], true);
    }
}

#[test]
fn root_programs_of_every_build_are_named() {
    let folder = TempDir::new().unwrap();
    let chain = |name, flags: &[&str]| program(&folder, name, "chain.c", flags);
    let with_pointers = chain("pointers", &["-O0", "-fno-omit-frame-pointer", "-pie"]);
    let without = chain("without", &["-O2", "-fomit-frame-pointer", "-no-pie"]);
    for (mode, program) in [("fp", &with_pointers), ("dwarf", &without)] {
        let (report, pids) = traced(std::slice::from_ref(program), mode);
        check_chain(&report, pids[0]);
    }
    let host = program(&folder, "host", "host.c", &["-O2"]);
    let hidden = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden"];
    let plugin = program(&folder, "plugin", "plugin.c", &hidden);
    let programs = [
        with_pointers,
        chain("pie", &["-O2", "-fomit-frame-pointer", "-pie"]),
        without,
        chain("stripped", &["-O2", "-s"]),
        format!("{host} {plugin}"),
        program(&folder, "shapes", "shapes.cpp", &["-std=c++17", "-O2"]),
    ];
    let (report, pids) = traced(&programs, "auto");
    let [pointers, pie, without, stripped, host, shapes] = pids[..] else {
        panic!("{pids:?}");
    };
    for pid in [pointers, pie, without] {
        check_chain(&report, pid);
    }
    // Offsets, and never a wrong symbol.
    for site in sites(&report, stripped) {
        let stack = list(site, "stack");
        assert!(stack.len() >= 7, "{stack:?}");
        for frame in &stack[..5] {
            let function = frame["function"].as_str().unwrap();
            assert!(function.starts_with("chain+0x"), "{function}");
            assert!(frame["line"].is_null());
        }
        assert_eq!(site["complete"], true);
    }
    let path = ["called_back", "plugin_hidden", "plugin_run", "main"];
    assert_eq!(functions(only(&report, host), "main"), path);
    check_shapes(&report, shapes);
}

#[test]
fn root_a_stripped_library_is_labelled_by_the_line_that_calls_it() {
    let folder = TempDir::new().unwrap();
    let bare = [
        "-O2",
        "-fomit-frame-pointer",
        "-fvisibility=hidden",
        "-shared",
        "-fPIC",
        "-s",
    ];
    let library = program(&folder, "plans", "plans.c", &bare);
    let sessions = program(&folder, "sessions", "sessions.c", &["-O2"]);
    let (report, pids) = traced(&[format!("{sessions} {library}")], "auto");
    let site = only(&report, pids[0]);
    let source = include_str!("../../../crates/stacks/tests/stacks/programs/sessions.c");
    let mut lines = source.lines();
    let line = 1 + lines
        .position(|line| line.contains("return plan_make"))
        .unwrap();
    let called = source
        .lines()
        .position(|line| line.trim() == "open_session();");
    let main = 1 + called.unwrap();
    let label = format!("sessions.c:{main} main > sessions.c:{line} open_session via plans");
    assert_eq!(site["label"], label);
    let held = ["live_bytes", "live_allocations"].map(|key| number(site, key));
    assert_eq!(held, [3 << 20, 3]);
    let unnamed = list(site, "stack").iter().filter(|frame| {
        let function = frame["function"].as_str().unwrap();
        function.starts_with("plans+0x")
    });
    assert_eq!(unnamed.count(), 2, "{site}");
}

/// Templates, lambdas and inlined functions of C++.
fn check_shapes(report: &Report, pid: u32) {
    let site = only(report, pid);
    assert_eq!(
        functions(site, "main"),
        [
            "shapes::Square<float, 4>::area(int) const",
            "measure(shapes::Shape const&)",
            "main::{lambda(int)#1}::operator()(int) const",
            "int shapes::apply<main::{lambda(int)#1}&>(main::{lambda(int)#1}&)",
            "main",
        ]
    );
    let mut stack = list(site, "stack").iter();
    let frame = stack.find(|frame| frame["function"] == "twice").unwrap();
    assert_eq!(frame["inlined"], true);
    let file = Path::new(frame["file"].as_str().unwrap());
    assert!(file.ends_with("shapes.cpp"), "{frame}");
    let source = include_str!("../../../crates/stacks/tests/stacks/programs/shapes.cpp");
    let mut lines = source.lines();
    let line = lines.position(|line| line.contains("shape.area(1)"));
    assert_eq!(number(frame, "line"), line.unwrap() as u64 + 1);
}

#[test]
fn root_stacks_outside_the_threads_own_and_stacks_that_look_alike() {
    const CONTEXTS: [(&str, &str); 4] = [
        ("coroutine", "in_coroutine"),
        ("thread", "in_thread"),
        ("altstack", "handler"),
        ("signal", "handler"),
    ];
    let folder = TempDir::new().unwrap();
    let bare = ["-O2", "-fomit-frame-pointer"];
    let contexts = program(&folder, "contexts", "contexts.c", &bare);
    let alike = program(&folder, "lookalike", "lookalike.c", &bare);
    let shared = ["-O2", "-shared", "-fPIC"];
    let allocator = program(&folder, "allocator", "allocator.c", &shared);
    let alike = ["buffer", "calls", &allocator].map(|what| format!("{alike} {what}"));
    let contexts = CONTEXTS.map(|(what, _)| format!("{contexts} {what}"));
    let (report, pids) = traced(&[&contexts[..], &alike].concat(), "auto");
    for ((what, last), pid) in CONTEXTS.into_iter().zip(&pids) {
        let site = only(&report, *pid);
        assert_eq!(functions(site, last), ["bottom", last], "{what}");
        // Where the stack continues on another one, frames are reported as missing.
        let is_whole = matches!(what, "thread" | "signal");
        assert!(!is_whole || site["complete"] == true, "{what}");
    }
    // Of the same depth, in the same second, with equal innermost frames.
    for pid in &pids[CONTEXTS.len()..] {
        let caller = |site| {
            let path = functions(site, "main");
            let held = ["live_bytes", "live_allocations"].map(|key| number(site, key));
            (path[path.len() - 2].clone(), held)
        };
        let mut found: Vec<_> = sites(&report, *pid).iter().map(caller).collect();
        found.sort();
        let expected = [("load_optimizer", [6000, 3]), ("load_weights", [3000, 3])];
        assert_eq!(found, expected.map(|(name, held)| (name.to_owned(), held)));
    }
}
