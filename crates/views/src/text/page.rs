//! Where text is written to: colours or none, and no line that is wider than the output.

use std::io::{self, Write};

use gpuprobe_os::color::{Tone, unpainted};
use gpuprobe_os::terminal::Layout;

use super::table;
use crate::tables::Column;
use gpuprobe_report::words::{columns_of, dim, wrapped};

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
    has_lines: bool,
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
            has_lines: false,
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
        self.has_lines = true;
        match self.layout.colored {
            true => writeln!(self.out, "{line}"),
            false => writeln!(self.out, "{}", unpainted(line)),
        }
    }

    /// Begins a part: behind an empty line, unless it is the first.
    pub(crate) fn part(&mut self) -> io::Result<()> {
        match self.has_lines {
            true => self.put(""),
            false => Ok(()),
        }
    }

    /// Writes the first line of a part; the first one of all has the time at its end.
    pub(crate) fn head(&mut self, title: &str) -> io::Result<()> {
        let time = self.time.take().map_or(String::new(), |time| dim(&time));
        let room = columns_of(&time) + if time.is_empty() { 0 } else { GAP };
        let mut lines = wrapped(title, self.columns().saturating_sub(room), GAP);
        if let Some(first) = lines.first_mut() {
            let taken = columns_of(first) + columns_of(&time);
            let gap = self
                .layout
                .columns
                .map_or(GAP, |all| all.saturating_sub(taken));
            let gap = if time.is_empty() { 0 } else { gap };
            *first = format!("{}{:gap$}{time}", Tone::Heading.paint(first), "");
        }
        lines.iter().try_for_each(|line| self.put(line))
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

    pub(crate) fn lines(&mut self, lines: &[String]) -> io::Result<()> {
        lines.iter().try_for_each(|line| writeln!(self, "{line}"))
    }

    /// Writes a table, `indent` columns to the right.
    pub(crate) fn table<'r, T: 'r>(
        &mut self,
        columns: &[Column<T>],
        rows: impl IntoIterator<Item = &'r T, IntoIter: Clone>,
        indent: usize,
    ) -> io::Result<()> {
        self.lines(&table::lines(columns, rows, indent, self.layout))
    }

    /// Writes a table without indentation, and below each row its lines.
    pub(crate) fn detailed<T>(
        &mut self,
        columns: &[Column<T>],
        rows: &[T],
        below: impl Fn(&T) -> Vec<String>,
    ) -> io::Result<()> {
        let mut lines = table::lines(columns, rows, 0, self.layout).into_iter();
        // The first line has the headings.
        self.lines(&lines.next().into_iter().collect::<Vec<_>>())?;
        for (line, row) in lines.zip(rows) {
            writeln!(self, "{line}")?;
            self.lines(&below(row))?;
        }
        Ok(())
    }

    /// Writes a table of the first `top` rows, and how many more there are.
    pub(crate) fn list<T>(
        &mut self,
        columns: &[Column<T>],
        rows: &[T],
        top: usize,
        indent: usize,
    ) -> io::Result<()> {
        let (shown, rest) = rows.split_at(rows.len().min(top));
        self.table(columns, shown, indent)?;
        self.more(rest.len() as u64, indent)
    }

    /// Writes how many more rows a list would have.
    pub(crate) fn more(&mut self, rows: u64, indent: usize) -> io::Result<()> {
        match rows {
            0 => Ok(()),
            rows => self.note(&format!("{:indent$}... and {rows} more (--top all)", "")),
        }
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
