//! Verdicts on a program with several allocation patterns, each at its own call site: only the
//! leaking sites are reported as leaks.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::gpuprobe::BINARY;
use crate::harness::report::list;
use crate::harness::{Backend, Workload, standin};

/// Run time of the program in seconds, and the trace duration if it goes on.
const RUNS_S: u32 = 72;
const WATCHED: &str = "67s";

const LEAKS: [&str; 5] = [
    "leak_by_request",
    "leak_in_sawtooth",
    "leak_linear",
    "leak_one_in_a_hundred",
    "leak_under_load",
];

fn planted(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs/explain/planted.c");
    let runtime = PathBuf::from(standin().runtime());
    let made = folder.join("planted");
    let compiled = Command::new("cc")
        .args(["-O0", "-g", "-fno-omit-frame-pointer", "-o"])
        .args([&made, &source, &runtime])
        .arg(format!(
            "-Wl,-rpath,{}",
            runtime.parent().unwrap().display()
        ))
        .args(["-Wl,--no-as-needed", "-ldl"])
        .output()
        .expect("cc can be run");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
    made
}

/// A running program, killed on drop.
struct ExplainedProgram(Child);

impl Drop for ExplainedProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl ExplainedProgram {
    /// Starts the program and waits until it has loaded CUDA.
    fn start(program: &Path) -> Self {
        let mut child = Command::new(program)
            .arg(RUNS_S.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready "), "{line}");
        Self(child)
    }
}

fn gpuprobe(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

/// The verdict on each function of the program, and whether it is a leak.
fn verdicts(report: &Value) -> BTreeMap<String, (String, bool)> {
    let mut found = BTreeMap::new();
    for one in list(&report["explain"], "verdicts") {
        let Some(place) = one.get("where").and_then(Value::as_str) else {
            continue;
        };
        let function = place.split([' ', '(']).next().unwrap();
        let function = function.rsplit(':').next().unwrap().to_owned();
        let verdict = one["verdict"].as_str().unwrap().to_owned();
        let confidence = one["confidence"].as_str().unwrap();
        let is_sure = !confidence.starts_with("not enough data");
        let is_leak = verdict.starts_with("growing") && is_sure;
        found.insert(place.to_owned() + "/" + &function, (verdict, is_leak));
    }
    found
}

/// Asserts that the leaks are reported with a rate and evidence, and nothing else is.
fn assert_named(report: &Value) {
    let found = verdicts(report);
    let named: Vec<_> = found
        .iter()
        .filter(|(_, (_, is_leak))| *is_leak)
        .map(|(place, _)| place)
        .collect();
    for leak in LEAKS {
        let is_named = named.iter().any(|place| place.contains(leak));
        assert!(is_named, "{leak} is not among {named:?} of {found:#?}");
    }
    let others = named.iter().filter(|place| !place.contains("leak_"));
    assert_eq!(others.count(), 0, "{found:#?}");
    for one in list(&report["explain"], "verdicts") {
        if one["where"]
            .as_str()
            .is_some_and(|place| place.contains("leak_linear"))
        {
            // Five blocks of 64 KiB a second.
            let rate = one["bytes_per_second"].as_f64().unwrap();
            assert!((rate / (5.0 * 65536.0) - 1.0).abs() < 0.2, "{one}");
            assert!(
                !list(one, "evidence").is_empty() && !one["advice"].as_str().unwrap().is_empty()
            );
        }
    }
}

fn report_of(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().last().unwrap_or_else(|| panic!("{said}"));
    serde_json::from_str(line).unwrap()
}

fn a_running_program_is_explained() {
    let folder = TempDir::new().unwrap();
    let program = planted(folder.path());
    let running = ExplainedProgram::start(&program);
    let pid = running.0.id().to_string();
    let live = ["explain", "--pid", &pid, "--duration", WATCHED];
    let output = gpuprobe(&[&live[..], &["--format", "json", "--fail-on", "growing"]].concat());
    assert_eq!(output.status.code(), Some(100), "{output:?}");
    assert_named(&report_of(&output));
}

fn a_command_is_explained_and_so_is_its_recording() {
    let folder = TempDir::new().unwrap();
    let program = planted(folder.path());
    let file = folder.path().join("run.sqlite");
    let (program, file) = (program.to_str().unwrap(), file.to_str().unwrap());
    let seconds = RUNS_S.to_string();
    let recorded = gpuprobe(&["record", "-o", file, "--", program, &seconds]);
    assert_eq!(recorded.status.code(), Some(0), "{recorded:?}");
    let json = gpuprobe(&["explain", file, "--format", "json"]);
    assert_eq!(json.status.code(), Some(0), "{json:?}");
    assert_named(&report_of(&json));
    let text = gpuprobe(&["explain", file, "--fail-on", "growing"]);
    assert_eq!(text.status.code(), Some(100), "{text:?}");
    let text = String::from_utf8(text.stdout).unwrap();
    let leaks: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("LEAK"))
        .collect();
    assert_eq!(leaks.len(), LEAKS.len(), "{text}");
    assert!(text.contains("no sign of levelling off"), "{text}");
}

/// A growth verdict takes a minute, so the cases run concurrently.
#[test]
fn root_explain_names_the_leaks_and_nothing_else() {
    std::thread::scope(|scope| {
        let all: [fn(); 8] = [
            a_running_program_is_explained,
            a_command_is_explained_and_so_is_its_recording,
            tensors_that_are_kept_are_named_and_the_segments_are_not,
            handles_of_each_cycle_are_named,
            what_stays_of_each_step_is_told,
            contexts_left_behind_are_named_and_destroyed_ones_are_not,
            contexts_of_a_command_are_named,
            recorded_contexts_have_the_verdict_of_a_live_run,
        ];
        let running = all.map(|one| scope.spawn(one));
        // The panic message has been printed by then.
        let failed = running.map(|one| one.join().is_err());
        assert_eq!(failed, [false; 8]);
    });
}

#[test]
fn root_explain_reports_no_leak_of_a_clean_program() {
    let folder = TempDir::new().unwrap();
    let program = planted(folder.path());
    let answer = folder.path().join("explain.json");
    let (program, answer) = (program.to_str().unwrap(), answer.to_str().unwrap());
    // Too short for a verdict: no leak is reported.
    let arguments = [
        "explain",
        "--format",
        "json",
        "--fail-on",
        "growing",
        "-o",
        answer,
    ];
    let output = gpuprobe(&[&arguments[..], &["--", program, "8"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = std::fs::read_to_string(answer).unwrap();
    let report: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let found = verdicts(&report);
    assert!(found.values().all(|(_, is_leak)| !is_leak), "{found:#?}");
    assert!(
        found.keys().any(|place| place.contains("workspace_once")),
        "{found:#?}"
    );
}

/// The verdicts of `gpuprobe explain` on a workload that runs numbered rounds until it exits.
fn explained(mut workload: Workload, every: Duration, round: impl Fn(u32) -> String) -> Value {
    let pid = workload.pid.to_string();
    // Some memory is allocated before tracing starts.
    workload.play(&round(0));
    let mut explain = ExplainedProgram(
        Command::new(BINARY)
            .args(["explain", "--format", "json", "--pid", &pid])
            .args(["--duration", WATCHED])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    // Read meanwhile: the report may be larger than a pipe holds.
    let mut out = explain.0.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        text
    });
    for number in 1.. {
        if explain.0.try_wait().unwrap().is_some() {
            break;
        }
        workload.play(&round(number));
        std::thread::sleep(every);
    }
    let text = reader.join().unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// The certain growth verdicts, each with whether it is on tensors.
fn growing(report: &Value) -> Vec<(&Value, bool)> {
    let all = list(&report["explain"], "verdicts").iter();
    let sure = all.filter(|one| {
        let confidence = one["confidence"].as_str().unwrap();
        let verdict = one["verdict"].as_str().unwrap();
        verdict.starts_with("growing") && !confidence.starts_with("not enough data")
    });
    sure.map(|one| (one, !one["tensors_of_device"].is_null()))
        .collect()
}

fn tensors_that_are_kept_are_named_and_the_segments_are_not() {
    let workload = Workload::spawn(&mut Command::new(standin().path("torchlike")));
    let script = "tleak loader 1 700000; tmalloc temporary 3000000 2; tfree temporary 2";
    let report = explained(workload, Duration::from_millis(250), |_| script.to_owned());
    let found = growing(&report);
    assert_eq!(found.len(), 1, "{found:#?}");
    let (leak, is_of_tensors) = found[0];
    let place = leak["where"].as_str().unwrap();
    assert!(is_of_tensors && place.contains("torchlike.c"), "{leak}");
    assert!(leak["allocations"].as_u64().unwrap() > 100, "{leak}");
    let evidence = leak["evidence"].to_string();
    assert!(evidence.contains("none freed"), "{leak}");
}

fn handles_of_each_cycle_are_named() {
    let workload = Workload::start(Backend::Shared);
    let report = explained(workload, Duration::from_millis(1500), |number| {
        let of_cycle = 13 * number..13 * (number + 1);
        let released = of_cycle.skip(2).map(|slot| format!("; vrelease {slot}"));
        format!("vcreate 2097152 13{}", released.collect::<String>())
    });
    let found = growing(&report);
    assert_eq!(found.len(), 1, "{found:#?}");
    let leak = found[0].0;
    assert_eq!(leak["verdict"], "growing per cycle", "{leak}");
    let evidence = leak["evidence"].to_string();
    assert!(evidence.contains("VMM handles more after"), "{leak}");
    let each = [1.9, 2.0, 2.1].map(|each| format!("cycles, {each:.1} each"));
    assert!(each.iter().any(|each| evidence.contains(each)), "{leak}");
}

/// Whether the evidence of a verdict has this.
fn says(found: &Value, part: &str) -> bool {
    found["evidence"].to_string().contains(part)
}

fn what_stays_of_each_step_is_told() {
    let every = Duration::from_millis(150);
    let (step, unrelated) = std::thread::scope(|scope| {
        let of = |round: fn(u32) -> String| {
            scope.spawn(move || explained(Workload::start(Backend::Shared), every, round))
        };
        let step = of(|number| match number {
            0 => "module add".to_owned(),
            _ => "launch add 3; alloc 10000".to_owned(),
        });
        // The same leak, with launches every other six seconds.
        let unrelated = of(|number| match (number, (number / 40) % 2) {
            (0, _) => "module add".to_owned(),
            (_, 0) => "launch add 3; alloc 10000".to_owned(),
            _ => "alloc 10000".to_owned(),
        });
        (step.join().unwrap(), unrelated.join().unwrap())
    });
    let leaks = growing(&step);
    assert_eq!(leaks.len(), 1, "{leaks:#?}");
    assert!(
        says(leaks[0].0, "1 stays per 3 launches of add"),
        "{leaks:#?}"
    );
    let leaks = growing(&unrelated);
    assert_eq!(leaks.len(), 1, "{leaks:#?}");
    assert!(!says(leaks[0].0, "launches of"), "{leaks:#?}");
}

/// The verdicts of this name on a process.
fn named<'a>(report: &'a Value, verdict: &str) -> Vec<&'a Value> {
    let all = list(&report["explain"], "verdicts").iter();
    all.filter(|one| one["verdict"] == verdict).collect()
}

fn contexts_left_behind_are_named_and_destroyed_ones_are_not() {
    let every = Duration::from_millis(1500);
    let (leaky, clean) = std::thread::scope(|scope| {
        let of = |round: fn(u32) -> String| {
            scope.spawn(move || explained(Workload::start(Backend::Driver), every, round))
        };
        let leaky = of(|_| "ctx create; ctx pop".to_owned());
        let clean = of(|number| format!("ctx create; ctx pop; ctx destroy {number}"));
        (leaky.join().unwrap(), clean.join().unwrap())
    });
    assert_left_behind(&leaky);
    assert!(named(&clean, "contexts left behind").is_empty(), "{clean}");
}

/// A context every 1.5 s is named, for what it is.
fn assert_left_behind(report: &Value) {
    let found = named(report, "contexts left behind");
    assert_eq!(found.len(), 1, "{report}");
    let leak = found[0];
    assert_eq!(leak["confidence"], "likely", "{leak}");
    assert!(leak["allocations"].as_u64().unwrap() > 30, "{leak}");
    let evidence = leak["evidence"].to_string();
    assert!(evidence.contains("0 others destroyed"), "{leak}");
}

/// A program that makes 42 contexts in 63 s.
fn making_contexts() -> String {
    "ctx create; ctx pop; sleep 1.5; ".repeat(42) + "exit"
}

fn contexts_of_a_command_are_named() {
    let script = making_contexts();
    let program = standin().program_text(Backend::Driver);
    let folder = TempDir::new().unwrap();
    let answer = folder.path().join("explain.json");
    let output = Command::new(BINARY)
        .args(["explain", "--format", "json", "--fail-on", "growing", "-o"])
        .arg(&answer)
        .arg("--")
        .args(program.split(' '))
        .args(["-c", &script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(100), "{output:?}");
    let text = std::fs::read_to_string(answer).unwrap();
    assert_left_behind(&serde_json::from_str(text.lines().last().unwrap()).unwrap());
}

fn recorded_contexts_have_the_verdict_of_a_live_run() {
    let destroying = |number| format!("ctx create; ctx pop; sleep 1.5; ctx destroy {number}; ");
    let destroying = (0..42).map(destroying).collect::<String>() + "exit";
    let (leaky, clean) = std::thread::scope(|scope| {
        let of = |script: String| scope.spawn(move || explained_recording(&script));
        let (leaky, clean) = (of(making_contexts()), of(destroying));
        (leaky.join().unwrap(), clean.join().unwrap())
    });
    assert_left_behind(&leaky);
    assert!(named(&clean, "contexts left behind").is_empty(), "{clean}");
    assert!(named(&clean, "context").is_empty(), "{clean}");
}

/// The answer of `gpuprobe explain FILE` on the recording of a program that plays `script`; ends with
/// status 100 if it has a leak.
fn explained_recording(script: &str) -> Value {
    let program = standin().program_text(Backend::Driver);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("run.sqlite");
    let file = file.to_str().unwrap();
    let mut words = vec!["record", "-o", file, "--"];
    words.extend(program.split(' '));
    words.extend(["-c", script]);
    let recorded = gpuprobe(&words);
    assert_eq!(recorded.status.code(), Some(0), "{recorded:?}");
    let json = ["--format", "json", "--fail-on", "growing"];
    let answer = gpuprobe(&[&["explain", file], &json[..]].concat());
    let report = report_of(&answer);
    let has_leak = !named(&report, "contexts left behind").is_empty();
    let expected = if has_leak { 100 } else { 0 };
    assert_eq!(answer.status.code(), Some(expected), "{answer:?}");
    report
}

/// What is said at once of a program that has played this under `gpuprobe explain`, in JSON and as text.
fn said_of(program: &str, script: &str) -> (Value, String) {
    let run = |format: &str| {
        let folder = TempDir::new().unwrap();
        let answer = folder.path().join("answer");
        let output = Command::new(BINARY)
            .args(["explain", "--format", format, "-o"])
            .arg(&answer)
            .arg("--")
            .args(program.split(' '))
            .args(["-c", script])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        std::fs::read_to_string(answer).unwrap()
    };
    let json = run("json");
    let report = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    (report, run("text"))
}

#[test]
fn root_shared_memory_names_who_exported_it() {
    let mut exporter = Workload::start(Backend::Shared);
    let mut importer = Workload::start(Backend::Driver);
    let pids = [exporter.pid, importer.pid].map(|pid| pid.to_string());
    let explain = |format: &str| {
        let child = Command::new(BINARY)
            .args(["explain", "--format", format, "--duration", "8s"])
            .args(["--pid", &pids[0], "--pid", &pids[1]])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        ExplainedProgram(child.unwrap())
    };
    let mut both = [explain("json"), explain("text")];
    // Some is allocated, exported and opened before gpuprobe is there: of that the exporter is not known.
    for number in 0.. {
        if both[0].0.try_wait().unwrap().is_some() {
            break;
        }
        exporter.say("alloc 10000");
        let handle = exporter.say(&format!("ipcget {number}"));
        importer.say(&format!("ipcopen {handle}"));
        std::thread::sleep(Duration::from_millis(100));
    }
    let answers = both.each_mut().map(|one| {
        let mut text = String::new();
        let out = one.0.stdout.as_mut().unwrap();
        out.read_to_string(&mut text).unwrap();
        text
    });
    let report: Value = serde_json::from_str(answers[0].lines().last().unwrap()).unwrap();
    let found = named(&report, "shared");
    assert_eq!(found.len(), 1, "{report}");
    let program = standin().program(Backend::Shared);
    let program = program.file_name().unwrap().to_str().unwrap();
    let exported = format!("exported by PID {} {program}", exporter.pid);
    assert!(
        found[0]["evidence"].to_string().contains(&exported),
        "{report}"
    );
    assert_eq!(found[0]["pid"], importer.pid, "{report}");
    assert!(answers[1].contains(&exported), "{}", answers[1]);
}

#[test]
fn root_a_small_block_that_pins_a_segment_is_named() {
    let program = standin().path("torchlike").display().to_string();
    let script = "tmalloc large 64000000; tfree large; tmalloc pinning 1500000; exit";
    let (report, text) = said_of(&program, script);
    let found = named(&report, "fragmentation");
    assert_eq!(found.len(), 1, "{report}");
    let one = found[0];
    assert_eq!(one["allocations"], 1, "{one}");
    assert!(one["bytes"].as_u64().unwrap() >= 64_000_000, "{one}");
    let evidence = one["evidence"].to_string();
    assert!(evidence.contains("1 tensor pin"), "{one}");
    assert!(text.contains("1 tensor pin"), "{text}");
}
