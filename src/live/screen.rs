//! A report on a terminal, drawn again in the same place.

use std::io;

use gpuprobe_os::{lines_said, terminal};

/// What was drawn last.
#[derive(Debug, Default)]
pub(super) struct Screen {
    lines: usize,
    /// Lines on standard error by then, which is most often the same terminal.
    said: u64,
}

impl Screen {
    /// Whether standard output is a terminal on which a report can be drawn again.
    pub(super) fn is_possible() -> bool {
        let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
        !is_dumb && terminal::size(io::stdout()).is_some()
    }

    /// What of `report` is to be written next: all of it if it `is_last`, else as much as there are
    /// lines. What was drawn before is cleared, unless something was said since, which stays.
    ///
    /// # Errors
    /// Returns an error if standard output cannot be written to.
    pub(super) fn draw(&mut self, report: &str, is_last: bool) -> io::Result<String> {
        let (columns, rows) = terminal::size(io::stdout()).unwrap_or((80, 24));
        let said = lines_said();
        if self.lines > 0 && self.said == said {
            terminal::clear_last(self.lines)?;
        }
        let (drawn, lines) = match is_last {
            true => (report.to_owned(), 0),
            false => fitting(report, columns, rows),
        };
        (self.lines, self.said) = (lines, said);
        Ok(drawn)
    }
}

/// The beginning of `report` that fits on a terminal, and the lines that it takes there.
fn fitting(report: &str, columns: usize, rows: usize) -> (String, usize) {
    let height = |line: &str| line.chars().count().div_ceil(columns.max(1)).max(1);
    let all: usize = report.lines().map(height).sum();
    // The cursor needs a line, too.
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
    let more = format!("... {left} more lines (--scroll, or -o FILE)");
    let more: String = more.chars().take(columns.max(1)).collect();
    (drawn + &more + "\n", taken + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_fits() {
        let report = "one\ntwo two two\nthree\n";
        assert_eq!(fitting(report, 80, 24), (report.into(), 3));
        // The second line takes two.
        assert_eq!(fitting(report, 8, 24).1, 4);
        let (drawn, lines) = fitting(report, 80, 3);
        assert_eq!(drawn, "one\n... 2 more lines (--scroll, or -o FILE)\n");
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
