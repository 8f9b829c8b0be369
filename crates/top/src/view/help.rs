//! Help: what was lost, and the effect of each key.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_os::color::Tone;
use gpuprobe_report::words::{age, describe_lost, wrapped};
use gpuprobe_views::text::describe_losers;

use super::style::mark;
use crate::feed::Update;

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

/// Processes with losses that are named, at most.
const MAX_LOSERS: usize = 8;
/// What losses mean.
const LOST: &str = "Figures of these processes are incomplete: HELD is too low where an allocation was lost, too high \
                    where a free was; without its call stack, memory counts but has no line. Other processes' figures \
                    are right. A trace of one process (--pid) loses less.";

/// What was lost, of whom, since when, and what that means, in lines `columns` wide; nothing if nothing was.
/// `seen_ns` is when a loss was first seen, and when the last was.
fn losses(update: &Update, seen_ns: (u64, u64), columns: usize) -> Vec<String> {
    let ago = |ns| age(update.now_ns.saturating_sub(ns));
    let (first, last) = (ago(seen_ns.0), ago(seen_ns.1));
    let lost = describe_lost(&update.report.lost);
    let mut losers = describe_losers(&update.report.lost_by_user);
    losers.truncate(MAX_LOSERS);
    let said = [format!("{lost}; first seen {first} ago, last {last} ago")];
    let said = said.into_iter().chain(losers);
    let said = said.chain([LOST.to_owned(), String::new()]);
    let mut lines = vec![Tone::Bad.paint("lost events")];
    lines.extend(said.flat_map(|line| wrapped(&format!("  {line}"), columns, 2)));
    lines
}

/// The help, `columns` wide, painted with tones: first the losses of a report, if there are any, which were first and
/// last seen at `lost_ns`.
pub(crate) fn text(
    is_replay: bool,
    update: Option<&Update>,
    lost_ns: Option<(u64, u64)>,
    columns: usize,
) -> String {
    let lost = update.zip(lost_ns);
    let mut lines = lost.map_or(Vec::new(), |(update, ns)| losses(update, ns, columns));
    lines.push(Tone::Heading.paint("keys"));
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
