//! `gpuprobe explain` on a live run, too short for a verdict on growth: `crates/engine/src/verdict/tests` has that, and
//! `tests/recordings/explain.rs`.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::child::Guarded;
use crate::harness::gpuprobe::BINARY;
use crate::harness::report::list;
use crate::harness::{Backend, require_bpf, standin, wait_within};

/// The answer of `gpuprobe explain` about a command that plays `script`, where `@` is a workload.
fn explained(script: &str) -> Value {
    require_bpf();
    let folder = TempDir::new().unwrap();
    let answer = folder.path().join("answer");
    let script = script.replace('@', &standin().program_text(Backend::Shared));
    let output = Command::new(BINARY)
        .args(["explain", "--format", "json", "--fail-on", "growing", "-o"])
        .arg(&answer)
        .args(["--", "sh", "-c", &script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = fs::read_to_string(answer).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn verdicts(report: &Value) -> impl Iterator<Item = &Value> {
    list(&report["explain"], "verdicts").iter()
}

#[test]
fn root_a_command_is_explained_and_nothing_is_a_leak_at_once() {
    let torchlike = standin().path("torchlike");
    let torchlike = torchlike.display();
    let report = explained(&format!(
        "{torchlike} -c 'tmalloc large 64000000; tfree large; tmalloc pinning 1500000; exit'; \
         @ -c 'alloc 2097152 4; exit'"
    ));
    let pins: Vec<_> = verdicts(&report)
        .filter(|one| one["verdict"] == "fragmentation")
        .collect();
    let [one] = pins[..] else {
        panic!("{report}");
    };
    assert_eq!(one["allocations"], 1, "{one}");
    assert!(one["bytes"].as_u64().unwrap() >= 64_000_000, "{one}");
    let evidence = one["evidence"].to_string();
    assert!(evidence.contains("1 tensor pin"), "{one}");
    assert!(verdicts(&report).all(|one| one["grade"] != "LEAK"));
    let mut contexts = verdicts(&report).filter(|one| one["verdict"] == "context");
    let primary = "primary context of GPU 0 made at workload";
    assert!(
        contexts.any(|one| one["evidence"].to_string().contains(primary)),
        "{report}"
    );
    let is_held = |one: &Value| one["bytes"] == 4 << 21 && one["allocations"] == 4;
    assert!(verdicts(&report).any(is_held), "{report}");
}

#[test]
fn root_a_leak_in_each_step_is_the_answer_soon() {
    require_bpf();
    let folder = TempDir::new().unwrap();
    let answer = folder.path().join("answer");
    // It loads CUDA before it is watched, and outlives that.
    let steps = format!("alloc 65536; {}", "sleep 0.1; alloc 1048576; ".repeat(600));
    let program = standin().program(Backend::Shared);
    let mut program = Command::new(program)
        .args(["-c", &steps])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let explain = ["explain", "--format", "json", "--fail-on", "leak", "--pid"];
    let output = Command::new(BINARY)
        .args(explain)
        .arg(program.id().to_string())
        .arg("-o")
        .arg(&answer)
        .output()
        .unwrap();
    program.kill().unwrap();
    program.wait().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(100), "{said}");
    assert!(
        said.contains("watching for 1") && said.contains("s, Ctrl-C for the verdict so far: "),
        "{said}"
    );
    // On a machine that has no time, few looks may have nothing to say yet.
    assert!(said.contains("grows so far"), "{said}");
    assert!(said.contains("(native, still running: growing)"), "{said}");
    let text = fs::read_to_string(answer).unwrap();
    let report: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(
        verdicts(&report).next().unwrap()["grade"],
        "LEAK",
        "{report}"
    );
    assert_eq!(report["gate"]["failed"], true, "{report}");
    let watched = report["explain"]["watched_seconds"].as_f64().unwrap();
    // Fifteen on a machine that has time.
    assert!((12.0..20.0).contains(&watched), "{watched} s");
}

/// The command of a program of `programs/verdicts.py`, which runs for longer than growth in step needs to be a leak.
fn python(name: &str) -> [String; 6] {
    let python = crate::pythons::pythons().pop().unwrap().program;
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/e2e/programs/verdicts.py"
    );
    let libraries = standin().path("");
    let [python, libraries] = [python, libraries].map(|path| path.to_str().unwrap().to_owned());
    let [dont_write, path, name, seconds] = ["-B", path, name, "18"].map(str::to_owned);
    [python, dont_write, path, libraries, name, seconds]
}

#[test]
fn root_growth_until_python_frees_it_as_it_ends_is_a_leak() {
    require_bpf();
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let explain = |name: &str| {
        let mut command = Command::new(BINARY);
        let options = ["explain", "--fail-on", "leak", "-o", &file(name), "--"];
        let command = command.args(options).args(python(name));
        let output = command.stdout(Stdio::null()).stderr(Stdio::null());
        Guarded::spawn(output).unwrap()
    };
    let programs = [
        ("each_step_freed", 100),
        ("lru_freed", 0),
        ("warm_up_freed", 0),
    ];
    let explained = programs.map(|(name, status)| (name, status, explain(name)));
    let recording = file("run.sqlite");
    let run = Command::new(BINARY)
        .args(["--memleak", "--fail-on", "leak", "--record", &recording])
        .args(["-o", &file("report"), "--"])
        .args(python("each_step_freed"))
        .output()
        .unwrap();
    let place = format!(
        "verdicts.py:{} ",
        String::from_utf8(run.stdout).unwrap().trim()
    );
    let said = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(100), "{said}");
    assert!(
        said.contains(&place) && said.contains("(Python: growing)"),
        "{said}"
    );
    let again = Command::new(BINARY)
        .args(["explain", &recording, "--fail-on", "leak"])
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(100), "{again:?}");
    let mut answers = vec![String::from_utf8(again.stdout).unwrap()];
    for (name, status, mut tracer) in explained {
        let end = || tracer.streams().try_wait().unwrap();
        let code = wait_within(Duration::from_secs(60), name, end).code();
        let answer = fs::read_to_string(file(name)).unwrap();
        assert_eq!(code, Some(status), "{name}: {answer}");
        match status {
            0 => assert!(!answer.contains("LEAK"), "{name}: {answer}"),
            _ => answers.push(answer),
        }
    }
    for answer in answers {
        let leak = answer.lines().find(|line| line.starts_with("LEAK"));
        assert!(leak.unwrap().contains(&place), "{answer}");
        for part in [
            "were still alive",
            "freed as the program ended",
            "0 B never freed",
        ] {
            assert!(answer.contains(part), "{part}: {answer}");
        }
    }
}
