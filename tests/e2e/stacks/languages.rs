//! C, C++ and Rust; programs that are stripped, not position-independent, or loaded late; stacks
//! outside the thread's own.

use tempfile::TempDir;

use super::{built, functions, sites};
use crate::harness::report::{list, number};
use crate::harness::{Report, Setup};

/// The report of a program that has run to its exit, and its PID.
fn traced(program: &std::path::Path, argument: Option<&str>, mode: &str) -> (Report, u32) {
    let words = [Some(program.to_str().unwrap()), argument];
    let mut gpuprobe = Setup::command(words.into_iter().flatten())
        .args(["--stacks", mode])
        .spawn();
    // Some exit by the signal that they test.
    gpuprobe.wait();
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    let pid = number(&list(&report["memleak"], "processes")[0], "pid");
    (report, u32::try_from(pid).unwrap())
}

#[test]
fn root_c_of_every_build_is_named() {
    const PATH: [&str; 5] = ["leaf", "inner", "middle", "outer", "main"];
    for (flags, mode) in [
        (["-O0", "-fno-omit-frame-pointer", "-pie"], "fp"),
        (["-O0", "-fno-omit-frame-pointer", "-pie"], "auto"),
        (["-O2", "-fomit-frame-pointer", "-pie"], "auto"),
        (["-O2", "-fomit-frame-pointer", "-no-pie"], "auto"),
        (["-O2", "-fomit-frame-pointer", "-no-pie"], "dwarf"),
    ] {
        let folder = TempDir::new().unwrap();
        let (report, pid) = traced(&built(folder.path(), "chain.c", &flags), None, mode);
        let sites = sites(&report, pid);
        // `middle` calls `inner` on two lines.
        assert_eq!(sites.len(), 2, "{flags:?} with {mode}");
        for site in sites {
            assert_eq!(functions(site, "main"), PATH, "{flags:?} with {mode}");
            assert_eq!(site["complete"], true);
        }
    }
}

#[test]
fn root_stripped_programs_give_offsets_and_never_a_wrong_symbol() {
    let folder = TempDir::new().unwrap();
    let program = built(folder.path(), "chain.c", &["-O2", "-s"]);
    let (report, pid) = traced(&program, None, "auto");
    for site in sites(&report, pid) {
        let stack = list(site, "stack");
        assert!(stack.len() >= 7, "{stack:?}");
        for frame in &stack[..5] {
            let function = frame["function"].as_str().unwrap();
            assert!(function.starts_with("chain+0x"), "{function}");
            assert!(frame["line"].is_null());
        }
        assert_eq!(site["complete"], true);
    }
}

#[test]
fn root_cpp_is_named_with_templates_and_inlined_functions() {
    let folder = TempDir::new().unwrap();
    let program = built(folder.path(), "shapes.cpp", &["-std=c++17", "-O2"]);
    let (report, pid) = traced(&program, None, "auto");
    let [site] = sites(&report, pid) else {
        panic!("one site");
    };
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
    let stack = list(site, "stack");
    let frame = stack
        .iter()
        .find(|frame| frame["function"] == "twice")
        .unwrap();
    assert_eq!(frame["inlined"], true);
    assert!(frame["file"].as_str().unwrap().ends_with("shapes.cpp"));
    let source = include_str!("../../../crates/stacks/tests/stacks/programs/shapes.cpp");
    let line = source
        .lines()
        .position(|line| line.contains("shape.area(1)"));
    assert_eq!(number(frame, "line"), line.unwrap() as u64 + 1);
}

#[test]
fn root_rust_is_named() {
    let folder = TempDir::new().unwrap();
    let program = built(folder.path(), "chain.rs", &["-O", "-g"]);
    let (report, pid) = traced(&program, None, "auto");
    let [site] = sites(&report, pid) else {
        panic!("one site");
    };
    // Legacy mangling has no type arguments.
    let [forward, apply] = match functions(site, "chain::main") {
        names if names.iter().any(|name| name == "chain::apply") => [
            "<chain::Linear<T> as chain::Layer>::forward",
            "chain::apply",
        ],
        _ => [
            "<chain::Linear<u32> as chain::Layer>::forward",
            "chain::apply::<chain::main::{closure#0}>",
        ],
    };
    assert_eq!(
        functions(site, "chain::main"),
        [forward, "chain::train", apply, "chain::main"]
    );
    assert_eq!(site["complete"], true);
}

#[test]
fn root_libraries_that_are_loaded_late_are_named() {
    let folder = TempDir::new().unwrap();
    let host = built(folder.path(), "host.c", &["-O2"]);
    let flags = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden"];
    let plugin = built(folder.path(), "plugin.c", &flags);
    let (report, pid) = traced(&host, plugin.to_str(), "auto");
    let [site] = sites(&report, pid) else {
        panic!("one site");
    };
    assert_eq!(
        functions(site, "main"),
        ["called_back", "plugin_hidden", "plugin_run", "main"]
    );
}

#[test]
fn root_stacks_outside_the_threads_own() {
    let folder = TempDir::new().unwrap();
    let program = built(
        folder.path(),
        "contexts.c",
        &["-O2", "-fomit-frame-pointer"],
    );
    for (what, last, path) in [
        ("coroutine", "in_coroutine", &["bottom", "in_coroutine"][..]),
        ("thread", "in_thread", &["bottom", "in_thread"]),
        ("altstack", "handler", &["bottom", "handler"]),
        ("signal", "handler", &["bottom", "handler"]),
    ] {
        let (report, pid) = traced(&program, Some(what), "auto");
        let [site] = sites(&report, pid) else {
            panic!("one site");
        };
        assert_eq!(functions(site, last), path, "{what}");
        // Where the stack continues on another one, frames are reported as missing.
        let is_whole = matches!(what, "thread" | "signal");
        assert!(!is_whole || site["complete"] == true, "{what}");
    }
}

/// Stacks of the same depth, in the same second: stacks with equal innermost frames are
/// distinguished.
#[test]
fn root_call_paths_that_differ_in_outer_frames_are_distinguished() {
    let folder = TempDir::new().unwrap();
    let program = built(
        folder.path(),
        "lookalike.c",
        &["-O2", "-fomit-frame-pointer"],
    );
    let library = built(folder.path(), "allocator.c", &["-O2", "-shared", "-fPIC"]);
    for what in ["buffer", "calls", library.to_str().unwrap()] {
        let (report, pid) = traced(&program, Some(what), "auto");
        let mut found: Vec<_> = sites(&report, pid)
            .iter()
            .map(|site| {
                let path = functions(site, "main");
                let caller = path[path.len() - 2].clone();
                (
                    caller,
                    number(site, "live_bytes"),
                    number(site, "live_allocations"),
                )
            })
            .collect();
        found.sort();
        let expected = [("load_optimizer", 6000, 3), ("load_weights", 3000, 3)];
        let expected = expected.map(|(caller, bytes, calls)| (caller.to_owned(), bytes, calls));
        assert_eq!(found, expected, "{what}");
    }
}
