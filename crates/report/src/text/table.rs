//! Tables for people: headings, aligned columns, and names that get the width that is left.

use std::io::{self, Write};

use gpuprobe_os::color::Tone;

use crate::names;
use crate::words::columns_of as count;

/// How the cells of a column are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
    /// Names of kernels, which are shortened to what is left of a line.
    Name,
    /// Other text, which is cut to that.
    Text,
}

/// One column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    heading: &'static str,
    align: Align,
    /// Where a line has fewer columns than this, it is left out.
    needs_width: usize,
    /// Tone of a cell.
    tone: Option<fn(&str) -> Option<Tone>>,
}

impl Column {
    pub(crate) const fn left(heading: &'static str) -> Self {
        Self::new(heading, Align::Left)
    }

    pub(crate) const fn right(heading: &'static str) -> Self {
        Self::new(heading, Align::Right)
    }

    /// Names of kernels, whole or shortened.
    pub(crate) const fn kernel(full_names: bool) -> Self {
        let align = if full_names { Align::Left } else { Align::Name };
        Self::new("KERNEL", align)
    }

    pub(crate) const fn text(heading: &'static str) -> Self {
        Self::new(heading, Align::Text)
    }

    const fn new(heading: &'static str, align: Align) -> Self {
        Self {
            heading,
            align,
            needs_width: 0,
            tone: None,
        }
    }

    /// The same, left out of lines of fewer than `width` columns.
    pub(crate) const fn needs_width(mut self, width: usize) -> Self {
        self.needs_width = width;
        self
    }

    /// The same, with cells in the tone that `tone` gives to their text.
    pub(crate) const fn painted(mut self, tone: fn(&str) -> Option<Tone>) -> Self {
        self.tone = Some(tone);
        self
    }
}

/// A table that is being filled.
#[derive(Debug)]
pub(crate) struct ReportTable {
    indent: usize,
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// Between two columns.
const GAP: usize = 2;
/// A name gets no less, however narrow the line is.
const LEAST_NAME: usize = 12;
/// One that may be left out gets as much, or is.
const LEAST_EXTRA: usize = 24;

impl ReportTable {
    /// An empty table, `indent` columns to the right.
    pub(crate) fn new(indent: usize, columns: &[Column]) -> Self {
        Self {
            indent,
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row: a cell for each column. Cells are printable.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<_> = cells.into_iter().collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Writes the table into lines of `width` columns; `None` for lines of any length. Columns that are
    /// empty throughout are left out.
    pub(crate) fn write(&self, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
        self.lines(width)
            .iter()
            .try_for_each(|line| writeln!(out, "{line}"))
    }

    /// The lines of the table: the headings, if there are any rows, then a line for each row.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let shown = self.lay_out(width);
        let line = |cell: &dyn Fn(&ShownColumn) -> String,
                    tone: &dyn Fn(&ShownColumn) -> Option<Tone>| {
            let mut line = " ".repeat(self.indent);
            for (index, column) in shown.iter().enumerate() {
                let cell = cell(column);
                let padding = " ".repeat(column.width.saturating_sub(count(&cell)));
                let gap = if index == 0 { 0 } else { GAP };
                line.extend(std::iter::repeat_n(' ', gap));
                let cell = tone(column).map_or_else(|| cell.clone(), |tone| tone.paint(&cell));
                match column.align {
                    Align::Right => line += &(padding + &cell),
                    Align::Left | Align::Name | Align::Text => line += &(cell + &padding),
                }
            }
            line.trim_end().to_owned()
        };
        let mut lines = Vec::new();
        if self.columns.iter().any(|column| !column.heading.is_empty()) {
            lines.push(line(&|column| column.heading.to_owned(), &|_| {
                Some(Tone::Heading)
            }));
        }
        for row in 0..self.rows.len() {
            let tone = |column: &ShownColumn| column.tone.and_then(|tone| tone(&column.cells[row]));
            lines.push(line(&|column| column.cells[row].clone(), &tone));
        }
        lines
    }

    /// The columns that are shown, with what fits of their cells.
    fn lay_out(&self, width: Option<usize>) -> Vec<ShownColumn> {
        let line = width.unwrap_or(usize::MAX);
        let mut left = width.map(|width| width.saturating_sub(self.indent));
        let mut shown: Vec<ShownColumn> = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            let cells = || self.rows.iter().map(|row| row[index].as_str());
            if line < column.needs_width || cells().all(str::is_empty) {
                continue;
            }
            let gap = if shown.is_empty() { 0 } else { GAP };
            let cells = if matches!(column.align, Align::Name | Align::Text) {
                let room = left.map(|left| left.saturating_sub(gap));
                if column.needs_width > 0 && room.is_some_and(|room| room < LEAST_EXTRA) {
                    continue;
                }
                let room = room.map_or(usize::MAX, |room| room.max(LEAST_NAME));
                match column.align {
                    Align::Name => names::fit(&cells().collect::<Vec<_>>(), room),
                    _ => cells().map(|cell| names::cut(cell, room)).collect(),
                }
            } else {
                cells().map(str::to_owned).collect()
            };
            let longest = cells.iter().map(|cell| count(cell)).max().unwrap_or(0);
            let width = longest.max(count(column.heading));
            left = left.map(|left| left.saturating_sub(width + gap));
            shown.push(ShownColumn {
                heading: column.heading,
                align: column.align,
                tone: column.tone,
                width,
                cells,
            });
        }
        shown
    }
}

/// A column as it is shown.
struct ShownColumn {
    heading: &'static str,
    align: Align,
    tone: Option<fn(&str) -> Option<Tone>>,
    width: usize,
    cells: Vec<String>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use gpuprobe_os::color::unpainted;

    use super::*;

    fn written(table: &ReportTable, width: Option<usize>) -> String {
        let mut out = Vec::new();
        table.write(width, &mut out).unwrap();
        unpainted(&String::from_utf8(out).unwrap())
    }

    #[test]
    fn names_get_what_is_left() {
        let columns = [
            Column::right("CALLS"),
            Column::left("KIND").needs_width(60),
            Column::right("EMPTY"),
            Column::kernel(false),
        ];
        let mut table = ReportTable::new(2, &columns);
        let cells = |cells: [&str; 4]| cells.map(str::to_owned);
        table.row(cells(["1", "a", "", "short"]));
        table.row(cells([
            "20",
            "bc",
            "",
            "a_name_that_is_much_longer_than_that",
        ]));
        assert_eq!(
            written(&table, None),
            "  CALLS  KIND  KERNEL\n      1  a     short\n     20  bc    \
             a_name_that_is_much_longer_than_that\n"
        );
        let narrow = written(&table, Some(30));
        assert!(!narrow.contains("KIND"), "{narrow}");
        assert!(narrow.lines().all(|line| line.chars().count() <= 30));
        assert!(narrow.contains('…'), "{narrow}");
    }

    #[test]
    fn nothing_is_no_table() {
        assert_eq!(
            written(&ReportTable::new(0, &[Column::kernel(false)]), None),
            ""
        );
    }
}
