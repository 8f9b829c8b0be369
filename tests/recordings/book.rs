//! The commands in README.md and in the book.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Folder, all_modes, gpuprobe};

/// The words behind `gpuprobe` of the commands in a document, up to the program that is traced.
fn commands(text: &str) -> Vec<Vec<String>> {
    let blocks = text.split("```").skip(1).step_by(2);
    let lines = blocks.flat_map(|block| {
        let is_shell = block.starts_with("sh\n");
        let lines = block.lines().map(str::trim_start);
        lines.filter_map(move |line| line.strip_prefix("$ ").or(is_shell.then_some(line)))
    });
    let commands = lines.filter_map(|line| {
        let line = format!(" {}", line.trim_end_matches('\\').replace(';', " ;"));
        let (before, words) = line.split_once(" gpuprobe ")?;
        let is_run = ["", "sudo", "-E"].contains(&before.rsplit(' ').next()?);
        shlex::split(words).filter(|_| is_run)
    });
    let ends = ["--", "|", "&", "&&", ">", ";"];
    let own = commands.map(|words| {
        let words = words.into_iter();
        words.take_while(|word| !ends.contains(&&**word)).collect()
    });
    own.collect()
}

/// The pages of the book, and README.md, with the commands in each.
fn pages() -> Vec<(PathBuf, Vec<Vec<String>>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = fs::read_dir(root.join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = pages.map(|page| page.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|end| end == "md"));
    pages.push(root.join("README.md"));
    let read = |page: PathBuf| {
        let found = commands(&fs::read_to_string(&page).unwrap());
        (page, found)
    };
    pages.into_iter().map(read).collect()
}

#[test]
fn each_command_of_the_book_is_one() {
    let mut count = 0;
    for (page, commands) in pages() {
        for mut words in commands {
            // Help is printed only once everything before it was understood.
            words.push("--help".into());
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            let output = gpuprobe(&words);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{}: {words:?}: {said}",
                page.display()
            );
            count += 1;
        }
    }
    assert!(count > 60, "{count} commands");
}

/// Those that trace are run by the end-to-end tests, with other programs.
#[test]
fn each_command_on_a_file_runs() {
    let folder = Folder::new();
    for name in ["run", "monday", "tuesday", "later"] {
        all_modes::record(&folder.path(&format!("{name}.sqlite")));
    }
    folder.real_export();
    let mut count = 0;
    for (page, commands) in pages() {
        for words in commands {
            let what = words.first().map_or("", String::as_str);
            let has_file = words.iter().any(|word| word.ends_with(".sqlite"));
            if !has_file || !["report", "explain", "export", "plot"].contains(&what) {
                continue;
            }
            let mut command = Command::new(env!("CARGO_BIN_EXE_gpuprobe"));
            let output = command.args(&words).current_dir(folder.path("")).output();
            let output = output.unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{}: {words:?}: {said}",
                page.display()
            );
            count += 1;
        }
    }
    assert!(count > 15, "{count} commands");
}
