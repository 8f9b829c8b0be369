//! Command lines that are nearly right: the message has the right one.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use super::super::Cli;

/// Words that are taken for subcommands, and the options that they are.
const MODES: [(&str, &str); 7] = [
    ("memleak", "--memleak"),
    ("leak", "--memleak"),
    ("memory", "--memleak"),
    ("cudatrace", "--cudatrace"),
    ("bandwidth-util", "--bandwidth-util"),
    ("bandwidth", "--bandwidth-util"),
    ("activity", "--activity"),
];

/// Words of other tools for what is done without any.
const NEEDLESS: [&str; 4] = ["trace", "run", "attach", "profile"];

/// Letters of a subcommand that may be wrong: two that have changed places.
const MAX_SLIPS: usize = 2;

/// More words than this are not put right.
const MAX_ROUNDS: usize = 6;

/// `error`, with the command line that was probably meant by `words`, if one can be told.
pub(in crate::cli) fn explain(error: clap::Error, words: &[OsString]) -> clap::Error {
    let Some((word, right)) = offending(&error).zip(meant(words)) else {
        return error;
    };
    let shown: Vec<_> = right.iter().skip(1).map(|word| quoted(word)).collect();
    let why = format!(
        "unknown word '{}': modes are options, and a command comes after `--`; try:\n\n    \
         gpuprobe {}",
        word.display(),
        shown.join(" ")
    );
    Cli::command().error(error.kind(), why)
}

/// The word that `error` is about, if it is not understood.
fn offending(error: &clap::Error) -> Option<OsString> {
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    match error.get(kind) {
        Some(ContextValue::String(word)) if !word.starts_with('-') => Some(word.into()),
        _ => None,
    }
}

/// The command line that `words` were probably meant to be: one that is understood.
fn meant(words: &[OsString]) -> Option<Vec<OsString>> {
    let mut words = words.to_vec();
    for _ in 0..MAX_ROUNDS {
        let error = match Cli::try_parse_from(&words) {
            Ok(_) => return Some(words),
            Err(error) => error,
        };
        let word = offending(&error)?;
        let at = words.iter().skip(1).position(|other| *other == word)? + 1;
        put_right(&mut words, at);
    }
    None
}

/// Changes the word at `at`, which is not understood, into what it stands for.
fn put_right(words: &mut Vec<OsString>, at: usize) {
    let word = words[at].clone();
    let text = word.to_str().unwrap_or_default();
    if let Some((_, option)) = MODES.iter().find(|(mode, _)| *mode == text) {
        words[at] = option.into();
    } else if NEEDLESS.contains(&text) && at == 1 {
        words.remove(at);
    } else if text.parse::<u32>().is_ok() {
        words.insert(at, "--pid".into());
    } else if let Some(name) = similar(text).filter(|_| at == 1 && !is_program(&word)) {
        words[at] = name.into();
    } else {
        words.insert(at, "--".into());
    }
}

/// The subcommand whose name is nearly `word`, if there is one.
fn similar(word: &str) -> Option<String> {
    let command = Cli::command();
    let mut names = command.get_subcommands().map(clap::Command::get_name);
    let found = names.find(|name| distance(name, word) <= MAX_SLIPS);
    found.map(str::to_owned)
}

/// Letters to be changed, put in or left out at least to make `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, of_a) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, of_b) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(of_a != of_b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Whether there is a program of this name.
fn is_program(name: &OsStr) -> bool {
    let has_folder = name.as_encoded_bytes().contains(&b'/');
    let path = std::env::var_os("PATH").filter(|_| !has_folder);
    let folders = path.iter().flat_map(std::env::split_paths);
    (has_folder && std::path::Path::new(name).is_file())
        || folders
            .into_iter()
            .any(|folder| folder.join(name).is_file())
}

/// A word as one would type it in a shell.
fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:=,@%+-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn said(line: &str) -> String {
        let words: Vec<_> = line.split(' ').map(OsString::from).collect();
        let error = Cli::try_parse_from(&words).unwrap_err();
        let explained = explain(error, &words);
        assert_eq!(explained.exit_code(), 2, "{line}");
        explained.to_string()
    }

    #[test]
    fn the_right_command_line_is_named() {
        for (typed, right) in [
            ("memleak", "--memleak"),
            ("memleak --pid 7", "--memleak --pid 7"),
            ("--pid 7 memleak", "--pid 7 --memleak"),
            ("trace --pid 7", "--pid 7"),
            ("trace python3 train.py", "-- python3 train.py"),
            ("cudatrace 7", "--cudatrace --pid 7"),
            ("4242", "--pid 4242"),
            (
                "python3 train.py --epochs 3",
                "-- python3 train.py --epochs 3",
            ),
            ("--memleak ./app -x", "--memleak -- ./app -x"),
            (
                "--cudatrace --top 5 ./app a;b",
                "--cudatrace --top 5 -- ./app 'a;b'",
            ),
            (
                "record -o f python3 train.py",
                "record -o f -- python3 train.py",
            ),
            ("record -o f 4242", "record -o f --pid 4242"),
            ("recrod -o f", "record -o f"),
            ("raport f", "report f"),
            ("bandwidth -- app", "--bandwidth-util -- app"),
        ] {
            let said = said(&format!("gpuprobe {typed}"));
            let line = format!("    gpuprobe {right}\n");
            assert!(said.contains(&line), "{typed}: {said}");
        }
    }

    #[test]
    fn other_mistakes_are_left_to_clap() {
        for (typed, wanted) in [
            ("--memlaek", "'--memleak'"),
            ("report a b c", "unexpected argument 'b'"),
            ("--memleak --interval soon", "'soon' is not a time"),
        ] {
            let said = said(&format!("gpuprobe {typed}"));
            assert!(said.contains(wanted), "{typed}: {said}");
            assert!(!said.contains("; try:\n"), "{typed}: {said}");
        }
    }
}
