//! Colours, bars and sparklines.

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::bar::{NINE_LEVELS, ONE_EIGHTH};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Sparkline, Widget};

use gpuprobe_cuda::MemoryKind;
use gpuprobe_os::color::Tone;

pub(crate) fn style(tone: Tone) -> Style {
    match tone {
        Tone::Heading => Style::new().bold(),
        Tone::Dim => Style::new().dim(),
        Tone::Bad => Style::new().red(),
        Tone::Warning => Style::new().yellow(),
        Tone::Good => Style::new().green(),
    }
}

/// The lines of a text that was painted with tones.
pub(crate) fn lines(painted: &str) -> Vec<Line<'static>> {
    let span = |part: &str| match part.split_once('m').filter(|_| part.starts_with('[')) {
        None => Span::raw(part.to_owned()),
        Some((sequence, text)) => {
            let begins = |tone: &Tone| tone.paint("x")[1..].starts_with(&format!("{sequence}m"));
            let tone = Tone::ALL.into_iter().find(begins);
            Span::styled(text.to_owned(), tone.map_or(Style::new(), style))
        }
    };
    let line = |line: &str| line.split('\u{1b}').map(span).collect();
    painted.lines().map(line).collect()
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
    kinds: impl Iterator<Item = (MemoryKind, u64)> + Clone,
    width: usize,
) -> Line<'static> {
    let all: u128 = kinds.clone().map(|(_, bytes)| u128::from(bytes)).sum();
    let (mut before, mut drawn) = (0u128, 0);
    let spans = kinds.map(|(kind, bytes)| {
        before += u128::from(bytes);
        let end = usize::try_from(before * width as u128 / all.max(1)).unwrap_or(width);
        let (letter, color) = mark(kind);
        let text: String = std::iter::repeat_n(letter, end - drawn).collect();
        drawn = end;
        Span::styled(text, color)
    });
    spans.collect()
}

/// A bar of `width` characters, filled up to `share`, 0 to 1.
pub(crate) fn gauge(share: f64, width: usize) -> String {
    let filled = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    format!("[{:width$}]", "|".repeat(filled))
}

/// A sparkline of values up to `most`, for a line among other text.
pub(crate) fn spark(values: &[Option<u64>], most: u64) -> Span<'static> {
    let mut row = Buffer::empty(Rect::new(0, 0, values.len() as u16, 1));
    let mut bars = NINE_LEVELS;
    bars.empty = ONE_EIGHTH;
    let sparkline = Sparkline::default().data(values.to_vec()).max(most);
    sparkline.bar_set(bars).render(row.area, &mut row);
    let text: String = row.content.iter().map(Cell::symbol).collect();
    Span::styled(text, Color::Cyan)
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_divided_by_bytes() {
        let bar = |kinds: &[(MemoryKind, u64)], width| {
            kinds_bar(kinds.iter().copied(), width).to_string()
        };
        let kinds = [
            (MemoryKind::Device, 3),
            (MemoryKind::Pinned, 1),
            (MemoryKind::Async, 0),
        ];
        assert_eq!(bar(&kinds, 8), "ddddddpp");
        assert_eq!(bar(&[], 8), "");
        let largest = [(MemoryKind::Device, u64::MAX), (MemoryKind::Vmm, u64::MAX)];
        assert_eq!(bar(&largest, 4), "ddvv");
    }

    #[test]
    fn gauges_and_sparklines_have_the_height_of_their_values() {
        assert_eq!(gauge(0.5, 4), "[||  ]");
        assert_eq!(gauge(7.0, 2), "[||]");
        let values = [None, Some(0), Some(50), Some(100), Some(u64::MAX)];
        assert_eq!(spark(&values, 100).content, " ▁▄██");
        assert_eq!(spark(&[Some(0)], 0).content, "▁");
    }

    #[test]
    fn painted_text_keeps_its_tones() {
        let painted = format!("a {} b", Tone::Bad.paint("LEAK"));
        let [line] = &lines(&painted)[..] else {
            panic!("several lines");
        };
        assert_eq!(line.to_string(), "a LEAK b");
        assert_eq!(line.spans[1].style.fg, Some(Color::Red));
        assert_eq!(line.spans[2].style, Style::new());
    }
}
