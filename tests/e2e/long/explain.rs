//! Verdicts of `gpuprobe explain` on live programs, after the minute that growth takes to be certain.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::child::Guarded;
use crate::harness::gpuprobe::BINARY;
use crate::harness::report::list;
use crate::harness::{Backend, Workload, standin};

/// Duration of the trace.
const WATCHED: &str = "67s";

/// Functions of `planted.c`.
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

/// Starts a workload that runs numbered rounds until `is_over`. The first is over when this returns.
fn rounds(
    name: &'static str,
    start: impl FnOnce() -> Workload + Send + 'static,
    every_ms: u64,
    is_over: &'static AtomicBool,
    round: impl Fn(u32) -> String + Send + 'static,
) -> (&'static str, u32) {
    let (sender, begun) = mpsc::channel();
    thread::spawn(move || {
        let mut workload = start();
        // Some memory is allocated before tracing starts.
        workload.play(&round(0));
        sender.send(workload.pid).unwrap();
        for number in 1.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            workload.play(&round(number));
            thread::sleep(Duration::from_millis(every_ms));
        }
    });
    (name, begun.recv().unwrap())
}

/// The certain growth of a process.
fn leaks(report: &Value, pid: u32) -> Vec<&Value> {
    let all = list(&report["explain"], "verdicts").iter();
    all.filter(|one| one["pid"] == pid && one["grade"] == "LEAK")
        .collect()
}

/// Whether the evidence of a verdict has this.
fn says(found: &Value, part: &str) -> bool {
    found["evidence"].to_string().contains(part)
}

/// The leaks of `planted.c` are reported with a rate and evidence, and nothing else is.
fn assert_planted(found: &[&Value]) {
    let place = |one: &Value| one["where"].as_str().unwrap().to_owned();
    for leak in LEAKS {
        let is_named = found.iter().any(|one| place(one).contains(leak));
        assert!(is_named, "{leak} is not in {found:#?}");
    }
    assert_eq!(found.len(), LEAKS.len(), "{found:#?}");
    let linear = found.iter().find(|one| place(one).contains("leak_linear"));
    let linear = linear.unwrap();
    // Five blocks of 64 KiB a second.
    let rate = linear["bytes_per_second"].as_f64().unwrap();
    assert!((rate / (5.0 * 65536.0) - 1.0).abs() < 0.2, "{linear}");
    assert!(!list(linear, "evidence").is_empty(), "{linear}");
    assert!(!linear["advice"].as_str().unwrap().is_empty(), "{linear}");
}

#[test]
fn root_explain_names_the_leaks_of_each_process_and_nothing_else() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(planted(folder.path()));
    let planted = Guarded::spawn(command.arg("100").stdout(Stdio::null())).unwrap();
    let torch = || Workload::spawn(&mut Command::new(standin().path("torchlike")));
    let (shared, driver) = (Backend::Shared, Backend::Driver);
    let [shared, driver] = [shared, driver].map(|backend| move || Workload::start(backend));
    let pids: BTreeMap<_, _> = [
        ("planted", planted.pid()),
        rounds("tensors", torch, 250, &IS_OVER, |_| {
            "tleak loader 1 700000; tmalloc temporary 3000000 2; tfree temporary 2".to_owned()
        }),
        rounds("handles", shared, 1500, &IS_OVER, |number| {
            let of_cycle = 13 * number..13 * (number + 1);
            let released = of_cycle.skip(2).map(|slot| format!("; vrelease {slot}"));
            format!("vcreate 2097152 13{}", released.collect::<String>())
        }),
        rounds("contexts", driver, 1500, &IS_OVER, |_| {
            "ctx create; ctx pop".to_owned()
        }),
        rounds("destroyed", driver, 1500, &IS_OVER, |number| {
            format!("ctx create; ctx pop; ctx destroy {number}")
        }),
    ]
    .into();
    let all: Vec<_> = pids.values().map(u32::to_string).collect();
    let answer = folder.path().join("answer");
    let output = Command::new(BINARY)
        .args(["explain", "--format", "json", "--fail-on-leak", "-o"])
        .arg(&answer)
        .args(["--duration", WATCHED, "--pid", &all.join(",")])
        .output()
        .unwrap();
    IS_OVER.store(true, Ordering::Relaxed);
    assert_eq!(output.status.code(), Some(100), "{output:?}");
    let text = fs::read_to_string(answer).unwrap();
    let report: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let only = |name: &str| {
        let [one] = leaks(&report, pids[name])[..] else {
            panic!("{name}: {report}");
        };
        one
    };
    assert_planted(&leaks(&report, pids["planted"]));
    // Not the segments.
    let tensors = only("tensors");
    assert!(!tensors["tensors_of_device"].is_null(), "{tensors}");
    let place = tensors["where"].as_str().unwrap();
    assert!(place.contains("torchlike.c"), "{tensors}");
    assert!(tensors["allocations"].as_u64().unwrap() > 100, "{tensors}");
    assert!(says(tensors, "none freed"), "{tensors}");
    let handles = only("handles");
    assert_eq!(handles["verdict"], "growing per cycle", "{handles}");
    assert!(says(handles, "VMM handles more after"), "{handles}");
    let each = [1.9, 2.0, 2.1].map(|each| format!("cycles, {each:.1} each"));
    assert!(each.iter().any(|each| says(handles, each)), "{handles}");
    let contexts = only("contexts");
    assert_eq!(contexts["verdict"], "contexts left behind", "{contexts}");
    assert_eq!(contexts["confidence"], "likely", "{contexts}");
    assert!(contexts["allocations"].as_u64().unwrap() > 30, "{contexts}");
    assert!(says(contexts, "0 others destroyed"), "{contexts}");
    let destroyed = leaks(&report, pids["destroyed"]);
    assert!(destroyed.is_empty(), "{destroyed:#?}");
}
