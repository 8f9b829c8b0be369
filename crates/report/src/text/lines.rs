//! Lines as the output can show them: colours or none, and no line that is wider than a terminal.

use std::io::{self, Write};
use std::ops::Range;

use gpuprobe_model::text::width;
use gpuprobe_os::color::{Piece, pieces, unpainted};
use gpuprobe_os::terminal::Layout;

use crate::names::{MARK, gap};

/// Columns that long words keep, in rounds: they are shortened further only where that is needed.
const LEAST_WORD: [usize; 3] = [16, 8, 1];
/// A word of digits and more is a number up to this width: `2048x1x1`, `0x7f03c4000000`, `4m12s`.
const MAX_NUMBER: usize = 20;

/// Writes text to `out` as `layout` says; text may be painted.
pub(crate) fn laid_out(
    layout: Layout,
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut lines = LineWriter {
        out,
        layout,
        line: Vec::new(),
    };
    write(&mut lines)?;
    match lines.line.is_empty() {
        true => Ok(()),
        false => lines.end(),
    }
}

/// Passes whole lines on.
struct LineWriter<'a> {
    out: &'a mut dyn Write,
    layout: Layout,
    line: Vec<u8>,
}

impl LineWriter<'_> {
    /// Writes the line that was collected.
    fn end(&mut self) -> io::Result<()> {
        let line = String::from_utf8_lossy(&self.line);
        let (text, end) = match line.strip_suffix('\n') {
            Some(text) => (text, "\n"),
            None => (&*line, ""),
        };
        let plain;
        let text = match self.layout.colored {
            true => text,
            false => {
                plain = unpainted(text);
                &plain
            }
        };
        let fits = |columns| width(&unpainted(text)) <= columns;
        let result = match self.layout.columns {
            Some(columns) if !fits(columns) => {
                let text = shortened(text, columns);
                write!(self.out, "{text}{end}")
            }
            _ => write!(self.out, "{text}{end}"),
        };
        self.line.clear();
        result
    }
}

impl Write for LineWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.end()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A painted line in at most `columns`: its longest words are shortened in their middle, numbers are
/// not. If that is not enough, words in the middle of the line go.
fn shortened(line: &str, columns: usize) -> String {
    let plain = unpainted(line);
    let gaps = gaps(&plain, columns);
    let mut made = String::new();
    let mut at = 0;
    for piece in pieces(line) {
        let text = match piece {
            Piece::Style(style) => {
                made.push_str(style);
                continue;
            }
            Piece::Text(text) => text,
        };
        for c in text.chars() {
            match gaps.iter().find(|gap| gap.contains(&at)) {
                Some(gap) if gap.start == at => made.push_str(MARK),
                Some(_) => {}
                None => made.push(c),
            }
            at += c.len_utf8();
        }
    }
    made
}

/// A word of a line, and the part of it that is omitted.
struct Word {
    range: Range<usize>,
    gap: Option<Range<usize>>,
    width: usize,
    is_number: bool,
}

/// The parts of a line that are omitted so that it takes at most `columns`, with a mark for each.
fn gaps(line: &str, columns: usize) -> Vec<Range<usize>> {
    let mut words = words(line);
    let mut taken = width(line);
    for least in LEAST_WORD {
        while taken > columns {
            let names = words.iter_mut().filter(|word| !word.is_number);
            let longest = names.max_by_key(|word| word.width);
            let Some(word) = longest.filter(|word| word.width > least) else {
                break;
            };
            let target = word.width.saturating_sub(taken - columns).max(least);
            let before = word.width;
            word.shorten(line, target);
            taken = (taken + word.width).saturating_sub(before);
        }
    }
    let gaps = words.iter().filter_map(|word| word.gap.clone()).collect();
    match taken > columns {
        true => without_middle(line, &words, columns),
        false => gaps,
    }
}

impl Word {
    fn shorten(&mut self, line: &str, columns: usize) {
        let text = &line[self.range.clone()];
        let room = columns.saturating_sub(width(MARK));
        let gap = gap(text, room - room / 2, room / 2);
        self.width = width(text) + width(MARK) - width(&text[gap.clone()]);
        let start = self.range.start;
        self.gap = Some(start + gap.start..start + gap.end);
    }
}

fn words(line: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut at = 0;
    for part in line.split_inclusive(' ') {
        let text = part.trim_end_matches(' ');
        if !text.is_empty() {
            words.push(Word {
                range: at..at + text.len(),
                gap: None,
                width: width(text),
                is_number: is_number(text),
            });
        }
        at += part.len();
    }
    words
}

/// Whether a word is a number with what belongs to it: `(peak`, `4.40`, `+32.0`, `[T12]:`, `3.9s..2.9s`.
fn is_number(word: &str) -> bool {
    let first = word.trim_start_matches(|c: char| !c.is_alphanumeric());
    let has_name = word.chars().any(char::is_alphabetic);
    !has_name || (first.starts_with(|c: char| c.is_ascii_digit()) && width(word) <= MAX_NUMBER)
}

/// The gap in the middle of a line of too many words, and those of the words beside it.
fn without_middle(line: &str, words: &[Word], columns: usize) -> Vec<Range<usize>> {
    // The words that are kept at the end, then those at the beginning.
    let shown = |range: Range<usize>| -> usize {
        let inside = words.iter().filter_map(|word| word.gap.as_ref());
        let inside = inside.filter(|gap| range.start <= gap.start && gap.end <= range.end);
        let omitted = inside.map(|gap| width(&line[gap.clone()]) - width(MARK));
        width(&line[range.clone()]).saturating_sub(omitted.sum())
    };
    let room = columns.saturating_sub(width(MARK));
    let end = words.iter().rev().map(|word| word.range.start);
    let end = end.take_while(|&start| shown(start..line.len()) <= room / 2);
    let end = end.last().unwrap_or(line.len());
    let room = room - shown(end..line.len());
    let begin = words.iter().map(|word| word.range.end);
    let begin = begin.take_while(|&past| past <= end && shown(0..past) <= room);
    let begin = begin.last().unwrap_or(0);
    let beside = words.iter().filter_map(|word| word.gap.clone());
    let beside = beside.filter(|gap| gap.end <= begin || end <= gap.start);
    let mut gaps: Vec<_> = beside.collect();
    gaps.push(begin..end);
    gaps
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
