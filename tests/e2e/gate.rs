//! `--fail-on-leak`: memory that was never freed fails the run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::harness::gpuprobe::{BINARY, NOTHING};
use crate::harness::{Backend, Setup, standin};
use crate::owners::OwnerProgram;

/// Exit status of a run with leaks.
const LEAKED: i32 = 100;

fn workload() -> String {
    standin().program_text(Backend::Shared)
}

/// A run of the workload with `commands`.
fn run(script: &str) -> Setup {
    Setup::command([&*workload(), "-c", script])
}

/// Exit status of a run with these further options, and the messages about leaks.
fn ending(setup: Setup, arguments: &[&str]) -> (i32, Vec<String>) {
    let arguments = ["--fail-on-leak"].iter().chain(arguments);
    let mut gpuprobe = setup.args(arguments.copied()).spawn();
    gpuprobe.talk.close();
    let status = gpuprobe.exit_code();
    let lines = gpuprobe.said().into_iter();
    let lines = lines.filter_map(|line| line.strip_prefix("gpuprobe: ").map(str::to_owned));
    let lines = lines.skip_while(|line| !line.starts_with("leaked: "));
    (status, lines.collect())
}

struct GateFolder(TempDir);

impl GateFolder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn root_leaks_have_a_distinct_exit_status() {
    let (status, said) = ending(run("alloc 4096 3; exit"), &[]);
    assert_eq!(status, LEAKED, "{said:#?}");
    assert_eq!(said[0], "leaked: 12.00 KiB in 3 allocations at 1 call site");
    assert!(
        said[1].starts_with("  12.00 KiB in 3 allocations  "),
        "{said:#?}"
    );
    assert!(said[1].contains("(workload, workload "), "{said:#?}");
    let freed = ending(run("alloc 4096; free 0; exit"), &[]);
    assert_eq!(freed, (0, vec!["leaked: nothing".to_owned()]));
}

#[test]
fn root_failure_of_the_command_overrides_the_leak_status() {
    let (status, said) = ending(run("alloc 4096; exit 7"), &[]);
    assert_eq!((status, said.len()), (7, 2), "{said:#?}");
    let (status, said) = ending(Setup::command(["true"]), &[]);
    assert_eq!((status, said.len()), (NOTHING, 1), "{said:#?}");
}

#[test]
fn root_leaks_below_the_limit_are_tolerated() {
    for (size, expected) in [("12KiB", 0), ("12287", LEAKED)] {
        let tolerated = format!("--fail-on-leak={size}");
        let mut gpuprobe = run("alloc 4096 3; exit").args([tolerated]).spawn();
        assert_eq!(gpuprobe.exit_code(), expected, "{size}");
    }
}

#[test]
fn root_leaks_of_children_count() {
    let script = format!(
        "{0} -c 'alloc 4096; exit'; {0} -c 'alloc 8192; exit'",
        workload()
    );
    let (status, said) = ending(Setup::command(["sh", "-c", &script]), &[]);
    assert_eq!(status, LEAKED);
    assert!(
        said[0].starts_with("leaked: 12.00 KiB in 2 allocations"),
        "{said:#?}"
    );
}

#[test]
fn root_caches_of_libraries_and_frameworks_are_no_leak() {
    let program = OwnerProgram::new();
    let (status, said) = ending(
        Setup::command(program.run([1000, 30_000, 20_000, 4000])),
        &[],
    );
    assert_eq!(status, LEAKED);
    assert_eq!(said.len(), 4, "{said:#?}");
    assert_eq!(said[0], "leaked: 1000 B in 1 allocation at 1 call site");
    assert!(
        said[1].contains(" main  (train_app, train_app "),
        "{said:#?}"
    );
    let once = "no leak: 48.83 KiB at 2 call stacks allocated once by a library";
    let pool = "no leak: 3.91 KiB at 1 call stack in pools of frameworks";
    let has = |begins: &str| said.iter().any(|line| line.starts_with(begins));
    assert!(has(once) && has(pool), "{said:#?}");
}

#[test]
fn root_tensors_are_checked_instead_of_their_segments() {
    let torchlike = standin().path("torchlike");
    for (leaks, expected) in [(true, LEAKED), (false, 0)] {
        let setup = Setup::command([torchlike.to_str().unwrap()]).args(["--fail-on-leak"]);
        let mut gpuprobe = setup.start();
        gpuprobe.talk.ready();
        if leaks {
            gpuprobe.talk.say("tleak forward 3 5000");
            gpuprobe.talk.say("tleak backward 3 5000");
        } else {
            gpuprobe.talk.say("tmalloc kept 5000 3");
            gpuprobe.talk.say("tfreeall");
        }
        gpuprobe.talk.send("exit");
        assert_eq!(gpuprobe.exit_code(), expected);
        let said = gpuprobe.said();
        let pools = |line: &String| line.contains("in pools of frameworks");
        assert!(said.iter().any(pools), "{said:#?}");
        let leak = "gpuprobe:   15.00 KiB in 3 allocations  ";
        let named = |line: &&String| line.starts_with(leak) && line.contains("leak_forward");
        assert_eq!(
            said.iter().filter(named).count(),
            usize::from(leaks),
            "{said:#?}"
        );
    }
}

#[test]
fn root_baseline_suppresses_known_leaks() {
    let folder = GateFolder::new();
    let baseline = folder.text("earlier.json");
    let mut earlier = run("alloc 4096 3; exit").spawn();
    assert_eq!(earlier.exit_code(), 0);
    fs::copy(&earlier.reports, &baseline).unwrap();
    let with = ["--baseline", &baseline];
    let (status, said) = ending(run("alloc 4096 3; exit"), &with);
    assert_eq!(status, 0, "{said:#?}");
    assert_eq!(
        said[1],
        "no leak: 12.00 KiB at 1 call stack as in the baseline"
    );
    let (status, said) = ending(run("alloc 4096 4; exit"), &with);
    assert_eq!(status, LEAKED);
    let more = "  16.00 KiB in 4 allocations, 12.00 KiB in 3 allocations in the baseline  ";
    assert!(said[1].starts_with(more), "{said:#?}");
    // An invalid baseline is reported before the command is started.
    fs::write(&baseline, "PID: 7").unwrap();
    let mut gpuprobe = run("exit").args(["--fail-on-leak"]).args(with).spawn();
    assert_eq!(gpuprobe.exit_code(), 1);
    let said = gpuprobe.said();
    assert!(said[0].contains("is no report in JSON"), "{said:#?}");
}

#[test]
fn root_ignored_and_suppressed_sites_are_no_leak() {
    let folder = GateFolder::new();
    let file = folder.text("known.supp");
    let program = OwnerProgram::new();
    let command = || Setup::command(program.run([1000, 3000, 2000, 4000]));
    let (status, said) = ending(command(), &["--ignore", "train_a?p"]);
    assert_eq!(status, 0, "{said:#?}");
    // The program is on every call path.
    assert_eq!(said[1], "suppressed: 4 call stacks, 9.77 KiB (train_a?p)");
    let text =
        "# of the vendor\n\nlibcublas*  # its workspace\nlibnccl.so.2 # its workspace\nlibnot*\n";
    fs::write(&file, text).unwrap();
    let (status, said) = ending(command(), &["--suppressions", &file]);
    assert_eq!(status, LEAKED, "{said:#?}");
    let last = format!("unused suppression: libnot* ({file}:5)");
    for line in ["suppressed: 2 call stacks, 4.88 KiB (its workspace)", &last] {
        assert!(said.iter().any(|said| said == line), "{line}: {said:#?}");
    }
}

/// The attributes of all test cases of a `JUnit` file and the texts of their failures, read by
/// Python's XML parser.
fn cases(file: &Path) -> Vec<(String, String, String)> {
    let script = "import sys, xml.etree.ElementTree as tree\n\
                  suite, = tree.parse(sys.argv[1]).getroot()\n\
                  assert suite.get('name') == 'gpuprobe', suite\n\
                  for case in suite:\n\
                  \x20   failure = case.find('failure')\n\
                  \x20   text = '' if failure is None else failure.text\n\
                  \x20   print(case.get('classname'), case.get('name'), repr(text), sep='\\t')";
    let made = Command::new("python3")
        .args(["-c", script])
        .arg(file)
        .output();
    let made = made.expect("python3 is installed");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let text = String::from_utf8(made.stdout).unwrap();
    let case = |line: &str| {
        let fields: Vec<_> = line.split('\t').map(str::to_owned).collect();
        <[String; 3]>::try_from(fields).unwrap().into()
    };
    text.lines().map(case).collect()
}

#[test]
fn root_each_leak_is_a_failed_test_in_junit_xml() {
    let folder = GateFolder::new();
    let file = folder.text("out.xml");
    let (status, _) = ending(run("alloc 4096 3; pinned 8192; exit"), &["--junit", &file]);
    assert_eq!(status, LEAKED);
    let found = cases(Path::new(&file));
    assert_eq!(found.len(), 2, "{found:#?}");
    let (class, _, text) = &found[0];
    assert!(class.starts_with("gpuprobe.workload"), "{class}");
    assert!(
        text.contains("12.00 KiB in 3 allocations never freed"),
        "{text}"
    );
    assert!(
        text.contains("cudaMalloc of workload in ") && text.contains("  main"),
        "{text}"
    );
    let (status, _) = ending(run("alloc 4096; free 0; exit"), &["--junit", &file]);
    assert_eq!(status, 0);
    let none = (
        "gpuprobe".to_owned(),
        "no leaks".to_owned(),
        "''".to_owned(),
    );
    assert_eq!(cases(Path::new(&file)), [none]);
}

#[test]
fn root_recording_gives_the_same_leaks() {
    let folder = GateFolder::new();
    let file = folder.text("run.sqlite");
    let (status, said) = ending(run("alloc 4096 3; exit"), &["--record", &file]);
    assert_eq!(status, LEAKED);
    for (arguments, expected) in [(&[][..], LEAKED), (&["--ignore", "workload"], 0)] {
        let mut report = Command::new(BINARY);
        report
            .args(["report", &file, "--fail-on-leak"])
            .args(arguments);
        let made = report.output().unwrap();
        assert_eq!(made.status.code(), Some(expected));
        let text = String::from_utf8(made.stderr).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("gpuprobe:   "));
        // The command line of a short-lived process may be unknown.
        let place = |line: &'_ str| line.trim_start().split("  (").next().map(str::to_owned);
        let leaked = (expected == LEAKED).then(|| place(&said[1]));
        assert_eq!(line.map(place), leaked, "{text}");
    }
}
