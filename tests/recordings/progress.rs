//! The progress bar of long work.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gpuprobe_analysis::Filter;
use gpuprobe_os::progress::{ProgressDisplay, SharedProgress};
use gpuprobe_views::export;
use gpuprobe_views::export::{ExportConfig, ExportFormat};

use crate::untrusted::report;
use crate::{Folder, terminal};

/// Work of this length has a bar, which appears after a second.
const LONG: Duration = Duration::from_millis(2500);

const BAR: &str = "gpuprobe: memory events [";

/// An export with so many memory events, two of them on a GPU.
fn export(folder: &Folder, events: u64) -> PathBuf {
    let path = folder.database(&format!(
        "CREATE TABLE EXPORT_META_DATA (name TEXT, value TEXT);
         CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INT, globalPid INT, deviceId INT,
             address INT, bytes INT, memKind INT, memoryOperationType INT, correlationId INT);
         WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < {events})
         INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS
             SELECT i, 7 << 24, 0, 4096 * (i / 2), 512, iif(i < 4, 2, 1), i % 2, i FROM n;"
    ));
    let renamed = folder.path(&format!("{events}.sqlite"));
    std::fs::rename(path, &renamed).unwrap();
    renamed
}

fn command(arguments: &[&str], term: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuprobe"));
    command
        .args(arguments)
        .env("NO_COLOR", "1")
        .env("TERM", term)
        .env_remove("GPUPROBE_LOG");
    command
}

/// The output of `command` on a terminal.
fn on_terminal(command: Command) -> String {
    terminal::on_terminal(command, 100, true)
}

/// An export whose report takes so long that it has a bar, and that report with the bar.
fn long_export(folder: &Folder) -> (PathBuf, String) {
    let mut events = 300_000;
    loop {
        let file = export(folder, events);
        let began = Instant::now();
        let written = on_terminal(command(&["report", file.to_str().unwrap()], "xterm"));
        let took = began.elapsed();
        if written.contains(BAR) {
            return (file, written);
        }
        assert!(took < LONG, "no bar in {took:?}: {written:?}");
        events *= 2;
    }
}

#[test]
fn long_reports_have_a_bar_on_a_terminal_only() {
    let folder = Folder::new();
    let (file, written) = long_export(&folder);
    let words = ["report", file.to_str().unwrap()];
    let [bare, piped, usage] = thread::scope(|scope| {
        // A terminal that cannot move its cursor.
        let bare = scope.spawn(|| on_terminal(command(&words, "dumb")));
        let piped = scope.spawn(|| {
            let output = command(&words, "xterm").output().unwrap();
            assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
            String::from_utf8(output.stdout).unwrap()
        });
        // The lines of this report are written while the file is read.
        let usage = scope.spawn(|| {
            let usage = ["--analysis", "usage", "--format", "csv"];
            on_terminal(command(&[&words[..], &usage].concat(), "xterm"))
        });
        [bare, piped, usage].map(|run| run.join().unwrap())
    });
    for silent in [&bare, &piped, &usage] {
        assert!(!silent.contains("gpuprobe:"), "{silent:?}");
    }
    // The bar is cleared, and the report is the same.
    let (bars, report) = written.rsplit_once("\x1b[2K").unwrap();
    assert!(bars.contains(" %"), "{bars:?}");
    assert_eq!(report, bare);
}

/// The passes of a run: the name, the number of units and how many of them were counted.
#[derive(Debug, Default)]
struct Passes(Mutex<Vec<(&'static str, u64, u64)>>);

impl ProgressDisplay for Passes {
    fn begin(&self, what: &'static str, total: u64) -> bool {
        self.0.lock().unwrap().push((what, total, 0));
        true
    }

    fn advance(&self, done: u64) {
        self.0.lock().unwrap().last_mut().unwrap().2 = done;
    }
}

#[test]
fn every_row_and_every_piece_of_the_log_is_counted() {
    let folder = Folder::new();
    let export = folder.real_export();
    let recording = folder.scene("tensors-3");
    let output = folder.path("output");
    for (file, format, names) in [
        (
            &export,
            ExportFormat::Chrome,
            &["calls", "GPU work", "memory events"][..],
        ),
        (&recording, ExportFormat::Torch, &["log"]),
    ] {
        let passes = Arc::new(Passes::default());
        let config = ExportConfig {
            file: file.clone(),
            format,
            output: Some(output.clone()),
            filter: Filter::default(),
        };
        export::run(&config, &(Arc::clone(&passes) as SharedProgress)).unwrap();
        let passes = passes.0.lock().unwrap();
        for (what, total, done) in passes.iter() {
            // Each update is about a thousandth of all.
            assert!(done <= total, "{what}: {done} of {total}");
            assert!(total - done <= total / 1000, "{what}: {done} of {total}");
        }
        for name in names {
            let counted = passes
                .iter()
                .any(|(what, total, _)| what == name && *total > 0);
            assert!(counted, "{name}: {passes:?}");
        }
    }
}

#[test]
fn short_reports_have_none() {
    let folder = Folder::new();
    let file = folder.real_export();
    let written = on_terminal(command(&["report", file.to_str().unwrap()], "xterm"));
    assert!(!written.contains("gpuprobe:"), "{written:?}");
}

#[test]
fn no_command_plays_a_file_more_than_twice() {
    let folder = Folder::new();
    for file in [folder.real_export(), folder.scene("tensors-3")] {
        for (name, command) in report::commands(&file, &folder.path(".")) {
            let passes = Arc::new(Passes::default());
            command(&(Arc::clone(&passes) as SharedProgress));
            let passes = passes.0.lock().unwrap();
            let plays = passes
                .iter()
                .filter(|(what, ..)| matches!(*what, "log" | "memory events"));
            // A comparison has two files.
            let files = if name == "diff" { 2 } else { 1 };
            let plays = plays.count();
            assert!(plays <= files * 2, "{name} of {file:?}: {plays} plays");
        }
    }
}
