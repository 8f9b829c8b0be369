//! Thousands of new call paths.

use std::path::Path;

use crate::harness::report::{list, number};
use crate::harness::{Setup, standin};
use crate::python::python_frames;
use crate::pythons::pythons;
use crate::stacks::paths::{are_named, new_paths_are_whole};

#[test]
fn root_six_thousand_in_a_moment_are_whole() {
    // More than are copied a second in the long run. The ring has room for those of either step.
    new_paths_are_whole(&[12, 11], false);
}

#[test]
fn root_more_than_the_ring_holds_are_whole_while_the_event_loop_is_busy() {
    new_paths_are_whole(&[12, 11, 10], true);
}

#[test]
fn root_call_paths_are_named_by_perf_events() {
    are_named(&["paths_bare"], &["--attach", "perf"]);
}

/// Calls of each of three threads, by 64 paths at four depths.
const MOVING_CALLS: usize = 40_000;

/// Frames are recognised by what was there before: wherever they move, none is another's.
#[test]
fn root_python_frames_that_move_are_never_those_of_another_path() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs/python/moving.py");
    for python in pythons() {
        let (runtime, calls) = (standin().runtime(), MOVING_CALLS.to_string());
        let words = [python.program.to_str().unwrap(), "-B"];
        let words = words
            .into_iter()
            .chain([program.to_str().unwrap(), &runtime, &calls]);
        let mut gpuprobe = Setup::command(words.map(str::to_owned))
            .args(["--group", "native-stack", "--full-stacks", "--top", "all"])
            .env("GPUPROBE_LOG", "debug")
            .spawn();
        let process = format!("process {} ", gpuprobe.talk.ready());
        let found = ["Python frames of", &process, "are read from now on"];
        gpuprobe.stderr.line_with(&found);
        gpuprobe.talk.send("begin");
        let expected: Vec<u64> = serde_json::from_str(&gpuprobe.talk.hear()).unwrap();
        gpuprobe.talk.send("end");
        let report = gpuprobe.final_report();
        let mut found = vec![0; expected.len()];
        let processes = list(&report["memleak"], "processes");
        for site in list(&processes[0], "sites") {
            let (frames, _) = python_frames(list(site, "stack"));
            // The level is a digit; functions in these have longer names.
            let bit = |name: &str| match name.split_at_checked(5)? {
                ("plain", level) if level.len() == 1 => Some(0),
                ("drawn", level) if level.len() == 1 => Some(1),
                _ => None,
            };
            let levels = frames.iter().filter_map(|frame| bit(&frame.function));
            let levels: Vec<usize> = levels.collect();
            assert_eq!(levels.len(), 6, "{}: {frames:?}", python.version);
            // The lowest bit is that of the outermost one.
            let path = levels.iter().fold(0, |path, bit| path << 1 | bit);
            let calls = number(site, "alloc_calls");
            assert_eq!(
                number(site, "alloc_bytes"),
                calls * 512 * (path as u64 + 1),
                "{frames:?}"
            );
            found[path] += calls;
        }
        let lost = number(&report["lost"], "python");
        let (listed, all): (u64, u64) = (found.iter().sum(), expected.iter().sum());
        assert!(
            found
                .iter()
                .zip(&expected)
                .all(|(found, made)| found <= made)
        );
        // Sites of which nothing is kept are not listed.
        assert!(
            listed * 100 >= all * 99,
            "{}: {listed} of {all}",
            python.version
        );
        assert_eq!(lost, 0, "{}", python.version);
    }
}
