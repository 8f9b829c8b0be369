//! Colours, bars and sparklines.

use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};

use gpuprobe_cuda::MemoryKind;
use gpuprobe_os::color::{Piece, Tone, pieces};
use gpuprobe_report::verdict_tone;

/// Whether there are colours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    pub(crate) colored: bool,
}

impl Theme {
    pub(crate) fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Heading => Style::new().add_modifier(Modifier::BOLD),
            Tone::Dim => Style::new().add_modifier(Modifier::DIM),
            Tone::Bad => self.color(Color::Red),
            Tone::Warning => self.color(Color::Yellow),
            Tone::Good => self.color(Color::Green),
        }
    }

    pub(crate) fn color(self, color: Color) -> Style {
        match self.colored {
            true => Style::new().fg(color),
            false => Style::new(),
        }
    }

    /// The selected row, and the tab that is open.
    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The style of a verdict, by its word.
    pub(crate) fn verdict(self, word: &str) -> Style {
        verdict_tone(word).map_or(Style::new(), |tone| self.tone(tone))
    }

    /// The lines of a text that was painted with tones.
    pub(crate) fn lines(self, painted: &str) -> Vec<Line<'static>> {
        let tones = [
            Tone::Heading,
            Tone::Bad,
            Tone::Warning,
            Tone::Good,
            Tone::Dim,
        ];
        let line = |line: &str| {
            let mut style = Style::new();
            let mut spans = Vec::new();
            for piece in pieces(line) {
                match piece {
                    Piece::Text(text) => spans.push(Span::styled(text.to_owned(), style)),
                    Piece::Style(sequence) => {
                        let begins = |tone: &Tone| tone.paint("x").starts_with(sequence);
                        let tone = tones.into_iter().find(begins);
                        style = tone.map_or(Style::new(), |tone| self.tone(tone));
                    }
                }
            }
            Line::from(spans)
        };
        painted.lines().map(line).collect()
    }
}

/// Letter and colour of a kind of memory in bars.
pub(crate) fn mark(kind: MemoryKind) -> (char, Color) {
    match kind {
        MemoryKind::Device => ('d', Color::Cyan),
        MemoryKind::Pitched => ('h', Color::LightCyan),
        MemoryKind::Array => ('a', Color::LightBlue),
        MemoryKind::Managed => ('m', Color::Magenta),
        MemoryKind::Pinned => ('p', Color::Yellow),
        MemoryKind::Registered => ('r', Color::LightYellow),
        MemoryKind::Async => ('s', Color::Blue),
        MemoryKind::Vmm => ('v', Color::Green),
        MemoryKind::Static => ('c', Color::LightGreen),
        MemoryKind::Graph => ('g', Color::LightMagenta),
        MemoryKind::Imported => ('i', Color::Red),
        _ => ('o', Color::Gray),
    }
}

/// A bar of `width` letters, divided among kinds by their bytes.
pub(crate) fn kinds_bar(
    kinds: impl Iterator<Item = (MemoryKind, u64)>,
    width: usize,
    theme: Theme,
) -> Line<'static> {
    let kinds: Vec<_> = kinds.filter(|(_, bytes)| *bytes > 0).collect();
    let all: u128 = kinds.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
    let mut spans = Vec::new();
    let (mut before, mut drawn) = (0u128, 0);
    for (kind, bytes) in kinds {
        before += u128::from(bytes);
        let end = usize::try_from(before * width as u128 / all.max(1)).unwrap_or(width);
        let (letter, color) = mark(kind);
        let text: String = std::iter::repeat_n(letter, end - drawn).collect();
        drawn = end;
        spans.push(Span::styled(text, theme.color(color)));
    }
    Line::from(spans)
}

/// A bar of `width` characters, filled up to `share`, 0 to 1.
pub(crate) fn gauge(share: f64, width: usize) -> String {
    let filled = ((share.clamp(0.0, 1.0) * width as f64).round() as usize).min(width);
    let (full, empty) = ("|".repeat(filled), " ".repeat(width - filled));
    format!("[{full}{empty}]")
}

/// A sparkline of values up to `most`.
pub(crate) fn spark(values: &[Option<u64>], most: u64) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let level = |value: u64| {
        let place = u128::from(value) * (LEVELS.len() as u128 - 1);
        let place = (place + u128::from(most) / 2) / u128::from(most.max(1));
        LEVELS[usize::try_from(place)
            .unwrap_or(usize::MAX)
            .min(LEVELS.len() - 1)]
    };
    let shown = values.iter().map(|value| value.map_or(' ', level));
    shown.collect()
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_divided_by_bytes() {
        let theme = Theme { colored: false };
        let kinds = [
            (MemoryKind::Device, 3),
            (MemoryKind::Pinned, 1),
            (MemoryKind::Async, 0),
        ];
        let bar = kinds_bar(kinds.into_iter(), 8, theme);
        assert_eq!(bar.to_string(), "ddddddpp");
        assert_eq!(kinds_bar([].into_iter(), 8, theme).to_string(), "");
        let largest = [(MemoryKind::Device, u64::MAX), (MemoryKind::Vmm, u64::MAX)];
        assert_eq!(kinds_bar(largest.into_iter(), 4, theme).to_string(), "ddvv");
    }

    #[test]
    fn gauges_and_sparklines_have_the_height_of_their_values() {
        assert_eq!(gauge(0.5, 4), "[||  ]");
        assert_eq!(gauge(7.0, 2), "[||]");
        let values = [None, Some(0), Some(50), Some(100), Some(u64::MAX)];
        assert_eq!(spark(&values, 100), " ▁▅██");
        assert_eq!(spark(&[Some(0)], 0), "▁");
    }

    #[test]
    fn painted_text_keeps_its_tones() {
        let theme = Theme { colored: true };
        let painted = format!("a {} b", Tone::Bad.paint("LEAK"));
        let [line] = &theme.lines(&painted)[..] else {
            panic!("several lines");
        };
        assert_eq!(line.to_string(), "a LEAK b");
        assert_eq!(line.spans[1].style.fg, Some(Color::Red));
        assert_eq!(line.spans[2].style, Style::new());
    }
}
