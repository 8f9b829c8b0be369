//! Patterns of names that are no leak: `--ignore` and suppression files.
//!
//! A pattern is a name in which `*` stands for anything and `?` for any character. It matches the owner, the label, a
//! part of the label (`cache.py:7 Cache.fill`) or the function of CUDA of a call site, or of any frame of its stack the
//! function, the file of code or the source file, as a whole. A suppression file has one a line; what follows a `#` is the reason.

use std::path::Path;

use anyhow::{Context, Result};
use wildmatch::WildMatch;

use super::Leak;
use crate::names;
use gpuprobe_model::stack::Frame;
use gpuprobe_os::regular::read_text;
use gpuprobe_stacks::cuda::file_name;
use gpuprobe_stacks::owners::stem;

/// A pattern.
pub(super) struct Pattern {
    pub(super) text: String,
    /// Why it is no leak, or the pattern.
    pub(super) name: String,
    /// Whether it is of a file, and has matched nothing so far.
    pub(super) is_unused: bool,
}

impl Pattern {
    /// Whether it is a pattern of `leak`.
    pub(super) fn matches(&self, leak: &Leak) -> bool {
        let is = |text: &str| glob(&self.text, text);
        let names = [&leak.owner, &leak.label, &leak.full_label, &leak.api];
        names.into_iter().any(|name| is(name))
            || leak.label.split(" > ").any(is)
            || leak.stack.iter().any(|frame| self.matches_frame(frame))
    }

    fn matches_frame(&self, frame: &Frame) -> bool {
        let is = |text: &str| glob(&self.text, text);
        let module = file_name(&frame.module);
        let source = frame.file.as_deref();
        is(&frame.function)
            || is(&names::simplify(&frame.function))
            || !module.is_empty() && (is(module) || is(stem(module)))
            || source.is_some_and(|file| is(file) || is(file_name(file)))
    }
}

/// The patterns of a suppression file.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read(path: &Path) -> Result<Vec<Pattern>> {
    let text = read_text(path)
        .with_context(|| format!("cannot read the suppressions in {}", path.display()))?;
    let lines = text.lines().map(split);
    let lines = lines.filter(|(text, _)| !text.is_empty());
    let patterns = lines.map(|(text, reason)| Pattern {
        text: text.to_owned(),
        name: if reason.is_empty() { text } else { reason }.to_owned(),
        is_unused: true,
    });
    Ok(patterns.collect())
}

/// The pattern and the reason on a line. A `#` within a word is a part of the pattern.
fn split(line: &str) -> (&str, &str) {
    let begins = |at: &usize| {
        line[..*at]
            .chars()
            .next_back()
            .is_none_or(char::is_whitespace)
    };
    let comment = line.match_indices('#').map(|(at, _)| at).find(begins);
    let (pattern, reason) = comment.map_or((line, ""), |at| (&line[..at], &line[at + 1..]));
    (pattern.trim(), reason.trim())
}

/// Whether `pattern` stands for all of `text`.
fn glob(pattern: &str, text: &str) -> bool {
    WildMatch::new(pattern).matches(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, is_same) in [
            ("libcublas*", "libcublasLt", true),
            ("libcublas", "libcublasLt", false),
            ("*::grow(*)", "Pool::grow(unsigned long)", true),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbxc", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("?", "ä", true),
        ] {
            assert_eq!(glob(pattern, text), is_same, "{pattern} {text}");
        }
    }

    /// By the definition, one character after the other.
    fn oracle(pattern: &[char], text: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['*', rest @ ..] => (0..=text.len()).any(|skipped| oracle(rest, &text[skipped..])),
            [one, rest @ ..] => {
                let first = text.first();
                first.is_some_and(|first| *one == '?' || one == first) && oracle(rest, &text[1..])
            }
        }
    }

    proptest! {
        #[test]
        fn globs_are_what_they_are_defined_as(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(glob(&pattern, &text), oracle(&chars(&pattern), &chars(&text)));
        }
    }

    #[test]
    fn lines_are_patterns_with_reasons() {
        for (line, expected) in [
            (
                "libcublas*  # its workspace",
                ("libcublas*", "its workspace"),
            ),
            ("  operator new(*)  ", ("operator new(*)", "")),
            ("# of the vendor", ("", "of the vendor")),
            ("lambda#1 # one", ("lambda#1", "one")),
            ("", ("", "")),
        ] {
            assert_eq!(split(line), expected, "{line}");
        }
    }
}
