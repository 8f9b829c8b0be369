//! Colours of text on a terminal.

use anstyle::{AnsiColor, Style};

/// Meaning of a part of a text, which decides how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// First line of a part, headings of columns.
    Heading,
    /// A leak, out of memory.
    Bad,
    /// A warning, lost events.
    Warning,
    /// As it should be.
    Good,
    /// Of secondary interest.
    Dim,
}

impl Tone {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Heading,
        Self::Bad,
        Self::Warning,
        Self::Good,
        Self::Dim,
    ];

    const fn style(self) -> Style {
        match self {
            Self::Heading => Style::new().bold(),
            Self::Bad => AnsiColor::Red.on_default(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Dim => Style::new().dimmed(),
        }
    }

    /// `text` between the escape sequences of the tone; `text` is printable. An empty text stays
    /// empty.
    pub fn paint(self, text: &str) -> String {
        let style = self.style();
        match text {
            "" => String::new(),
            _ => format!("{style}{text}{style:#}"),
        }
    }
}

/// Part of a painted text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// An escape sequence of a [`Tone`].
    Style(&'a str),
    /// Text without one.
    Text(&'a str),
}

/// The pieces of a painted text, in order.
pub fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut rest, mut from) = (text, 0);
    while let Some(at) = rest[from..].find(ESCAPE) {
        let at = from + at;
        let Some(length) = style_at(&rest[at..]) else {
            from = at + 1;
            continue;
        };
        let (before, after) = rest.split_at(at);
        let (style, after) = after.split_at(length);
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        pieces.push(Piece::Style(style));
        (rest, from) = (after, 0);
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    pieces
}

/// A painted text without the escape sequences of tones.
pub fn unpainted(text: &str) -> String {
    let pieces = pieces(text).into_iter();
    let texts = pieces.filter_map(|piece| match piece {
        Piece::Text(text) => Some(text),
        Piece::Style(_) => None,
    });
    texts.collect()
}

const ESCAPE: char = '\u{1b}';

/// Length of the escape sequence of a tone, or of the one that ends them, with which `text` begins.
fn style_at(text: &str) -> Option<usize> {
    let mut tones = Tone::ALL.into_iter().map(Tone::style);
    let begins = |style: Style| {
        let ends = [style.render().to_string(), style.render_reset().to_string()];
        ends.into_iter()
            .find(|escape| text.starts_with(escape.as_str()))
    };
    Some(tones.find_map(begins)?.len())
}

/// When reports have colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set (and not empty) or `TERM` is unset or `dumb`.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

impl ColorChoice {
    /// Whether an output has colours, which is a terminal or not.
    pub fn paints(self, is_terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                is_terminal && !anstyle_query::no_color() && anstyle_query::term_supports_color()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_styles_and_texts() {
        let painted = format!("a {} \u{1b}[35mb", Tone::Bad.paint("LEAK"));
        assert_eq!(
            pieces(&painted),
            [
                Piece::Text("a "),
                Piece::Style("\u{1b}[31m"),
                Piece::Text("LEAK"),
                Piece::Style("\u{1b}[0m"),
                Piece::Text(" \u{1b}[35mb"),
            ]
        );
        assert_eq!(unpainted(&painted), "a LEAK \u{1b}[35mb");
        assert_eq!(Tone::Good.paint(""), "");
    }

    #[test]
    fn a_choice_overrides_the_terminal() {
        assert!(ColorChoice::Always.paints(false));
        assert!(!ColorChoice::Never.paints(true));
        assert!(!ColorChoice::Auto.paints(false));
    }
}
