//! Help: the effect of each key.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_os::color::Tone;
use gpuprobe_report::words::wrapped;

use super::style::mark;

/// Keys, two spaces, and what they do.
const KEYS: &[&str] = &[
    "up, down, j, k  select a row; page up, page down, g and G go further",
    "enter, right, l  open the process or call site",
    "esc, left, h  back",
    "tab, shift-tab  the next, or the previous, tab of a process",
    "/  filter: rows that contain the text; enter keeps it, esc clears it",
    "< >  sort by another column",
    "i  sort the other way round",
    "t  children below their parents",
    "e  explain what the process holds: whether it leaks, and whose memory it is",
    "f  write a flame graph of the memory that the process holds",
    "q, ctrl-c  quit",
];
const LIVE: &[&str] = &[
    "space  pause the view; tracing goes on",
    "r  start a recording of the process, or stop it",
];
const REPLAY: &[&str] = &[
    "space  stop time, or resume it",
    "[ ] { }  10 seconds, or a minute, earlier or later",
    "- +  play at half or double the speed",
];
const NOTES: &[&str] = &[
    "HELD is live GPU memory, % its share of the memory of the GPUs that it is on; LAST MIN is its change over the \
     last minute. VERDICT is the worst of the 20 largest call sites (gpuprobe explain), judged every five seconds, and TOP SITE where that is. LAUNCH/S and GB/S are since the \
     last report. LOST counts events of the process that were lost.",
    "GPUs: used of total as nvidia-smi has it, tracked by gpuprobe, other: everything else; busy: time with a kernel. \
     The curve is the used memory of the last two minutes.",
];

/// The help, `columns` wide, painted with tones.
pub(crate) fn text(is_replay: bool, columns: usize) -> String {
    let mut lines = vec![Tone::Heading.paint("keys")];
    let others = if is_replay { REPLAY } else { LIVE };
    for line in KEYS.iter().chain(others) {
        let (keys, what) = line.split_once("  ").unwrap_or((line, ""));
        lines.extend(wrapped(&format!("  {keys:<16}{what}"), columns, 18));
    }
    lines.push(String::new());
    lines.push(Tone::Heading.paint("kinds of memory in bars"));
    let kinds = MemoryKind::ALL.into_iter().filter(|kind| kind.is_traced());
    let kinds = kinds.map(|kind| format!("{} {}", mark(kind).0, kind.name()));
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    lines.extend(wrapped(&format!("  {kinds}"), columns, 2));
    lines.push(String::new());
    lines.push(Tone::Heading.paint("figures"));
    for note in NOTES {
        lines.extend(wrapped(&format!("  {note}"), columns, 2));
    }
    lines.join("\n")
}
