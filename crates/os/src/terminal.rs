//! Standard output and standard error, safe to look at.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

/// Standard output. Traced programs choose their names, and tables and JSON have these as they are:
/// what a terminal would obey is written to it as an escape sequence that can be read (`\x1b`).
/// Files and pipes get every byte.
pub fn stdout() -> Box<dyn Write> {
    plain(io::stdout())
}

/// Standard error, in the same way.
pub fn stderr() -> Box<dyn Write> {
    plain(io::stderr())
}

fn plain(out: impl Write + IsTerminal + 'static) -> Box<dyn Write> {
    if out.is_terminal() {
        Box::new(Plain::new(out))
    } else {
        Box::new(out)
    }
}

/// Columns of a line where the environment says so (`COLUMNS`), as `ps` has it.
pub fn columns() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok()?;
    columns.parse().ok().filter(|&columns| columns > 0)
}

/// Columns of a line of standard output; none if it is no terminal and the environment does not say:
/// files and pipes have lines of any length.
pub fn width() -> Option<usize> {
    columns().or_else(|| Some(size(io::stdout())?.0))
}

/// Columns and lines of the terminal that `out` is; none if it is none.
pub fn size(out: impl AsFd) -> Option<(usize, usize)> {
    let (columns, lines) = terminal_size::terminal_size_of(out)?;
    Some((columns.0.into(), lines.0.into()))
}

/// Clears the last `lines` lines of the terminal that standard output is; what is written next stands
/// in their place.
///
/// # Errors
/// Returns an error if standard output cannot be written to.
pub fn clear_last(lines: usize) -> io::Result<()> {
    let mut out = io::stdout();
    if lines > 0 {
        write!(out, "\x1b[{lines}A")?;
    }
    write!(out, "\r\x1b[J")?;
    out.flush()
}

/// Passes on what is not obeyed by a terminal: all but the control characters of ASCII and of
/// Latin-1 (U+0080 to U+009F, two bytes of UTF-8).
struct Plain<W> {
    out: W,
    /// The first byte of what may be a control character of two.
    first: Option<u8>,
}

const LATIN: u8 = 0xc2;

impl<W: Write> Plain<W> {
    fn new(out: W) -> Self {
        Self { out, first: None }
    }

    fn push(&mut self, byte: u8, shown: &mut Vec<u8>) {
        let first = self.first.take();
        match byte {
            0x80..=0x9f if first.is_some() => shown.extend(format!("\\u{byte:04x}").bytes()),
            _ => {
                shown.extend(first);
                match byte {
                    b'\n' | b'\t' => shown.push(byte),
                    0..0x20 | 0x7f => shown.extend(format!("\\x{byte:02x}").bytes()),
                    LATIN => self.first = Some(byte),
                    _ => shown.push(byte),
                }
            }
        }
    }
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut shown = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            self.push(byte, &mut shown);
        }
        self.out.write_all(&shown)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_nothing_to_obey() {
        let said = "a\u{1b}[2J\r\u{9b}1m\u{7f}é線\u{a0}\u{bf}\tb\n";
        for size in 1..=said.len() {
            let mut plain = Plain::new(Vec::new());
            for part in said.as_bytes().chunks(size) {
                plain.write_all(part).unwrap();
            }
            let shown = String::from_utf8(plain.out).unwrap();
            assert_eq!(shown, "a\\x1b[2J\\x0d\\u009b1m\\x7fé線\u{a0}\u{bf}\tb\n");
        }
    }
}
