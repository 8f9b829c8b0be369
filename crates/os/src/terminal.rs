//! Standard output and standard error without control characters.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

/// Standard output. Names chosen by traced programs appear verbatim in tables and JSON: on a
/// terminal, control characters are written as readable escape sequences (`\x1b`). Files and pipes
/// get all bytes unchanged.
pub fn stdout() -> Box<dyn Write> {
    plain(io::stdout())
}

/// Standard error, filtered like [`stdout`].
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

/// Line width from the environment variable `COLUMNS`, as in `ps`.
pub fn columns() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok()?;
    columns.parse().ok().filter(|&columns| columns > 0)
}

/// Line width of standard output in columns; `None` if it is not a terminal and `COLUMNS` is unset:
/// files and pipes have no limit.
pub fn width() -> Option<usize> {
    columns().or_else(|| Some(size(io::stdout())?.0))
}

/// Columns and lines of the terminal `out`; `None` if it is not a terminal.
pub fn size(out: impl AsFd) -> Option<(usize, usize)> {
    let (columns, lines) = terminal_size::terminal_size_of(out)?;
    Some((columns.0.into(), lines.0.into()))
}

/// Clears the last `lines` lines of the terminal on standard output; the next output replaces them.
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

/// Writer that escapes the control characters of ASCII and of Latin-1 (U+0080 to U+009F, two bytes
/// in UTF-8).
struct Plain<W> {
    out: W,
    /// First byte of a possible two-byte control character.
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
    fn control_characters_are_escaped_on_a_terminal() {
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
