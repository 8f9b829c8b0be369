//! The commands in README.md and in the book that trace, with the workload for their programs.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use tempfile::TempDir;

use crate::book_commands::{BookCommand, commands};
use crate::harness::gpuprobe::{BINARY, NOTHING};
use crate::harness::{Backend, Workload, require_bpf, standin};

/// What is run by other tests: on files, on a terminal, as a server, in a container, on PyTorch.
fn is_run_elsewhere(words: &[String]) -> bool {
    let what = words.first().map_or("", String::as_str);
    ["top", "serve", "snapshot", "report", "export", "plot"].contains(&what)
        || words.iter().any(|word| word == "--container")
        || (what == "explain" && words.iter().any(|word| word.ends_with(".sqlite")))
        || what.ends_with(".sqlite")
}

fn run(command: &BookCommand, pid: u32) {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("known.supp"), "").unwrap();
    let workload = standin().program_text(Backend::Shared);
    let mut words = command.words.clone();
    for at in 1..words.len() {
        if ["--pid", "-p"].contains(&&*words[at - 1]) {
            words[at] = pid.to_string();
        }
    }
    if command.has_program {
        let program = ["--", &workload, "-c", "alloc 4096; free 0; exit"];
        words.extend(program.map(str::to_owned));
    } else if words.first().is_none_or(|word| word != "doctor") {
        let given = words.iter().position(|word| word == "--duration");
        words.drain(given.map_or(0..0, |at| at..at + 2));
        words.extend(["--duration", "1s"].map(str::to_owned));
    }
    let mut gpuprobe = Command::new(BINARY);
    let gpuprobe = gpuprobe.args(&words).current_dir(folder.path());
    let output = gpuprobe.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // Where no process is named, there may be none just then.
    let is_fine = [Some(0), Some(NOTHING)].contains(&output.status.code());
    let page = command.page.display();
    assert!(is_fine, "{page}: {words:?}: {}: {said}", output.status);
}

#[test]
fn root_each_command_of_the_book_that_traces_runs() {
    require_bpf();
    let workload = Workload::start(Backend::Shared);
    let pid = workload.pid;
    let mut all = commands();
    all.retain(|command| !is_run_elsewhere(&command.words));
    assert!(all.len() > 25, "{} commands", all.len());
    for some in all.chunks(4) {
        thread::scope(|scope| {
            for command in some {
                scope.spawn(move || run(command, pid));
            }
        });
    }
}
