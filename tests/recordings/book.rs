//! The commands in README.md and in the book: all are understood, and those on files run.

use std::process::Command;

use super::{Folder, all_modes, gpuprobe};
use crate::book_commands::commands;

#[test]
fn each_command_of_the_book_is_one() {
    let commands = commands();
    for command in &commands {
        // Help is printed only once everything before it was understood.
        let words = command.words.iter().map(String::as_str);
        let words: Vec<_> = words.chain(["--help"]).collect();
        let output = gpuprobe(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        let page = command.page.display();
        assert!(output.status.success(), "{page}: {words:?}: {said}");
    }
    assert!(commands.len() > 60, "{} commands", commands.len());
}

/// Those that trace are run by the end-to-end tests.
#[test]
fn each_command_on_a_file_runs() {
    let folder = Folder::new();
    for name in ["run", "monday", "tuesday", "later", "gpuprobe-20261129"] {
        all_modes::record(&folder.path(&format!("{name}.sqlite")));
    }
    folder.real_export();
    let mut count = 0;
    for command in commands() {
        let words = &command.words;
        let what = words.first().map_or("", String::as_str);
        let has_file = words.iter().any(|word| word.ends_with(".sqlite"));
        // Of `gpuprobe report`, it is the newest in the folder.
        if command.has_program
            || (!has_file && words.as_slice() != ["report"])
            || !["report", "explain", "export", "plot"].contains(&what)
        {
            continue;
        }
        let mut run = Command::new(env!("CARGO_BIN_EXE_gpuprobe"));
        let output = run.args(words).current_dir(folder.path("")).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let page = command.page.display();
        assert!(output.status.success(), "{page}: {words:?}: {said}");
        count += 1;
    }
    assert!(count > 15, "{count} commands");
}
