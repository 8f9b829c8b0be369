//! Reports that are redrawn in place on a terminal.

use std::io::{self, Write};

use gpuprobe_model::text::width;
use gpuprobe_os::color::unpainted;
use gpuprobe_os::{lines_said, terminal};

/// The last drawn report.
#[derive(Debug, Default)]
pub(super) struct Screen {
    lines: usize,
    /// Number of lines written to standard error by then, usually on the same terminal.
    said: u64,
}

impl Screen {
    /// Whether standard output is a terminal that supports redrawing.
    pub(super) fn is_possible() -> bool {
        let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
        !is_dumb && terminal::size(io::stdout()).is_some()
    }

    /// The part of `report` to write: all of it with `is_last`, else what fits on the screen. The
    /// last drawn report is cleared first, unless a message was printed since.
    ///
    /// # Errors
    /// Returns an error if standard output cannot be written to.
    pub(super) fn draw(&mut self, report: &str, is_last: bool) -> io::Result<String> {
        let (columns, rows) = terminal::size(io::stdout()).unwrap_or((80, 24));
        let said = lines_said();
        if self.lines > 0 && self.said == said {
            let mut out = io::stdout();
            write!(out, "\x1b[{}A\r\x1b[J", self.lines)?;
            out.flush()?;
        }
        let (drawn, lines) = match is_last {
            true => (report.to_owned(), 0),
            false => fitting(report, columns, rows),
        };
        (self.lines, self.said) = (lines, said);
        Ok(drawn)
    }
}

/// The first lines of `report` that fit on the terminal, and the number of screen lines they take.
fn fitting(report: &str, columns: usize, rows: usize) -> (String, usize) {
    let height = |line: &str| width(&unpainted(line)).div_ceil(columns.max(1)).max(1);
    let all: usize = report.lines().map(height).sum();
    // One line is for the cursor.
    let room = rows.saturating_sub(1);
    if all <= room {
        return (report.to_owned(), all);
    }
    let mut drawn = String::new();
    let mut taken = 0;
    let mut left = report.lines().count();
    for line in report.lines() {
        if taken + height(line) + 1 > room {
            break;
        }
        taken += height(line);
        left -= 1;
        drawn += line;
        drawn.push('\n');
    }
    let more = format!("... {left} more lines (-o FILE, or | cat)");
    let more: String = more.chars().take(columns.max(1)).collect();
    (drawn + &more + "\n", taken + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_report_fits_the_screen() {
        let report = "one\ntwo two two\nthree\n";
        assert_eq!(fitting(report, 80, 24), (report.into(), 3));
        // The second line wraps.
        assert_eq!(fitting(report, 8, 24).1, 4);
        let (drawn, lines) = fitting(report, 80, 3);
        assert_eq!(drawn, "one\n... 2 more lines (-o FILE, or | cat)\n");
        assert_eq!(lines, 2);
        let long = "a line\n".repeat(100);
        for rows in 2..30 {
            let (drawn, lines) = fitting(&long, 10, rows);
            assert!(lines < rows.max(3), "{rows}");
            assert_eq!(drawn.lines().count(), lines);
            assert!(drawn.lines().all(|line| line.chars().count() <= 10));
        }
    }
}
