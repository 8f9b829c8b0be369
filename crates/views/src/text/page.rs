//! Where text is written to: colours or none, and no line that is wider than the output.

use std::io::{self, Write};

use gpuprobe_os::color::{Tone, unpainted};
use gpuprobe_os::terminal::Layout;

use super::table;
use crate::tables::Column;
use gpuprobe_report::words::{columns_of, dim, wrapped};

/// Between two parts of a line, and before a line that goes on.
const GAP: usize = 2;

/// Text in lines that fit the output.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) layout: Layout,
    /// The report is of a file, in which nothing goes on.
    pub(crate) is_of_file: bool,
    /// The time of the report, until a line has it.
    pub(crate) time: Option<String>,
    pub(crate) text: String,
}

impl Page {
    /// A page with the colours of [`gpuprobe_os::color`].
    pub(super) fn painted(columns: usize) -> Self {
        let layout = Layout {
            columns: Some(columns),
            colored: true,
            ..Layout::default()
        };
        Self {
            layout,
            ..Self::default()
        }
    }

    fn put(&mut self, line: &str) {
        match self.layout.colored {
            true => self.text += line,
            false => self.text += &unpainted(line),
        }
        self.text.push('\n');
    }

    /// Writes to `out` what `write` writes to the page.
    pub(crate) fn print(
        mut self,
        out: &mut dyn Write,
        write: impl FnOnce(&mut Self),
    ) -> io::Result<()> {
        write(&mut self);
        out.write_all(self.text.as_bytes())
    }

    /// Begins a part: behind an empty line, unless it is the first.
    pub(crate) fn part(&mut self) {
        if !self.text.is_empty() {
            self.put("");
        }
    }

    /// Writes the first line of a part; the first one of all has the time at its end.
    pub(crate) fn head(&mut self, title: &str) {
        let title = Tone::Heading.paint(title);
        let time = self.time.take().map_or(String::new(), |time| dim(&time));
        let taken = columns_of(&title) + columns_of(&time);
        let all = self.layout.columns.unwrap_or(0);
        let gap = all.saturating_sub(taken).max(GAP);
        self.wrap(format!("{title}{:gap$}{time}", "").trim_end(), GAP);
    }

    /// Writes `said` behind `first`, and below it where it goes on.
    pub(crate) fn hanging(&mut self, first: &str, said: &str) {
        self.wrap(&format!("{first}{said}"), columns_of(first));
    }

    fn wrap(&mut self, line: &str, indent: usize) {
        let lines = wrapped(line, self.layout.columns.unwrap_or(usize::MAX), indent);
        lines.iter().for_each(|line| self.put(line));
    }

    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        self.wrap(line, line.len() - line.trim_start_matches(' ').len() + GAP);
    }

    /// Writes what is of secondary interest.
    pub(crate) fn note(&mut self, said: impl AsRef<str>) {
        let text = said.as_ref().trim_start();
        let indent = said.as_ref().len() - text.len();
        self.line(format!("{:indent$}{}", "", dim(text)));
    }

    /// Writes what the figures are to be read with.
    pub(crate) fn warn(&mut self, said: impl AsRef<str>) {
        self.line(Tone::Warning.paint(said.as_ref()));
    }

    pub(crate) fn lines(&mut self, lines: &[String]) {
        lines.iter().for_each(|line| self.line(line));
    }

    /// Writes a table, `indent` columns to the right.
    pub(crate) fn table<T>(&mut self, columns: &[Column<T>], rows: &[T], indent: usize) {
        self.lines(&table::lines(columns, rows, indent, self.layout));
    }

    /// Writes a table without indentation, and below each row its lines.
    pub(crate) fn detailed<T>(
        &mut self,
        columns: &[Column<T>],
        rows: &[T],
        below: impl Fn(&T) -> Vec<String>,
    ) {
        let lines = table::lines(columns, rows, 0, self.layout);
        // The first line has the headings.
        self.lines(&lines[..lines.len().min(1)]);
        for (line, row) in lines.iter().skip(1).zip(rows) {
            self.line(line);
            self.lines(&below(row));
        }
    }

    /// Writes a table of the first `top` rows, and how many more there are.
    pub(crate) fn list<T>(&mut self, columns: &[Column<T>], rows: &[T], top: usize, indent: usize) {
        let (shown, rest) = rows.split_at(rows.len().min(top));
        self.table(columns, shown, indent);
        self.more(rest.len() as u64, indent);
    }

    /// Writes how many more rows a list would have.
    pub(crate) fn more(&mut self, rows: u64, indent: usize) {
        if rows > 0 {
            self.note(format!("{:indent$}... and {rows} more (--top all)", ""));
        }
    }
}

/// The parts of a list, with commas.
pub(super) fn commas(parts: impl IntoIterator<Item = String>) -> String {
    parts.into_iter().collect::<Vec<_>>().join(", ")
}

/// What there is any of: `3 frees of unknown memory, 1 malformed row`.
pub(super) fn counts(all: &[(u64, &str)]) -> Vec<String> {
    let some = all.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, what)| format!("{count} {what}"))
        .collect()
}
