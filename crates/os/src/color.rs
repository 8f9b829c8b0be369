//! Colours of text on a terminal.

use anstyle::{AnsiColor, Style};
use clap::Args;
pub use clap::ColorChoice;

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
    let mut rest = text;
    while let Some((before, style, after)) = split_at_style(rest) {
        pieces.extend((!before.is_empty()).then_some(Piece::Text(before)));
        pieces.push(Piece::Style(style));
        rest = after;
    }
    pieces.extend((!rest.is_empty()).then_some(Piece::Text(rest)));
    pieces
}

/// What is before the first escape sequence of a tone, or of the one that ends them, the sequence, and what follows.
fn split_at_style(text: &str) -> Option<(&str, &str, &str)> {
    text.match_indices(ESCAPE).find_map(|(at, _)| {
        let (before, rest) = text.split_at(at);
        let (style, after) = rest.split_at(style_at(rest)?);
        Some((before, style, after))
    })
}

/// A painted text without the escape sequences of tones.
pub fn unpainted(text: &str) -> String {
    let text_of = |piece| match piece {
        Piece::Text(text) => text,
        Piece::Style(_) => "",
    };
    pieces(text).into_iter().map(text_of).collect()
}

const ESCAPE: char = '\u{1b}';

/// Length of the escape sequence with which `text` begins.
fn style_at(text: &str) -> Option<usize> {
    let ends = |style: Style| [style.render().to_string(), style.render_reset().to_string()];
    let mut sequences = Tone::ALL.into_iter().map(Tone::style).flat_map(ends);
    let found = sequences.find(|sequence| text.starts_with(sequence.as_str()));
    found.map(|sequence| sequence.len())
}

/// When reports have colours.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct ColorOption {
    /// Colour text: auto, always or never.
    ///
    /// By default, on a terminal, unless `NO_COLOR` is set or `TERM` is dumb.
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub color: ColorChoice,
}

impl ColorOption {
    /// Whether an output has colours, which is a terminal or not.
    pub fn paints(self, is_terminal: bool) -> bool {
        match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
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
        let paints = |color, on_terminal| ColorOption { color }.paints(on_terminal);
        assert!(paints(ColorChoice::Always, false));
        assert!(!paints(ColorChoice::Never, true));
        assert!(!paints(ColorChoice::Auto, false));
    }
}
