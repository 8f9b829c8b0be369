//! Help: the effect of each key.

use ratatui_core::style::Color;
use ratatui_core::text::{Line, Span};

use gpuprobe_cuda::MemoryKind;
use gpuprobe_os::color::Tone;

use super::ScreenConfig;
use super::look::{Theme, mark};

const KEYS: &[(&str, &str)] = &[
    (
        "up, down, j, k",
        "select a row; page up, page down, g and G go further",
    ),
    ("enter, right, l", "open the process or call site"),
    ("esc, left, h", "back"),
    (
        "tab, shift-tab",
        "the next, or the previous, tab of a process",
    ),
    (
        "/",
        "filter: rows that contain the text; enter keeps it, esc clears it",
    ),
    ("< >", "sort by another column"),
    ("i", "sort the other way round"),
    ("t", "children below their parents"),
    (
        "e",
        "explain what the process holds: whether it leaks, and whose memory it is",
    ),
    (
        "f",
        "write a flame graph of the memory that the process holds",
    ),
    ("q, ctrl-c", "quit"),
];
const MOUSE: &[(&str, &str)] = &[
    (
        "click",
        "select a row, open a tab, or sort by a column; a second click opens the row or sorts the other way round",
    ),
    ("wheel", "scroll"),
];
const LIVE: &[(&str, &str)] = &[
    ("space", "pause the view; tracing goes on"),
    ("r", "start a recording of the process, or stop it"),
];
const REPLAY: &[(&str, &str)] = &[
    ("space", "stop time, or resume it"),
    ("[ ] { }", "10 seconds, or a minute, earlier or later"),
    ("- +", "play at half or double the speed"),
];
const NOTES: &[&str] = &[
    "HELD is live GPU memory, % its share of the memory of the GPUs that it is on; PER MIN is its change over the \
     last minute. VERDICT is the gravest of the 20 largest call sites (gpuprobe explain), judged every five seconds. LAUNCH/S and GB/S are since the \
     last report. LOST counts events of the process that were lost.",
    "GPUs: used of total as nvidia-smi has it, tracked by gpuprobe, other: everything else; busy: time with a kernel. \
     The curve is the used memory of the last two minutes.",
];

/// The lines of the help, `columns` wide.
pub(crate) fn lines(config: ScreenConfig, columns: usize) -> Vec<Line<'static>> {
    let theme = Theme {
        colored: config.colored,
    };
    let heading = |text: &str| Line::styled(text.to_owned(), theme.tone(Tone::Heading));
    let mut lines = vec![heading("keys")];
    let others = if config.is_replay { REPLAY } else { LIVE };
    let mouse = if config.mouse { MOUSE } else { &[] };
    for (keys, what) in KEYS.iter().chain(others).chain(mouse) {
        let room = columns.saturating_sub(20);
        for (place, part) in wrapped(what, room).into_iter().enumerate() {
            let keys = if place == 0 { keys } else { "" };
            lines.push(Line::from(vec![
                Span::styled(format!("  {keys:<16}"), theme.color(Color::Cyan)),
                Span::raw(part),
            ]));
        }
    }
    lines.push(Line::default());
    lines.push(heading("kinds of memory in bars"));
    let kinds = MemoryKind::ALL.into_iter().filter(|kind| kind.is_traced());
    let kinds = kinds.map(|kind| format!("{} {}", mark(kind).0, kind.name()));
    let kinds: Vec<_> = kinds.collect();
    let indented = |line: String| Line::from(format!("  {line}"));
    let room = columns.saturating_sub(2);
    lines.extend(wrapped(&kinds.join(", "), room).into_iter().map(indented));
    lines.push(Line::default());
    lines.push(heading("figures"));
    for note in NOTES {
        lines.extend(wrapped(note, room).into_iter().map(indented));
    }
    lines
}

/// `text` in lines of at most `columns`, where its words allow.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let taken = lines.last().map_or(0, |line| line.chars().count());
        if taken > 0 && taken + 1 + word.chars().count() > columns {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
