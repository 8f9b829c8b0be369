//! What the parts of a text report share: its width, its first line, and how people write amounts.

use std::cell::Cell;
use std::io::{self, Write};

use gpuprobe_model::text::{printable, size};

/// Where a report is written to.
pub(crate) struct Page {
    /// Columns of a line; `None` for lines of any length.
    pub(crate) columns: Option<usize>,
    /// The report is of a file, in which nothing goes on.
    pub(crate) is_of_file: bool,
    /// The time of the report, until a line has it.
    time: Cell<Option<String>>,
}

impl Page {
    /// A page of lines of `columns`, of a report of `time`.
    pub(crate) fn new(columns: Option<usize>, time: Option<String>) -> Self {
        Self {
            columns,
            is_of_file: false,
            time: Cell::new(time),
        }
    }

    /// A page of a report of a file.
    pub(crate) fn of_file(columns: Option<usize>) -> Self {
        Self {
            is_of_file: true,
            ..Self::new(columns, None)
        }
    }

    /// Writes the first line of a part; the first one of all has the time at its end.
    ///
    /// # Errors
    /// Returns an error if `out` cannot be written to.
    pub(crate) fn head(&self, line: &str, out: &mut dyn Write) -> io::Result<()> {
        let Some(time) = self.time.take() else {
            return writeln!(out, "{line}");
        };
        let taken = line.chars().count() + time.chars().count();
        match self.columns {
            // On a line of its own, where there is no room.
            Some(columns) if taken + 2 > columns => {
                writeln!(out, "{time:>columns$}")?;
                writeln!(out, "{line}")
            }
            Some(columns) => {
                let gap = " ".repeat(columns - taken);
                writeln!(out, "{line}{gap}{time}")
            }
            None => writeln!(out, "{line}  {time}"),
        }
    }

    /// Writes the time between two rules, as the first line of all, and all of it.
    ///
    /// # Errors
    /// Returns an error if `out` cannot be written to.
    pub(crate) fn rule(&self, out: &mut dyn Write) -> io::Result<()> {
        let rule = "-".repeat(20);
        match self.time.take() {
            Some(time) => writeln!(out, "{rule} {time} {rule}"),
            None => Ok(()),
        }
    }

    /// The same of a line of several parts, which goes on in the next where there is no room.
    ///
    /// # Errors
    /// Returns an error if `out` cannot be written to.
    pub(crate) fn head_parts(&self, parts: &[String], out: &mut dyn Write) -> io::Result<()> {
        let time = self.time.take();
        let room = time.as_ref().map_or(0, |time| time.chars().count() + 2);
        let width = self
            .columns
            .map_or(usize::MAX, |columns| columns.saturating_sub(room));
        let mut first = String::new();
        let mut rest = 0;
        for part in parts {
            let taken = first.chars().count() + 2 + part.chars().count();
            if !first.is_empty() && taken > width {
                break;
            }
            if !first.is_empty() {
                first += "  ";
            }
            first += part;
            rest += 1;
        }
        self.time.set(time);
        self.head(&first, out)?;
        match &parts[rest..] {
            [] => Ok(()),
            [part, parts @ ..] => {
                let first = [format!("  {part}")].into_iter();
                let parts: Vec<_> = first.chain(parts.iter().cloned()).collect();
                self.words(&parts, "  ", out)
            }
        }
    }

    /// The same of parts with commas between them.
    ///
    /// # Errors
    /// Returns an error if `out` cannot be written to.
    pub(crate) fn list(
        &self,
        parts: &[String],
        indent: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let last = parts.len().saturating_sub(1);
        let comma = |(index, part): (usize, &String)| {
            let comma = if index < last { "," } else { "" };
            format!("{part}{comma}")
        };
        let parts: Vec<_> = parts.iter().enumerate().map(comma).collect();
        self.words(&parts, indent, out)
    }

    /// Writes the words of a line, and goes on in the next where there is no room, with `indent`.
    ///
    /// # Errors
    /// Returns an error if `out` cannot be written to.
    pub(crate) fn words(
        &self,
        parts: &[String],
        indent: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let width = self.columns.unwrap_or(usize::MAX);
        let mut line = String::new();
        for part in parts {
            let taken = line.chars().count() + 2 + part.chars().count();
            if line.is_empty() {
                line += part;
            } else if taken > width {
                writeln!(out, "{line}")?;
                line = format!("{indent}{part}");
            } else {
                line += if line.ends_with(',') { " " } else { "  " };
                line += part;
            }
        }
        writeln!(out, "{line}")
    }
}

/// Who a process is, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Who<'a> {
    pub(crate) pid: u32,
    pub(crate) comm: Option<&'a str>,
    pub(crate) command: Option<&'a str>,
    pub(crate) user: Option<&'a str>,
    pub(crate) uid: Option<u32>,
    pub(crate) exited: bool,
}

/// Characters of a command that are shown.
const MAX_COMMAND: usize = 40;

impl Who<'_> {
    /// `python3 train.py`: the words of the command, without the folders of its files.
    pub(crate) fn program(&self) -> String {
        let Some(command) = self.command else {
            return printable(self.comm.unwrap_or("?"));
        };
        let mut words = command.split(' ');
        let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
        let mut shown = base(words.next().unwrap_or_default());
        // What an interpreter runs is its first word that is no option.
        let mut is_file = true;
        for word in words {
            let word = if is_file && !word.starts_with('-') {
                is_file = false;
                base(word)
            } else {
                word.to_owned()
            };
            if shown.chars().count() + 1 + word.chars().count() > MAX_COMMAND {
                shown += " ...";
                break;
            }
            shown += " ";
            shown += &word;
        }
        printable(&shown)
    }

    /// Name of the user, or its number.
    pub(crate) fn user(&self) -> String {
        match (self.user, self.uid) {
            (Some(user), _) => printable(user),
            (None, Some(uid)) => format!("uid {uid}"),
            (None, None) => String::new(),
        }
    }

    /// `python3 train.py  pid 574 ada`, and that it has ended.
    pub(crate) fn title(&self) -> String {
        let mut title = format!("{}  pid {}", self.program(), self.pid);
        let user = self.user();
        if !user.is_empty() {
            title += " ";
            title += &user;
        }
        if self.exited {
            title += "  (ended)";
        }
        title
    }
}

/// Bytes in three digits: `1.50 GiB`, `32.0 MiB`, `512 KiB`.
pub(crate) fn short_size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// The same of a change: `+32.0 MiB`, `-1.50 GiB`, `0`.
pub(crate) fn signed_size(bytes: i64) -> String {
    match bytes {
        0 => "0".into(),
        1.. => format!("+{}", short_size(bytes.unsigned_abs())),
        _ => format!("-{}", short_size(bytes.unsigned_abs())),
    }
}

/// Blocks of a bar, in eighths.
pub(crate) fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar += EIGHTHS[eighths % 8];
    bar
}

/// A time in its largest unit: `850ms`, `4.2s`, `59s`, `4m`, `3h`, `2d`.
pub(crate) fn short_age(ns: u64) -> String {
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
pub(crate) fn age(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        86_400.. => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
        _ => short_age(ns),
    }
}

/// `20.00 MiB in 5 allocations`.
pub(crate) fn amount(bytes: u64, allocations: u64) -> String {
    let allocations = super::table::plural(allocations, "allocation");
    format!("{} in {allocations}", size(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_in_few_digits() {
        assert_eq!(short_size(0), "0 B");
        assert_eq!(short_size(999), "999 B");
        assert_eq!(short_size(1000), "1000 B");
        assert_eq!(short_size(1000 << 20), "1000 MiB");
        assert_eq!(short_size(1024 << 20), "1.00 GiB");
        assert_eq!(short_size(32 << 20), "32.0 MiB");
        assert_eq!(short_size(3 << 29), "1.50 GiB");
        assert_eq!(short_size(u64::MAX), "16.0 EiB");
        assert_eq!(signed_size(0), "0");
        assert_eq!(signed_size(-(512 << 10)), "-512 KiB");
        assert_eq!(signed_size(i64::MIN), "-8.00 EiB");
        assert_eq!(bar(0.38, 10), "███▊");
        assert_eq!(bar(2.0, 3), "███");
        assert_eq!(bar(f64::NAN, 3), "");
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
    fn commands_are_shown_without_folders() {
        let program = |command| {
            let command = Some(command);
            Who {
                command,
                comm: Some("python3"),
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
        let long = format!("./app {}", "x".repeat(80));
        assert_eq!(program(&long), "app ...");
        assert_eq!(
            Who {
                comm: Some("a\nb"),
                ..Who::default()
            }
            .program(),
            "a\\nb"
        );
    }
}
