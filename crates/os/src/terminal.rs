//! Standard output and standard error without control characters.

use std::io::{self, IsTerminal, Write};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;

use crate::color::{ColorOption, begins_with_style};

/// An output that may be a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandardStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl StandardStream {
    /// Whether it is a terminal, and its size.
    pub fn look(self) -> (bool, Option<(usize, usize)>) {
        match self {
            Self::Stdout => (io::stdout().is_terminal(), size(io::stdout())),
            Self::Stderr => (io::stderr().is_terminal(), size(io::stderr())),
        }
    }
}

/// How text is laid out on its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Columns of a line; `None` for lines of any length, as in a file.
    pub columns: Option<usize>,
    /// Whether the text has colours.
    pub colored: bool,
    /// Whether names of kernels are whole.
    pub full_names: bool,
    /// Whether what is unremarkable is shown.
    pub verbose: bool,
}

/// Columns of the narrowest and of the widest line on a terminal.
const COLUMNS: RangeInclusive<usize> = 80..=240;

impl Layout {
    /// Layout of text on `stream`, or in a file if that is `None`. The width is that of the variable
    /// `COLUMNS`, as in `ps`, else the terminal's as it is now, within 80 to 240; files and pipes have no
    /// limit, and neither have lines with whole names of kernels (`full_names`).
    pub fn of(stream: Option<StandardStream>, color: ColorOption, full_names: bool) -> Self {
        let (is_terminal, size) = stream.map(StandardStream::look).unwrap_or_default();
        let columns = size.map(|(columns, _)| columns.clamp(*COLUMNS.start(), *COLUMNS.end()));
        let columns = self::columns().or(columns);
        Self {
            columns: columns.filter(|_| !full_names),
            colored: color.paints(is_terminal),
            full_names,
            verbose: false,
        }
    }
}

/// Standard output. Names chosen by traced programs appear verbatim in tables and JSON: on a
/// terminal, control characters are written as readable escape sequences (`\x1b`), all but the
/// colours of a report if it is `colored`. Files and pipes get all bytes unchanged.
pub fn stdout(colored: bool) -> Box<dyn Write> {
    plain(io::stdout(), colored)
}

/// Standard error, filtered like [`stdout`].
pub fn stderr(colored: bool) -> Box<dyn Write> {
    plain(io::stderr(), colored)
}

fn plain(out: impl Write + IsTerminal + 'static, colored: bool) -> Box<dyn Write> {
    if out.is_terminal() {
        let begun = Vec::new();
        Box::new(Plain {
            out,
            colored,
            begun,
        })
    } else {
        Box::new(out)
    }
}

/// Line width from the environment variable `COLUMNS`, as in `ps`.
fn columns() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok()?;
    columns.parse().ok().filter(|&columns| columns > 0)
}

/// Columns and lines of the terminal `out`; `None` if it is not a terminal.
pub fn size(out: impl AsFd) -> Option<(usize, usize)> {
    let (columns, lines) = terminal_size::terminal_size_of(out)?;
    Some((columns.0.into(), lines.0.into()))
}

/// Writer that escapes control characters, line by line.
struct Plain<W: Write> {
    out: W,
    /// Colours pass.
    colored: bool,
    /// The beginning of a line.
    begun: Vec<u8>,
}

impl<W: Write> Plain<W> {
    fn show(&mut self, bytes: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(bytes);
        // Control characters are of ASCII or of Latin-1 (U+0080 to U+009F).
        let mut shown = String::with_capacity(text.len());
        for (at, c) in text.char_indices() {
            match c {
                '\n' | '\t' => shown.push(c),
                '\u{1b}' if self.colored && begins_with_style(&text[at..]) => shown.push(c),
                '\u{80}'.. if c.is_control() => shown += &format!("\\u{:04x}", u32::from(c)),
                _ if c.is_control() => shown += &format!("\\x{:02x}", u32::from(c)),
                _ => shown.push(c),
            }
        }
        self.out.write_all(shown.as_bytes())
    }
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend(bytes);
        if let Some(end) = self.begun.iter().rposition(|&byte| byte == b'\n') {
            let rest = self.begun.split_off(end + 1);
            let lines = std::mem::replace(&mut self.begun, rest);
            self.show(&lines)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let begun = std::mem::take(&mut self.begun);
        self.show(&begun)?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Plain<W> {
    fn drop(&mut self) {
        // Nobody is left who could be told of an error.
        let _ = self.flush();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::color::Tone;

    fn to_bytes(colored: bool) -> Plain<Vec<u8>> {
        let (out, begun) = (Vec::new(), Vec::new());
        Plain {
            out,
            colored,
            begun,
        }
    }

    #[test]
    fn control_characters_are_escaped_on_a_terminal() {
        let said = "a\u{1b}[2J\r\u{9b}1m\u{7f}é線\u{a0}\u{bf}\tb\n";
        for size in 1..=said.len() {
            let mut plain = to_bytes(false);
            for part in said.as_bytes().chunks(size) {
                plain.write_all(part).unwrap();
            }
            let shown = String::from_utf8(plain.out.clone()).unwrap();
            assert_eq!(shown, "a\\x1b[2J\\x0d\\u009b1m\\x7fé線\u{a0}\u{bf}\tb\n");
        }
    }

    #[test]
    fn only_colours_pass() {
        let red = Tone::Bad.paint("LEAK");
        let said = format!("{red} \u{1b}[2J\u{1b}\u{1b}[31mé\u{9b}31m\u{1b}[35m\u{1b}");
        for size in 1..=said.len() {
            let mut plain = to_bytes(true);
            for part in said.as_bytes().chunks(size) {
                plain.write_all(part).unwrap();
            }
            plain.flush().unwrap();
            let shown = String::from_utf8(plain.out.clone()).unwrap();
            assert_eq!(
                shown,
                format!("{red} \\x1b[2J\\x1b\u{1b}[31mé\\u009b31m\\x1b[35m\\x1b")
            );
        }
    }

    #[test]
    fn a_file_has_lines_of_any_length_and_no_colours() {
        let layout = Layout::of(None, ColorOption::default(), false);
        assert!(!layout.colored);
        assert_eq!(layout.columns, columns());
        let color = crate::color::ColorChoice::Always;
        assert!(Layout::of(None, ColorOption { color }, true).colored);
    }
}
