//! Files whose pages lead in circles: they have no end for whoever follows them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::Folder;
use crate::bad::{OLD, events};

/// Limits of a command: address space and size of each file in KiB, processor time in seconds. A file of 60 KB
/// gives a million rows before its end is missed.
const LIMITS: &str = "ulimit -v 1000000 -f 262144 -t 60";
/// Limit of what a command writes to standard output and to files that stay, bytes.
const MAX_BYTES: u64 = 256 << 20;
/// Time limit of a command by the clock: the machine may be busy.
const MAX_TIME: Duration = Duration::from_secs(120);

/// Makes `table` a B-tree whose branches all lead to the same page on each level: seven further
/// pages, and an astronomic number of rows.
fn make_endless(file: &Path, table: &str) {
    const PAGE: usize = 4096;
    const BRANCHES: usize = 100;
    let root = |found: &rusqlite::Row<'_>| found.get::<_, u32>(0);
    let sql = "SELECT rootpage FROM sqlite_master WHERE name = ?";
    let root = Connection::open(file)
        .unwrap()
        .query_row(sql, [table], root)
        .unwrap() as usize;
    let mut bytes = fs::read(file).unwrap();
    // A page of which every branch leads to page `to`, which is counted from 1.
    let branching = |to: usize| {
        let to = u32::try_from(to).unwrap().to_be_bytes();
        let mut page = vec![0; PAGE];
        let cells = PAGE - 5 * BRANCHES;
        page[0] = 5;
        page[3..5].copy_from_slice(&u16::try_from(BRANCHES).unwrap().to_be_bytes());
        page[5..7].copy_from_slice(&u16::try_from(cells).unwrap().to_be_bytes());
        page[8..12].copy_from_slice(&to);
        for branch in 0..BRANCHES {
            let cell = cells + 5 * branch;
            let place = u16::try_from(cell).unwrap().to_be_bytes();
            page[12 + 2 * branch..][..2].copy_from_slice(&place);
            page[cell..cell + 4].copy_from_slice(&to);
            page[cell + 4] = u8::try_from(branch).unwrap();
        }
        page
    };
    let leaf = bytes[(root - 1) * PAGE..root * PAGE].to_vec();
    bytes.extend(leaf);
    for _ in 0..6 {
        bytes.extend(branching(bytes.len() / PAGE));
    }
    let last = bytes.len() / PAGE;
    bytes[(root - 1) * PAGE..root * PAGE].copy_from_slice(&branching(last));
    bytes[28..32].copy_from_slice(&u32::try_from(last).unwrap().to_be_bytes());
    fs::write(file, &bytes).unwrap();
}

/// Bytes of all files in a folder.
fn size(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum()
}

/// Asserts that the command ends with an error about the file, its second word.
fn check(folder: &Folder, words: &[&str]) {
    let start = Instant::now();
    let before = size(&folder.path("."));
    let output = Command::new("bash")
        .args(["-c", &format!("{LIMITS}; exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_gpuprobe"))
        .args(words)
        .env("TMPDIR", folder.path("."))
        .output()
        .unwrap();
    let took = start.elapsed();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        output.status.code(),
        Some(1),
        "{words:?}: {}: {said}",
        output.status
    );
    let expected = format!(
        "{} is damaged: it has more rows than its size allows",
        words[1]
    );
    assert!(said.contains(&expected), "{words:?}: {said}");
    assert!(took < MAX_TIME, "{words:?}: {took:?}");
    let after = size(&folder.path(".")) + output.stdout.len() as u64;
    let made = after.saturating_sub(before);
    assert!(made < MAX_BYTES, "{words:?}: {made} bytes");
}

/// An export and two recordings: one with endless rows, and one with an endless log.
fn files(folder: &Folder) -> [String; 3] {
    let rows: Vec<_> = (0..20).map(|n| (n * 10, n, 1, 0)).collect();
    let export = folder.database(&(OLD.to_owned() + &events(&rows)));
    let recording = folder.scene("replay");
    let log = folder.path("log.sqlite");
    fs::copy(&recording, &log).unwrap();
    make_endless(&export, "CUDA_GPU_MEMORY_USAGE_EVENTS");
    make_endless(&recording, "CUDA_GPU_MEMORY_USAGE_EVENTS");
    make_endless(&log, "GPUPROBE_LOG");
    [export, recording, log].map(|path| path.to_str().unwrap().to_owned())
}

#[test]
fn a_report_of_endless_rows_ends_in_bounded_time_memory_and_disk() {
    let folder = Folder::new();
    let [export, ..] = files(&folder);
    check(&folder, &["report", &export]);
}

#[test]
fn a_replay_of_an_endless_log_ends_in_bounded_time_memory_and_disk() {
    let folder = Folder::new();
    let [_, _, log] = files(&folder);
    check(&folder, &["replay", &log]);
}

mod long {
    use super::{Folder, check, files};

    #[test]
    fn every_command_ends() {
        let folder = Folder::new();
        let [export, recording, log] = &files(&folder);
        let [picture, out, tables] = ["picture.svg", "out", "tables"]
            .map(|name| folder.path(name).to_str().unwrap().to_owned());
        let usage = ["--analysis", "usage", "--format", "csv", "-o", &out];
        for words in [
            &[&["report", export], &usage[..]].concat()[..],
            &["explain", export],
            &["plot", export, "-o", &picture],
            &["export", export, "-o", &out],
            &["report", log],
            &["export", log, "-o", &out],
            &["plot", log, "-o", &picture],
            &["export", recording, "--format", "tsv", "-o", &tables],
        ] {
            check(&folder, words);
        }
    }
}
