//! A traced program has the same output and exit status as an untraced one; `nonlocal_exits` has others.

use std::fs;
use std::process::{Command, Stdio};

use tempfile::NamedTempFile;

use crate::harness::gpuprobe::BINARY;
use crate::harness::report::number;
use crate::harness::{Backend, Report, require_bpf, standin};

/// Successful and failing calls, threads, children, signals to itself, and longjmp.
const SCRIPT: &str = "alloc 4096 3; thread a; @a alloc 512 2; free 0; alloc 99999999999999; \
    managed 4096; pinned 8192 2; kfree 1; async 4096 2; launch 0 10; launch 1 5; \
    copy h2d 65536 3; copy d2h 65536 3; set 4096 2; graph 3 4; array 64 64 0 1 32; \
    longjmp 3; fail cudaMalloc 2 2; alloc 64; alloc 64; freeaddr 0x10; freenull; setdevice 1; \
    alloc 4096; getdevice; setdevice 99; fork alloc 512 2 | free 0 | exit 3; kslots; status; \
    reset; alloc 128; churn 3 200 512 10; race 2 300 64; crossfree 200 512; status; exit 5";

/// Prefix of the stand-in's GPU addresses, which are the same in every run; other addresses vary.
const GPU: &str = "0x7d33";

/// A word with everything masked that differs between runs: ids, times, and addresses.
fn settled(word: &str, pid: &str) -> String {
    if word == pid {
        return "PID".to_owned();
    }
    if let Some((name, _)) = word.split_once('=')
        && (name == "ns" || name.contains("second"))
    {
        return format!("{name}=N");
    }
    let word = word.replace(&format!(":{pid},"), ":PID,");
    let parts = word.split_inclusive([':', '=']).map(|part| {
        let address = part.starts_with("0x") && !part.starts_with(GPU);
        if address { "0xN:" } else { part }
    });
    parts.collect()
}

/// Standard output, standard error, and exit status of a program.
#[derive(Debug, PartialEq, Eq)]
struct Done {
    output: Vec<String>,
    errors: Vec<String>,
    status: Option<i32>,
}

/// Runs the command. PIDs are replaced with `PID`, and gpuprobe's own messages are removed.
fn run(words: &[String]) -> Done {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    for name in [
        "CUDA_VISIBLE_DEVICES",
        "GPUPROBE_LOG",
        "SUDO_UID",
        "SUDO_GID",
    ] {
        command.env_remove(name);
    }
    let done = command.env("STANDIN_DEVICES", "2").output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let pid = text
        .lines()
        .find_map(|line| line.strip_prefix("ready "))
        .unwrap_or("none")
        .to_owned();
    let lines = |text: &str| {
        let ours = |line: &&str| line.starts_with("gpuprobe: ") || line.starts_with(" WARN ");
        let lines = text.lines().filter(|line| !ours(line));
        let lines = lines.map(|line| {
            let words = line.split(' ').map(|word| settled(word, &pid));
            words.collect::<Vec<_>>().join(" ")
        });
        lines.collect()
    };
    Done {
        output: lines(&text),
        errors: lines(&String::from_utf8(done.stderr).unwrap()),
        status: done.status.code(),
    }
}

/// Runs the same command under gpuprobe; returns its report, too.
fn traced(words: &[String], kind: &str) -> (Done, Report) {
    let reports = NamedTempFile::new().unwrap();
    let path = reports.path().to_str().unwrap();
    let ours = [BINARY, "--memleak", "--cudatrace", "--bandwidth-util"];
    let options = ["--attach", kind, "--interval", "1h", "--format", "json"];
    let ours = ours.into_iter().chain(options).chain(["-o", path, "--"]);
    let all: Vec<_> = ours
        .map(str::to_owned)
        .chain(words.iter().cloned())
        .collect();
    let done = run(&all);
    let report = Report::parse(fs::read_to_string(path).unwrap().trim_end());
    assert!(report.is_final());
    report.assert_nothing_lost();
    (done, report)
}

/// The output of [`SCRIPT`] without PIDs and TIDs.
fn without_ids(mut done: Done) -> Done {
    for (line, command) in done.output.iter_mut().skip(1).zip(SCRIPT.split(';')) {
        let command = command.trim_start();
        if command.starts_with("fork") || command.starts_with("thread") {
            let words = line.split(' ');
            let kept = words.filter(|word| word.parse::<u64>().is_err());
            *line = kept.collect::<Vec<_>>().join(" ");
        }
    }
    done
}

#[test]
fn root_program_output_is_the_same_when_traced() {
    require_bpf();
    for backend in [Backend::Shared, Backend::Static, Backend::Driver] {
        let program = standin().program_text(backend);
        let words = [program, "-c".to_owned(), SCRIPT.to_owned()];
        let alone = without_ids(run(&words));
        assert_eq!(alone.status, Some(5));
        assert!(alone.output.len() > 35, "{:#?}", alone.output);
        assert!(!alone.errors.is_empty(), "of its child");
        assert_eq!(without_ids(run(&words)), alone, "it is the same each time");
        let kinds: &[&str] = if backend == Backend::Shared {
            &["session", "multi", "perf"]
        } else {
            &["session", "multi"]
        };
        for kind in kinds {
            let (done, report) = traced(&words, kind);
            assert_eq!(without_ids(done), alone, "{backend:?} with {kind}");
            // The functions of its last stress tests alone.
            assert!(report.totals().alloc_calls > 3 * 200 + 2 * 300 + 200);
            assert!(report.launches()[0] >= 10 + 5);
            assert!(number(&report["bandwidth_util"], "copies") >= 3 + 3);
        }
    }
}
