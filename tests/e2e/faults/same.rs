//! A program does the same with us and without us: what it prints, and how it ends.

use std::process::{Command, Stdio};

use super::Programs;
use crate::harness::gpuprobe::BINARY;
use crate::harness::{Backend, require_bpf, standin};

/// Some of everything, with failures, threads, children, signals that it sends itself, and longjmp.
const SCRIPT: &str = "alloc 4096 3; thread a; @a alloc 512 2; free 0; alloc 99999999999999; \
    managed 4096; pinned 8192 2; kfree 1; async 4096 2; launch 0 10; launch 1 5; \
    copy h2d 65536 3; copy d2h 65536 3; set 4096 2; graph 3 4; array 64 64 0 1 32; \
    longjmp 3; fail cudaMalloc 2 2; alloc 64; alloc 64; freeaddr 0x10; freenull; setdevice 1; \
    alloc 4096; getdevice; setdevice 99; fork alloc 512 2 | free 0 | exit 3; kslots; status; \
    reset; alloc 128; churn 3 200 512 10; race 2 300 64; crossfree 200 512; status; exit 5";

/// The stand-in's GPU memory begins with this, run for run; other addresses are anywhere.
const GPU: &str = "0x7d33";

/// A word without what differs from run to run, whoever looks: ids, times, and addresses.
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

/// What the words print and how they end, with their process ids as `PID`.
fn run(words: &[String]) -> (Vec<String>, Option<i32>) {
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
    let lines = text.lines().map(|line| {
        let words = line.split(' ').map(|word| settled(word, &pid));
        words.collect::<Vec<_>>().join(" ")
    });
    (lines.collect(), done.status.code())
}

/// The same words under gpuprobe.
fn traced(words: &[String], kind: &str) -> (Vec<String>, Option<i32>) {
    let modes = ["--memleak", "--cudatrace", "--bandwidth-util"];
    let ours = [BINARY].into_iter().chain(modes);
    let ours = ours.chain(["--attach", kind, "-o", "/dev/null", "--"]);
    let all: Vec<_> = ours
        .map(str::to_owned)
        .chain(words.iter().cloned())
        .collect();
    run(&all)
}

/// Without the ids of children and of threads.
fn without_ids(mut said: (Vec<String>, Option<i32>), script: &str) -> (Vec<String>, Option<i32>) {
    for (line, command) in said.0.iter_mut().skip(1).zip(script.split(';')) {
        let command = command.trim_start();
        if command.starts_with("fork") || command.starts_with("thread") {
            let words = line.split(' ');
            let kept = words.filter(|word| word.parse::<u64>().is_err());
            *line = kept.collect::<Vec<_>>().join(" ");
        }
    }
    said
}

#[test]
fn root_programs_print_the_same_with_us_and_without() {
    require_bpf();
    for backend in [Backend::Shared, Backend::Static, Backend::Driver] {
        let program = standin().program_text(backend);
        let words = [program, "-c".to_owned(), SCRIPT.to_owned()];
        let alone = without_ids(run(&words), SCRIPT);
        assert_eq!(alone.1, Some(5));
        assert!(alone.0.len() > 35, "{:#?}", alone.0);
        assert_eq!(
            without_ids(run(&words), SCRIPT),
            alone,
            "it is the same each time"
        );
        let kinds: &[&str] = if backend == Backend::Shared {
            &["session", "multi", "perf"]
        } else {
            &["session", "multi"]
        };
        for kind in kinds {
            let with = without_ids(traced(&words, kind), SCRIPT);
            assert_eq!(with, alone, "{backend:?} with {kind}");
        }
    }
}

#[test]
fn root_programs_end_the_same_with_us_and_without() {
    let programs = Programs::built(&["leave.cc"]);
    for how in ["catch", "exit", "fork", "exec", "none"] {
        let words = [programs.text("leave"), how.to_owned()];
        let alone = run(&words);
        for kind in ["session", "multi"] {
            assert_eq!(traced(&words, kind), alone, "{how} with {kind}");
        }
    }
    for (script, status) in [
        ("exit 7", 7),
        ("kill -TERM $$", 143),
        ("kill -SEGV $$", 139),
    ] {
        let words = ["sh", "-c", script].map(str::to_owned);
        assert_eq!(traced(&words, "session").1, Some(status), "{script}");
    }
}
