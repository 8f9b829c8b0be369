//! Python frames of each allocation, function, file and line, compared with the interpreter's own.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;

use super::program::{Form, FramesProgram, Told};
use super::{DEPTH, LOST, LOST_CUT, LOST_UNREADABLE, allocations, python_frames};
use crate::harness::child::Guarded;
use crate::harness::report::{list, number};
use crate::harness::talk::Talk;
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

/// An interpreter's frames by gpuprobe and by the program.
struct PythonRun {
    /// Version and form, for messages.
    name: String,
    report: Rc<Report>,
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
    /// Runs `cases` with all interpreters in all forms, one after another, under one gpuprobe, which stops while
    /// they live: addresses not yet symbolised can still be unwound.
    fn all(versions: &[Python], way: Way, forms: &[Form], cases: &[&str]) -> Vec<Self> {
        let mut programs: Vec<_> = versions
            .iter()
            .flat_map(|python| forms.iter().map(move |form| (python, *form)))
            .map(|(python, form)| (python, FramesProgram::new(python, form, cases)))
            .collect();
        let script = FramesProgram::script(programs.iter().map(|(_, program)| program));
        let words = ["sh", "-c", &script];
        // The interpreters are there before anything is allocated.
        let greet = |talk: &mut Talk| -> HashMap<PathBuf, u32> {
            let pids: Vec<_> = programs.iter().map(|_| talk.ready()).collect();
            let fifos = pids.iter().map(|pid| FramesProgram::fifo_of(*pid));
            fifos.zip(pids.iter().copied()).collect()
        };
        let (mut child, mut gpuprobe, pids) = if way == Way::Started {
            let setup = Setup::command(words).env("GPUPROBE_LOG", "debug");
            let mut gpuprobe = setup.args(WHOLE).spawn();
            let pids = greet(&mut gpuprobe.talk);
            (None, gpuprobe, pids)
        } else {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).stdout(Stdio::piped());
            let mut child = Guarded::spawn(&mut command).unwrap();
            let mut talk = Talk::new(&mut child);
            let pids = greet(&mut talk);
            let gpuprobe = Setup::pids(pids.values().copied())
                .env("GPUPROBE_LOG", "debug")
                .args(WHOLE)
                .start();
            (Some((child, talk)), gpuprobe, pids)
        };
        for pid in pids.values() {
            let process = format!("process {pid} ");
            let line = ["Python frames of", &process, "are read from now on"];
            gpuprobe.stderr.line_with(&line);
        }
        let mut told = Vec::new();
        for (_, program) in &mut programs {
            program.go_on();
            let talk = child.as_mut().map_or(&mut gpuprobe.talk, |(_, talk)| talk);
            told.push(FramesProgram::told(talk));
        }
        let report = if way == Way::Started {
            programs.iter_mut().for_each(|(_, program)| program.go_on());
            gpuprobe.final_report()
        } else {
            gpuprobe.stop()
        };
        let report = Rc::new(report);
        let run = |((python, program), told): (&(&Python, FramesProgram), _)| Self {
            name: format!("{} {:?} {way:?}", python.version, program.form),
            report: report.clone(),
            pid: pids[&program.fifo_path()],
            told,
            knows_interpreters: python.minor >= 12,
        };
        programs.iter().zip(told).map(run).collect()
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

/// The mismatches of all runs under one gpuprobe.
fn problems_of(runs: &[PythonRun]) -> Vec<String> {
    let wrong = |run: &PythonRun| {
        let name = run.name.clone();
        let wrong = run.wrong().into_iter();
        wrong.map(move |(case, (count, first))| format!("{name} {case}: {count}: {first}"))
    };
    let mut problems: Vec<_> = runs.iter().flat_map(wrong).collect();
    let lacking = runs.iter().map(PythonRun::lacking);
    let (least, most) = lacking.fold((0, 0), |(least, most), lacking| {
        (least + lacking.start(), most + lacking.end())
    });
    for (what, expected) in [(LOST, least..=most), (LOST_UNREADABLE, 0..=0)] {
        let lost = runs[0].report.lost(what);
        if !expected.contains(&lost) {
            problems.push(format!("lost {lost} of {what}, not {expected:?}"));
        }
    }
    problems
}

/// Runs all cases with `versions`.
fn check(versions: &[Python], way: Way) {
    // A host-wide tracer would count the stacks that are cut, too.
    let _alone = alone();
    let runs = PythonRun::all(versions, way, &[Form::Script], &[]);
    for run in &runs {
        assert!(run.told.len() > 2000, "{}: {}", run.name, run.told.len());
        let cut = run.told.iter().filter(|told| told.is_cut()).count();
        assert!(
            cut >= 4,
            "{}: {cut} stacks of more than {DEPTH} frames",
            run.name
        );
        // Not `eprintln!`, whose output is shown for failed tests only.
        let (name, allocations) = (&run.name, run.told.len());
        let _ = writeln!(io::stderr(), "CPython {name}: {allocations} allocations");
    }
    let problems = problems_of(&runs);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(
        runs[0].report.lost(LOST_CUT) > 0,
        "cut stacks are not counted"
    );
}

#[test]
fn root_python_frames_of_commands() {
    check(&versions(), Way::Started);
}

#[test]
fn root_python_frames_after_late_attach() {
    // One way to start suffices to show differences between two builds of a version.
    let mut versions = versions();
    versions.dedup_by_key(|python| python.minor);
    check(&versions, Way::Attached);
}

/// As a module, from `-c` and from standard input.
#[test]
fn root_python_frames_for_every_way_to_start_python() {
    let forms = [Form::Module, Form::Text, Form::Input];
    let runs = PythonRun::all(&versions(), Way::Started, &forms, &["nested", "threads"]);
    for run in &runs {
        assert!(run.told.len() > 50, "{}: {}", run.name, run.told.len());
    }
    let problems = problems_of(&runs);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
