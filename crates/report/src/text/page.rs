//! Parts shared by text reports: width, first line, and bars.

use std::cell::Cell;
use std::io::{self, Write};

use gpuprobe_os::color::Tone;

use crate::words::{columns_of, dim};

/// Where a report is written to.
pub(crate) struct Page {
    /// Columns of a line; `None` for lines of any length.
    pub(crate) columns: Option<usize>,
    /// Names of kernels are whole.
    pub(crate) full_names: bool,
    /// The report is of a file, in which nothing goes on.
    pub(crate) is_of_file: bool,
    /// The time of the report, until a line has it.
    time: Cell<Option<String>>,
}

impl Page {
    /// A page of lines of `columns`, of a report of `time`.
    pub(crate) fn new(columns: Option<usize>, time: Option<String>) -> Self {
        Self {
            columns,
            full_names: false,
            is_of_file: false,
            time: Cell::new(time),
        }
    }

    /// A page of a report of a file.
    pub(crate) fn of_file(columns: Option<usize>) -> Self {
        Self {
            is_of_file: true,
            ..Self::new(columns, None)
        }
    }

    /// Writes the first line of a part; the first one of all has the time at its end.
    pub(crate) fn head(&self, line: &str, out: &mut dyn Write) -> io::Result<()> {
        let head = Tone::Heading.paint(line);
        let Some(time) = self.time.take() else {
            return writeln!(out, "{head}");
        };
        let taken = columns_of(line) + columns_of(&time);
        match self.columns {
            // On a line of its own, where there is no room.
            Some(columns) if taken + 2 > columns => {
                let indent = columns.saturating_sub(columns_of(&time));
                writeln!(out, "{:indent$}{}", "", dim(&time))?;
                writeln!(out, "{head}")
            }
            Some(columns) => {
                let gap = " ".repeat(columns - taken);
                writeln!(out, "{head}{gap}{}", dim(&time))
            }
            None => writeln!(out, "{head}  {}", dim(&time)),
        }
    }

    /// Writes the time between two rules, as the first line of all, and all of it.
    pub(crate) fn rule(&self, out: &mut dyn Write) -> io::Result<()> {
        let rule = "-".repeat(20);
        match self.time.take() {
            Some(time) => writeln!(out, "{rule} {time} {rule}"),
            None => Ok(()),
        }
    }

    /// The same of a line of several parts, which goes on in the next where there is no room.
    pub(crate) fn head_parts(&self, parts: &[String], out: &mut dyn Write) -> io::Result<()> {
        let time = self.time.take();
        let room = time.as_ref().map_or(0, |time| columns_of(time) + 2);
        let width = self
            .columns
            .map_or(usize::MAX, |columns| columns.saturating_sub(room));
        let mut first = String::new();
        let mut rest = 0;
        for part in parts {
            let taken = columns_of(&first) + 2 + columns_of(part);
            if !first.is_empty() && taken > width {
                break;
            }
            if !first.is_empty() {
                first += "  ";
            }
            first += part;
            rest += 1;
        }
        self.time.set(time);
        self.head(&first, out)?;
        match &parts[rest..] {
            [] => Ok(()),
            [part, parts @ ..] => {
                let first = [format!("  {part}")].into_iter();
                let parts: Vec<_> = first.chain(parts.iter().cloned()).collect();
                self.words(&parts, "  ", out)
            }
        }
    }

    /// The same of parts with commas between them.
    pub(crate) fn list(
        &self,
        parts: &[String],
        indent: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let last = parts.len().saturating_sub(1);
        let comma = |(index, part): (usize, &String)| {
            let comma = if index < last { "," } else { "" };
            format!("{part}{comma}")
        };
        let parts: Vec<_> = parts.iter().enumerate().map(comma).collect();
        self.words(&parts, indent, out)
    }

    /// Writes the words of a line, and goes on in the next where there is no room, with `indent`.
    pub(crate) fn words(
        &self,
        parts: &[String],
        indent: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let width = self.columns.unwrap_or(usize::MAX);
        let mut line = String::new();
        for part in parts {
            let taken = columns_of(&line) + 2 + columns_of(part);
            if line.is_empty() {
                line += part;
            } else if taken > width {
                writeln!(out, "{line}")?;
                line = format!("{indent}{part}");
            } else {
                line += if line.ends_with(',') { " " } else { "  " };
                line += part;
            }
        }
        writeln!(out, "{line}")
    }
}

/// Blocks of a bar, in eighths.
pub(crate) fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar += EIGHTHS[eighths % 8];
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_filled_in_eighths() {
        assert_eq!(bar(0.38, 10), "███▊");
        assert_eq!(bar(2.0, 3), "███");
        assert_eq!(bar(f64::NAN, 3), "");
    }
}
