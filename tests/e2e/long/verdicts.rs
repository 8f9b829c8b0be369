//! Verdicts on programs that leak in one line or not at all (`programs/verdicts.py`), by `explain` and by the gate: each
//! explained by a gpuprobe of its own, all at once.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::child::Guarded;
use crate::harness::gpuprobe::BINARY;
use crate::harness::report::list;
use crate::harness::{standin, wait_within};

const CLEAN: [&str; 13] = [
    "batches",
    "lru",
    "lru_freed",
    "pinned_cache",
    "plan_cache",
    "arena",
    "async_pool",
    "refused",
    "threads",
    "record_stream",
    "warm_up",
    "warm_up_freed",
    "one_off",
];
/// Their gpuprobe comes late, and ends as soon as it has its answer.
const IN_STEP: [&str; 3] = ["each_step", "beside_cache", "pinned"];
/// Their gpuprobe starts them, and judges them by their whole life.
const PLANTED: [&str; 10] = [
    "each_step_freed",
    "slow",
    "streams",
    "events",
    "executables",
    "graphs",
    "modules",
    "libraries",
    "contexts",
    "plans",
];
/// Longer than any growth needs to be a leak.
const SECONDS: &str = "75";
const DEADLINE: Duration = Duration::from_secs(180);

/// A program and its gpuprobe.
struct Run {
    name: &'static str,
    /// The line that leaks; 0 if none does.
    line: u32,
    answer: PathBuf,
    tracer: Guarded,
    /// The program, if gpuprobe has not started it.
    _program: Option<Guarded>,
}

/// Starts a command, the program or what starts it, and hears which line of the program leaks.
fn spawn(command: &mut Command) -> (Guarded, u32) {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Guarded::spawn(command).unwrap();
    let mut line = String::new();
    let output = child.streams().stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    (child, line.trim().parse().unwrap())
}

fn start(folder: &TempDir, name: &'static str, is_late: bool) -> Run {
    let python = crate::pythons::pythons().pop().unwrap();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/e2e/programs/verdicts.py"
    );
    let words = [python.program.to_str().unwrap(), "-B", path];
    let libraries = standin().path("");
    let command = [&words[..], &[libraries.to_str().unwrap(), name, SECONDS]].concat();
    let answer = folder.path().join(name);
    let mut explain = Command::new(BINARY);
    explain
        .args(["explain", "--format", "json", "--fail-on", "leak", "-o"])
        .arg(&answer);
    let (tracer, line, program) = if is_late {
        let (program, line) = spawn(Command::new(command[0]).args(&command[1..]));
        explain.args(["--pid", &program.pid().to_string()]);
        let tracer = Guarded::spawn(explain.stderr(Stdio::null()));
        (tracer.unwrap(), line, Some(program))
    } else {
        let (tracer, line) = spawn(explain.arg("--").args(command));
        (tracer, line, None)
    };
    Run {
        name,
        line,
        answer,
        tracer,
        _program: program,
    }
}

/// Where something leaks by the verdicts, and by the gate.
fn leaks<'a>(report: &'a Value) -> [Vec<&'a str>; 2] {
    let verdicts = list(&report["explain"], "verdicts").iter();
    let verdicts = verdicts.filter(|one| one["grade"] == "LEAK");
    let gate = list(&report["gate"], "leaks").iter();
    let places = |one: &'a Value| one["where"].as_str().unwrap();
    [verdicts.map(places).collect(), gate.map(places).collect()]
}

/// Checks the answers; prints a row for each program, with the time until its answer.
#[allow(clippy::print_stdout, reason = "the table, to be looked at")]
fn check(runs: Vec<Run>) {
    let mut wrong = Vec::new();
    for mut run in runs {
        let end = || run.tracer.streams().try_wait().unwrap();
        let status = wait_within(DEADLINE, run.name, end).code();
        let text = fs::read_to_string(&run.answer).unwrap();
        let report: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let place = format!("verdicts.py:{} ", run.line);
        let is_right = |places: &[&str]| match run.line {
            0 => places.is_empty(),
            _ => !places.is_empty() && places.iter().all(|one| one.contains(&place)),
        };
        let found = leaks(&report);
        let seconds = report["explain"]["watched_seconds"].as_f64().unwrap();
        let (name, rules) = (run.name, &report["gate"]["rules"]);
        let row = format!("{name:14} {seconds:5.1} s  status {status:?} {rules}  {found:?}");
        println!("{row}");
        let expected = if run.line == 0 { 0 } else { 100 };
        if status != Some(expected)
            || !found.iter().all(|places| is_right(places))
            || rules[0] != "Python: growing"
        {
            wrong.push(row);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn root_clean_programs_have_no_leaks() {
    let folder = TempDir::new().unwrap();
    check(CLEAN.map(|name| start(&folder, name, false)).into());
}

#[test]
fn root_planted_leaks_are_found_at_their_line() {
    let folder = TempDir::new().unwrap();
    let late = IN_STEP.map(|name| start(&folder, name, true));
    let started = PLANTED.map(|name| start(&folder, name, false));
    check(late.into_iter().chain(started).collect());
}
