//! Drawing with the escape sequences that every terminal of today understands.

use std::convert::Infallible;
use std::fmt::Write as _;

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};

/// Draws into a string, which is sent to the terminal later.
#[derive(Debug)]
pub(crate) struct Ansi {
    /// Escape sequences and text not sent yet.
    pub(crate) out: String,
    /// Size of the terminal.
    pub(crate) size: Size,
}

impl Ansi {
    pub(crate) fn new(size: Size) -> Self {
        Self {
            out: String::new(),
            size,
        }
    }

    fn send(&mut self, text: std::fmt::Arguments<'_>) {
        // A string takes all.
        let _ = self.out.write_fmt(text);
    }

    fn style(&mut self, style: CellStyle) {
        self.out.push_str("\x1b[0");
        for (modifier, code) in [
            (Modifier::BOLD, 1),
            (Modifier::DIM, 2),
            (Modifier::UNDERLINED, 4),
            (Modifier::REVERSED, 7),
        ] {
            if style.modifier.contains(modifier) {
                self.send(format_args!(";{code}"));
            }
        }
        for (color, base) in [(style.fg, 30), (style.bg, 40)] {
            match number(color) {
                None => {}
                Some(number @ 0..8) => self.send(format_args!(";{}", base + u16::from(number))),
                Some(number) => self.send(format_args!(";{};5;{number}", base + 8)),
            }
        }
        self.out.push('m');
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CellStyle {
    fg: Color,
    bg: Color,
    modifier: Modifier,
}

/// Number of a colour in the palette of 256; `None` for the terminal's own.
fn number(color: Color) -> Option<u8> {
    Some(match color {
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 8,
        Color::LightRed => 9,
        Color::LightGreen => 10,
        Color::LightYellow => 11,
        Color::LightBlue => 12,
        Color::LightMagenta => 13,
        Color::LightCyan => 14,
        Color::White => 15,
        Color::Indexed(number) => number,
        Color::Reset | Color::Rgb(..) => return None,
    })
}

impl Backend for Ansi {
    type Error = Infallible;

    fn draw<'a, I>(&mut self, content: I) -> Result<(), Infallible>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut next = None;
        let mut current = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                self.send(format_args!("\x1b[{};{}H", y + 1, x + 1));
            }
            let look = CellStyle {
                fg: cell.fg,
                bg: cell.bg,
                modifier: cell.modifier,
            };
            if current != Some(look) {
                self.style(look);
                current = Some(look);
            }
            self.out.push_str(cell.symbol());
            // A wide character may be narrow for the terminal: what follows is placed again.
            next = cell.symbol().is_ascii().then_some((x + 1, y));
        }
        if current.is_some() {
            self.out.push_str("\x1b[0m");
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> Result<(), Infallible> {
        self.out.push_str("\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> Result<(), Infallible> {
        self.out.push_str("\x1b[?25h");
        Ok(())
    }

    fn get_cursor_position(&mut self) -> Result<Position, Infallible> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> Result<(), Infallible> {
        let Position { x, y } = position.into();
        self.send(format_args!("\x1b[{};{}H", y + 1, x + 1));
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Infallible> {
        self.out.push_str("\x1b[0m\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> Result<(), Infallible> {
        self.clear()
    }

    fn size(&self) -> Result<Size, Infallible> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> Result<WindowSize, Infallible> {
        Ok(WindowSize {
            columns_rows: self.size,
            pixels: Size::ZERO,
        })
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use ratatui_core::style::Style;

    use super::*;

    #[test]
    fn cells_are_placed_and_styled_once() {
        let mut cells = [Cell::new("a"), Cell::new("b"), Cell::new("c")];
        cells[1].set_style(Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
        cells[2].set_style(Style::new().fg(Color::Indexed(208)));
        let mut ansi = Ansi::new(Size::new(80, 24));
        let places = [(0, 0), (1, 0), (9, 4)];
        let content = places.into_iter().zip(&cells);
        ansi.draw(content.map(|((x, y), cell)| (x, y, cell)))
            .unwrap();
        assert_eq!(
            ansi.out,
            "\x1b[1;1H\x1b[0ma\x1b[0;1;31mb\x1b[5;10H\x1b[0;38;5;208mc\x1b[0m"
        );
    }
}
