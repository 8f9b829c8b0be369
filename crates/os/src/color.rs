//! Colours of text on a terminal.

use anstyle::{AnsiColor, Reset, Style};
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

/// A painted text without escape sequences.
pub fn unpainted(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// Whether `text` begins with the escape sequence of a tone, or with the one that ends them.
pub(crate) fn begins_with_style(text: &str) -> bool {
    let begins = |style: Style| text.starts_with(&style.to_string());
    text.starts_with(&Reset.to_string()) || Tone::ALL.map(Tone::style).into_iter().any(begins)
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
    fn a_text_is_painted_and_unpainted() {
        let painted = format!("a {} 線", Tone::Bad.paint("LEAK"));
        assert_eq!(painted, "a \u{1b}[31mLEAK\u{1b}[0m 線");
        assert_eq!(unpainted(&painted), "a LEAK 線");
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
