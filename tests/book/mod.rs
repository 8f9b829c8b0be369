//! The commands in README.md and in the book.

use std::fs;
use std::path::{Path, PathBuf};

/// A command of a document.
pub(crate) struct BookCommand {
    /// The page that has it.
    pub(crate) page: PathBuf,
    /// The words behind `gpuprobe`, up to the program that is traced.
    pub(crate) words: Vec<String>,
    /// Whether a program to trace follows.
    pub(crate) has_program: bool,
}

fn of_text(page: &Path, text: &str) -> Vec<BookCommand> {
    let blocks = text.split("```").skip(1).step_by(2);
    let lines = blocks.flat_map(|block| {
        let is_shell = block.starts_with("sh\n");
        let lines = block.lines().map(str::trim_start);
        lines.filter_map(move |line| line.strip_prefix("$ ").or(is_shell.then_some(line)))
    });
    let commands = lines.filter_map(|line| {
        let line = format!(" {}", line.trim_end_matches('\\').replace(';', " ;"));
        let (before, words) = line.split_once(" gpuprobe")?;
        let is_run = ["", "sudo", "-E"].contains(&before.rsplit(' ').next()?);
        shlex::split(words).filter(|_| is_run && (words.is_empty() || words.starts_with(' ')))
    });
    let ends = ["--", "|", "&", "&&", ">", ";"];
    let own = commands.map(|words| {
        let end = words.iter().position(|word| ends.contains(&&**word));
        BookCommand {
            page: page.to_owned(),
            has_program: end.is_some_and(|end| words[end] == "--"),
            words: words[..end.unwrap_or(words.len())].to_vec(),
        }
    });
    own.collect()
}

/// All commands of the pages of the book, and of README.md.
pub(crate) fn commands() -> Vec<BookCommand> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = fs::read_dir(root.join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = pages.map(|page| page.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|end| end == "md"));
    pages.push(root.join("README.md"));
    let of_page = |page: &PathBuf| of_text(page, &fs::read_to_string(page).unwrap());
    pages.iter().flat_map(of_page).collect()
}
