//! Where text is written to: colours or none, and no line that is wider than the output.

use std::io::{self, Write};

use gpuprobe_os::color::{Tone, unpainted};
use gpuprobe_os::terminal::Layout;

use crate::names;
use crate::words::{columns_of, dim};

/// Between two parts of a line, and before a line that goes on.
const GAP: usize = 2;

/// Text in lines that fit the output. What is written line by line is wrapped.
pub(crate) struct Page<'a> {
    out: &'a mut dyn Write,
    pub(crate) layout: Layout,
    /// The report is of a file, in which nothing goes on.
    pub(crate) is_of_file: bool,
    /// The time of the report, until a line has it.
    time: Option<String>,
    /// The line that is being written.
    line: Vec<u8>,
}

impl<'a> Page<'a> {
    pub(crate) fn new(layout: Layout, time: Option<String>, out: &'a mut dyn Write) -> Self {
        Self {
            out,
            layout,
            is_of_file: false,
            time,
            line: Vec::new(),
        }
    }

    /// A page of a report of a file.
    pub(crate) fn of_file(layout: Layout, out: &'a mut dyn Write) -> Self {
        Self {
            is_of_file: true,
            ..Self::new(layout, None, out)
        }
    }

    fn columns(&self) -> usize {
        self.layout.columns.unwrap_or(usize::MAX)
    }

    fn put(&mut self, line: &str) -> io::Result<()> {
        match self.layout.colored {
            true => self.out.write_all(line.as_bytes())?,
            false => self.out.write_all(unpainted(line).as_bytes())?,
        }
        self.out.write_all(b"\n")
    }

    /// Writes the first line of a part; the first one of all has the time at its end.
    pub(crate) fn head(&mut self, title: &str) -> io::Result<()> {
        let time = self.time.take().map(|time| (columns_of(&time), dim(&time)));
        let room = time.as_ref().map_or(0, |(columns, _)| columns + GAP);
        let lines = wrapped(title, self.columns().saturating_sub(room), GAP);
        for (index, line) in lines.iter().enumerate() {
            let head = Tone::Heading.paint(line);
            match &time {
                Some((columns, time)) if index == 0 => {
                    let taken = columns_of(line) + columns;
                    let gap = self.layout.columns.map(|all| all.saturating_sub(taken));
                    self.put(&format!(
                        "{head}{:gap$}{time}",
                        "",
                        gap = gap.unwrap_or(GAP)
                    ))?;
                }
                _ if index == 0 => self.put(&head)?,
                _ => self.put(line)?,
            }
        }
        Ok(())
    }

    /// Writes `said` behind `first`, and below it where it goes on.
    pub(crate) fn hanging(&mut self, first: &str, said: &str) -> io::Result<()> {
        let indent = columns_of(first);
        let lines = wrapped(&format!("{first}{said}"), self.columns(), indent);
        lines.iter().try_for_each(|line| self.put(line))
    }

    /// Writes what is of secondary interest.
    pub(crate) fn note(&mut self, said: &str) -> io::Result<()> {
        let text = said.trim_start();
        let indent = &said[..said.len() - text.len()];
        writeln!(self, "{indent}{}", dim(text))
    }
}

impl Write for Page<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.pop_if(|last| *last == b'\n').is_some() {
                let line = std::mem::take(&mut self.line);
                let line = String::from_utf8_lossy(&line);
                let indent = line.len() - line.trim_start_matches(' ').len() + GAP;
                for line in wrapped(&line, self.columns(), indent) {
                    self.put(&line)?;
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// How good it is to break a line there: in its first third, beside a number, between two words, between two parts.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Break {
    Early,
    Number,
    Word,
    Part,
}

/// The lines of a painted text, those that go on behind `indent`. A word that is too long loses its middle.
fn wrapped(text: &str, columns: usize, indent: usize) -> Vec<String> {
    let indent = indent.min(columns / 2);
    let mut lines = Vec::new();
    let mut rest = text.to_owned();
    while columns_of(&rest) > columns {
        let spaces = rest.match_indices(' ').map(|(at, _)| at);
        let places = spaces.map(|at| (columns_of(&rest[..at]), at));
        let places = places.filter(|(taken, _)| *taken > indent);
        let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let how = |taken: usize, at: usize| {
            let (before, after) = rest.split_at(at);
            match after.strip_prefix("  ") {
                _ if taken <= columns / 3 => Break::Early,
                Some(_) => Break::Part,
                None if is_digit(before.chars().next_back()) => Break::Number,
                None if is_digit(after.chars().nth(1)) => Break::Number,
                None => Break::Word,
            }
        };
        let fitting = places.clone().take_while(|(taken, _)| *taken <= columns);
        let best = fitting.max_by_key(|&(taken, at)| (how(taken, at), taken));
        let (line, at) = match best {
            Some((_, at)) => (rest[..at].trim_end().to_owned(), at),
            None => {
                let at = places.map(|(_, at)| at).next().unwrap_or(rest.len());
                (names::cut(&unpainted(&rest[..at]), columns), at)
            }
        };
        lines.push(line);
        let more = rest[at..].trim_start_matches(' ');
        if more.is_empty() {
            return lines;
        }
        rest = format!("{:indent$}{more}", "");
    }
    lines.push(rest);
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_break_between_parts_else_between_words() {
        let held = "held 3.28 GiB in 7 allocations  (peak 3.28 GiB, 1.9s ago)  host 1.00 MiB";
        assert_eq!(
            wrapped(held, 60, 2),
            [
                "held 3.28 GiB in 7 allocations  (peak 3.28 GiB, 1.9s ago)",
                "  host 1.00 MiB"
            ]
        );
        let list = "by library: libtorch 2.70 GiB, libcublas 389.00 MiB, _pool 160.00 MiB";
        let lines = wrapped(list, 48, 2);
        assert_eq!(lines[1], "  libcublas 389.00 MiB, _pool 160.00 MiB");
        let path = "in /opt/conda/lib/python3.12/site-packages/model.py:4123";
        assert_eq!(wrapped(path, 30, 0)[1], "/opt/conda/lib/…/model.py:4123");
        assert_eq!(wrapped(path, usize::MAX, 2), [path]);
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_page(
            words in proptest::collection::vec(("\\PC{0,40}", 1_usize..4), 0..12),
            columns in 8_usize..200,
            indent in 0_usize..30,
            tone in prop_oneof![Just(None), Just(Some(Tone::Bad))],
        ) {
            let words = words.iter().map(|(word, gap)| {
                let word = word.replace('\u{1b}', "");
                let word = tone.map_or_else(|| word.clone(), |tone| tone.paint(&word));
                word + &" ".repeat(*gap)
            });
            let text: String = words.collect();
            for line in wrapped(&text, columns, indent) {
                prop_assert!(columns_of(&line) <= columns, "{} of {}", line, columns);
            }
        }
    }
}
