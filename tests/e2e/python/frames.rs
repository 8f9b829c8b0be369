//! Python frames of each allocation, function, file and line, compared with the interpreter's own.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use super::program::{Form, FramesProgram, Told};
use super::{DEPTH, LOST, LOST_CUT, LOST_UNREADABLE, allocations, python_frames};
use crate::harness::report::{list, number};
use crate::harness::{Report, Setup, alone};
use crate::pythons::{Python, pythons};

/// The minimum of interpreters.
const FEWEST: usize = 3;

/// Every stack is a call site of its own, with all of its frames.
const WHOLE: [&str; 3] = ["--group", "native-stack", "--full-stacks"];

/// Every installed version.
fn versions() -> Vec<Python> {
    crate::harness::require_bpf();
    let found = pythons();
    let minors: std::collections::BTreeSet<_> = found.iter().map(|python| python.minor).collect();
    assert!(
        minors.len() >= FEWEST,
        "{FEWEST} versions of CPython are needed, and there are {found:?}: \
         scripts/fetch-pythons.sh fetches some"
    );
    found
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Started,
    Attached,
}

/// The frames by gpuprobe and by the program of one run.
struct PythonRun {
    report: Report,
    pid: u32,
    told: Vec<Told>,
    /// Since 3.12, a thread's storage has its current interpreter, not its first.
    knows_interpreters: bool,
}

/// Functions that run in a subinterpreter.
const INTERPRETERS: &str = "interpreters";
/// A line table that is too large to be sent whole.
const LARGE_TABLE: &str = "larger_table_than_is_copied";

impl PythonRun {
    /// Stops while the program lives: addresses not yet symbolised can still be unwound.
    fn of(python: &Python, way: Way, form: Form, cases: &[&str]) -> Self {
        let mut program = FramesProgram::new(form);
        let knows_interpreters = python.minor >= 12;
        if way == Way::Started {
            let mut gpuprobe = Setup::command(program.words(python, cases))
                .args(WHOLE)
                .spawn();
            program.begin(&mut gpuprobe.talk);
            let pid = gpuprobe.talk.ready();
            program.go_on();
            let told = FramesProgram::told(&mut gpuprobe.talk);
            program.go_on();
            let report = gpuprobe.final_report();
            return Self {
                report,
                pid,
                told,
                knows_interpreters,
            };
        }
        let (child, mut talk) = program.spawn(python, cases);
        let pid = talk.ready();
        assert_eq!(pid, child.pid());
        let mut gpuprobe = Setup::pid(pid).args(WHOLE).start();
        program.go_on();
        let told = FramesProgram::told(&mut talk);
        let report = gpuprobe.stop();
        Self {
            report,
            pid,
            told,
            knows_interpreters,
        }
    }

    /// Bounds of the number of stacks with counted losses.
    fn lacking(&self) -> std::ops::RangeInclusive<u64> {
        let told = |case: &str| self.told.iter().filter(|told| told.case == case).count() as u64;
        let hidden = if self.knows_interpreters {
            0
        } else {
            told(INTERPRETERS)
        };
        let large = told(LARGE_TABLE);
        // Several allocations may have one stack.
        u64::from(hidden > 0) + u64::from(large > 0)..=hidden + large
    }

    /// Mismatches by case: their number, and the first of them.
    fn wrong(&self) -> BTreeMap<String, (usize, String)> {
        let process = self.report.process(self.pid);
        let sites = list(process, "sites").iter();
        let sites: HashMap<u64, _> = sites.map(|site| (number(site, "id"), site)).collect();
        let found: HashMap<u64, _> = allocations(process)
            .map(|(tid, a)| (number(a, "bytes"), (tid, a)))
            .collect();
        let mut wrong: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for told in &self.told {
            let said = match found.get(&told.size) {
                None => Err("no allocation".to_owned()),
                Some((tid, _)) if *tid != told.thread => Err(format!("thread {tid}")),
                Some((_, allocation)) => {
                    let site = sites[&number(allocation, "site")];
                    match told.case == INTERPRETERS && !self.knows_interpreters {
                        true => is_marked(site),
                        false => compare(told, site),
                    }
                }
            };
            if let Err(why) = said {
                wrong.entry(told.case.clone()).or_insert((0, why)).0 += 1;
            }
        }
        wrong
    }
}

/// Compares the site's frames with the allocation's; returns them if they differ.
fn compare(told: &Told, site: &serde_json::Value) -> Result<(), String> {
    let (mut frames, marks) = python_frames(list(site, "stack"));
    let mut expected = told.expected();
    if told.case == LARGE_TABLE {
        // A missing line is allowed, a wrong one is not.
        for (frame, expected) in frames.iter_mut().zip(&mut expected) {
            if frame.line.is_none() && expected.file == "made.py" {
                expected.line = None;
            }
        }
    }
    if let Some(at) =
        (0..frames.len().max(expected.len())).find(|&at| frames.get(at) != expected.get(at))
    {
        let [found, wanted] =
            [&frames, &expected].map(|frames| (frames.len(), frames.get(at).cloned()));
        return Err(format!(
            "frame {at} of {} is {:?}\n  and not of {} {:?}",
            found.0, found.1, wanted.0, wanted.1
        ));
    }
    if marks.is_empty() == told.is_cut() {
        return Err(format!(
            "{} frames, and marks: {marks:?}",
            told.frames.len()
        ));
    }
    if told.is_cut() && site["complete"] == true {
        return Err("cut, and said to be complete".to_owned());
    }
    Ok(())
}

/// Whether the stack has a marker for missing frames.
fn is_marked(site: &serde_json::Value) -> Result<(), String> {
    let (_, marks) = python_frames(list(site, "stack"));
    let is_said = marks == ["[unreadable Python frame]"] || marks.len() > 1;
    match is_said && site["complete"] == false {
        true => Ok(()),
        false => Err(format!("frames are missing, and marks: {marks:?}")),
    }
}

/// Runs all cases with `python`; returns the mismatches.
fn check(python: &Python, way: Way) -> Vec<String> {
    // A host-wide tracer would count the stacks that are cut, too.
    let _alone = alone();
    let run = PythonRun::of(python, way, Form::Script, &[]);
    let version = &python.version;
    assert!(run.told.len() > 2000, "{version}: {}", run.told.len());
    let cut = run.told.iter().filter(|told| told.is_cut()).count();
    assert!(
        cut >= 4,
        "{version}: {cut} stacks of more than {DEPTH} frames"
    );
    let wrong = run.wrong();
    let count: usize = wrong.values().map(|(count, _)| count).sum();
    // Not `eprintln!`, whose output is shown for failed tests only.
    let _ = writeln!(
        io::stderr(),
        "CPython {version}, {way:?}: {} allocations, {count} with wrong frames",
        run.told.len()
    );
    let mut problems: Vec<_> = wrong
        .iter()
        .map(|(case, (count, first))| format!("{version} {way:?} {case}: {count}: {first}"))
        .collect();
    for (what, expected) in [(LOST, run.lacking()), (LOST_UNREADABLE, 0..=0)] {
        let lost = run.report.lost(what);
        if !expected.contains(&lost) {
            problems.push(format!(
                "{version} {way:?}: lost {lost} of {what}, not {expected:?}"
            ));
        }
    }
    if run.report.lost(LOST_CUT) == 0 {
        problems.push(format!("{version} {way:?}: cut stacks are not counted"));
    }
    problems
}

fn check_all(way: Way) {
    let mut versions = versions();
    // One way to start suffices to show differences between two builds of a version.
    if way == Way::Attached {
        versions.dedup_by_key(|python| python.minor);
    }
    let problems: Vec<_> = versions.iter().flat_map(|p| check(p, way)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn root_python_frames_of_commands() {
    check_all(Way::Started);
}

#[test]
fn root_python_frames_after_late_attach() {
    check_all(Way::Attached);
}

/// As a module, from `-c` and from standard input.
#[test]
fn root_python_frames_for_every_way_to_start_python() {
    let mut problems = Vec::new();
    for python in versions() {
        for form in [Form::Module, Form::Text, Form::Input] {
            let run = PythonRun::of(&python, Way::Started, form, &["nested", "threads"]);
            assert!(run.told.len() > 50, "{}", run.told.len());
            for (case, (count, first)) in run.wrong() {
                let version = &python.version;
                problems.push(format!("{version} {form:?} {case}: {count}: {first}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
