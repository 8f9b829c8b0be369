//! How people write amounts, times and who a process is: what every text is made of.

use serde::Serialize;

use gpuprobe_model::Lost;
use gpuprobe_model::identity::Identity;
use gpuprobe_model::text::{printable, size, width};
use gpuprobe_os::color::{Tone, unpainted};

use crate::names;

/// `1 site`, `2 sites`, `2 launches`, `2 copies`.
pub fn plural(number: u64, what: &str) -> String {
    let plural = match number {
        1 => "",
        _ if what.ends_with("ch") || what.ends_with("ss") => "es",
        _ => "s",
    };
    match what.strip_suffix('y').filter(|_| number != 1) {
        Some(stem) => format!("{number} {stem}ies"),
        None => format!("{number} {what}{plural}"),
    }
}

/// Columns that a painted text takes.
pub fn columns_of(text: &str) -> usize {
    width(&unpainted(text))
}

/// Of secondary interest.
pub fn dim(text: &str) -> String {
    Tone::Dim.paint(text)
}

/// Who a process is, as far as that is known.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Who {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// User id.
    pub uid: Option<u32>,
    /// Name (comm) of the process.
    pub comm: Option<String>,
    /// Name of its user.
    pub user: Option<String>,
    /// Its command line, possibly truncated.
    pub command: Option<String>,
}

/// Characters of a command that are shown.
const MAX_COMMAND: usize = 200;

impl Who {
    /// A process of this id, user and comm.
    pub(crate) fn of(pid: u32, uid: Option<u32>, comm: Option<&str>, identity: &Identity) -> Self {
        Self {
            user: identity.user.clone(),
            command: identity.command.clone(),
            ..Self::named(pid, uid, comm)
        }
    }

    /// A process of which no more is known.
    pub(crate) fn named(pid: u32, uid: Option<u32>, comm: Option<&str>) -> Self {
        Self {
            pid,
            uid,
            comm: comm.map(str::to_owned),
            ..Self::default()
        }
    }

    /// `python3 train.py`: the words of the command, without the folders of its files.
    pub fn program(&self) -> String {
        let Some(command) = &self.command else {
            return printable(self.comm.as_deref().unwrap_or("?"));
        };
        let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
        // What an interpreter runs is its first word that is no option.
        let mut files = 2;
        let mut shown = String::new();
        for word in command.split(' ') {
            let is_file = files > 0 && !word.starts_with('-');
            files -= u32::from(is_file);
            let word = if is_file { base(word) } else { word.to_owned() };
            if !shown.is_empty() && columns_of(&shown) + 1 + columns_of(&word) > MAX_COMMAND {
                shown += " ...";
                break;
            }
            shown += if shown.is_empty() { "" } else { " " };
            shown += &word;
        }
        printable(&shown)
    }

    /// Name of the user, or its number.
    pub fn user(&self) -> String {
        match (&self.user, self.uid) {
            (Some(user), _) => printable(user),
            (None, Some(uid)) => format!("uid {uid}"),
            (None, None) => String::new(),
        }
    }

    /// `python3 train.py (pid 574, ada)`.
    pub fn with_pid(&self) -> String {
        let user = match self.user() {
            user if user.is_empty() => user,
            user => format!(", {user}"),
        };
        format!("{} (pid {}{user})", self.program(), self.pid)
    }

    /// `python3 train.py  pid 574 ada`, and that it has ended.
    pub fn title(&self, exited: bool) -> String {
        let user = self.user();
        let gap = if user.is_empty() { "" } else { " " };
        let ended = if exited { "  (ended)" } else { "" };
        format!("{}  pid {}{gap}{user}{ended}", self.program(), self.pid)
    }
}

/// A change: `+32.00 MiB`, `-1.50 GiB`, `0`.
pub fn signed_size(bytes: impl Into<i128>) -> String {
    let bytes = bytes.into();
    let amount = size(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX));
    match bytes {
        0 => "0".into(),
        1.. => format!("+{amount}"),
        _ => format!("-{amount}"),
    }
}

/// `H200` of `NVIDIA H200`.
pub fn short_model(name: &str) -> String {
    let name = printable(name);
    let name = name.trim_start_matches("NVIDIA ");
    name.trim_start_matches("GeForce ").to_owned()
}

/// A time in its largest unit: `850ms`, `4.2s`, `59s`, `4m`, `3h`, `2d`.
pub fn short_age(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0 if ns < 1_000_000 => "0s".into(),
        0 => format!("{}ms", ns / 1_000_000),
        1..10 => format!("{seconds}.{}s", ns / 100_000_000 % 10),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A time in its two largest units: `4m12s`.
pub fn age(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        86_400.. => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
        _ => short_age(ns),
    }
}

/// `20.00 MiB in 5 allocations`.
pub fn amount(bytes: u64, allocations: u64) -> String {
    let allocations = plural(allocations, "allocation");
    format!("{} in {allocations}", size(bytes))
}

/// Blocks of a bar, in eighths.
pub fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// `8x16`: ones at the end, and sizes that are not known, are left out.
pub fn dimensions(dimensions: [u32; 3]) -> String {
    match dimensions {
        [0, ..] => String::new(),
        [x, 1, 1] => x.to_string(),
        [x, y, 1] => format!("{x}x{y}"),
        [x, y, z] => format!("{x}x{y}x{z}"),
    }
}

/// `38.0` of 0.38.
pub fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// Three or four digits, and the unit that fits.
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.3} ms", ns / 1e6),
        ns => format!("{:.3} s", ns / 1e9),
    }
}

/// The lines of a painted text, those that go on behind `indent`. They break between two parts, which two spaces
/// separate, or else between words, or else beside a number. A word that is too long loses its middle.
pub fn wrapped(text: &str, columns: usize, indent: usize) -> Vec<String> {
    let indent = indent.min(columns / 2);
    let mut lines = Vec::new();
    let mut rest = text.to_owned();
    while columns_of(&rest) > columns {
        let spaces = rest
            .match_indices(' ')
            .map(|(at, _)| (columns_of(&rest[..at]), at));
        let mut spaces = spaces.filter(|(taken, _)| *taken > indent);
        let fitting = spaces.clone().take_while(|(taken, _)| *taken <= columns);
        let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let rank = |(taken, at): (usize, usize)| match rest[at..].strip_prefix("  ") {
            _ if taken <= columns / 3 => 0,
            Some(_) => 3,
            None if is_digit(rest[..at].chars().next_back()) => 1,
            None if is_digit(rest[at..].chars().nth(1)) => 1,
            None => 2,
        };
        let best = fitting.max_by_key(|&place| (rank(place), place));
        let (line, at) = match best {
            Some((_, at)) => (rest[..at].trim_end().to_owned(), at),
            None => {
                let at = spaces.next().map_or(rest.len(), |(_, at)| at);
                (names::cut(&unpainted(&rest[..at]), columns), at)
            }
        };
        lines.push(line);
        let more = rest[at..].trim_start_matches(' ');
        if more.is_empty() {
            return lines;
        }
        rest = format!("{:indent$}{more}", "");
    }
    lines.push(rest);
    lines
}

/// The non-zero losses, in words.
pub fn describe_lost(lost: &Lost) -> String {
    let counts = lost.in_words().into_iter();
    let counts = counts.filter(|(count, _)| *count > 0);
    let parts: Vec<_> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn changes_have_a_sign() {
        assert_eq!(signed_size(0), "0");
        assert_eq!(signed_size(-(512 << 10)), "-512.00 KiB");
        assert_eq!(signed_size(i64::MIN), "-8.00 EiB");
    }

    #[test]
    fn ages() {
        let of = |ms: u64| (short_age(ms * 1_000_000), age(ms * 1_000_000));
        assert_eq!(of(999), ("999ms".into(), "999ms".into()));
        assert_eq!(of(4_260), ("4.2s".into(), "4.2s".into()));
        assert_eq!(of(252_000), ("4m".into(), "4m12s".into()));
        assert_eq!(of(3_720_000), ("1h".into(), "1h02m".into()));
        assert_eq!(age(u64::MAX), "213503d23h");
    }

    #[test]
    fn bars_are_filled_in_eighths() {
        assert_eq!(bar(0.38, 10), "███▊");
        assert_eq!(bar(2.0, 3), "███");
        assert_eq!(bar(f64::NAN, 3), "");
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        for (ns, expected) in [
            (0.0, "0 ns"),
            (999.0, "999 ns"),
            (1_500.0, "1.50 us"),
            (2_345_678.0, "2.346 ms"),
            (61e9, "61.000 s"),
        ] {
            assert_eq!(time(ns), expected);
        }
    }

    #[test]
    fn commands_are_shown_without_folders() {
        let program = |command| {
            let command = Some(str::to_owned(command));
            Who {
                command,
                comm: Some("python3".to_owned()),
                ..Who::default()
            }
            .program()
        };
        assert_eq!(
            program("/usr/bin/python3 /home/ada/train.py --lr 0.1"),
            "python3 train.py --lr 0.1"
        );
        assert_eq!(program("python3 -u /srv/a.py"), "python3 -u a.py");
        assert_eq!(program("./app"), "app");
        let long = format!("./app {}", "x".repeat(MAX_COMMAND));
        assert_eq!(program(&long), "app ...");
        assert_eq!(
            Who {
                comm: Some("a\nb".to_owned()),
                ..Who::default()
            }
            .program(),
            "a\\nb"
        );
    }

    #[test]
    fn lines_break_between_parts_else_between_words() {
        let held = "held 3.28 GiB in 7 allocations  (peak 3.28 GiB, 1.9s ago)  host 1.00 MiB";
        assert_eq!(
            wrapped(held, 60, 2),
            [
                "held 3.28 GiB in 7 allocations  (peak 3.28 GiB, 1.9s ago)",
                "  host 1.00 MiB"
            ]
        );
        let list = "by library: libtorch 2.70 GiB, libcublas 389.00 MiB, _pool 160.00 MiB";
        let lines = wrapped(list, 48, 2);
        assert_eq!(lines[1], "  libcublas 389.00 MiB, _pool 160.00 MiB");
        let path = "in /opt/conda/lib/python3.12/site-packages/model.py:4123";
        assert_eq!(wrapped(path, 30, 0)[1], "/opt/conda/lib/…/model.py:4123");
        assert_eq!(wrapped(path, usize::MAX, 2), [path]);
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_page(
            words in proptest::collection::vec(("\\PC{0,40}", 1_usize..4), 0..12),
            columns in 8_usize..200,
            indent in 0_usize..30,
            tone in prop_oneof![Just(None), Just(Some(Tone::Bad))],
        ) {
            let words = words.iter().map(|(word, gap)| {
                let word = word.replace('\u{1b}', "");
                let word = tone.map_or_else(|| word.clone(), |tone| tone.paint(&word));
                word + &" ".repeat(*gap)
            });
            let text: String = words.collect();
            for line in wrapped(&text, columns, indent) {
                prop_assert!(columns_of(&line) <= columns, "{} of {}", line, columns);
            }
        }
    }
}
