//! How people write amounts, times and who a process is: what every text is made of.

use std::io::{self, Write};

use gpuprobe_model::text::{printable, size, width};
use gpuprobe_os::color::{Tone, unpainted};

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
pub(crate) fn columns_of(text: &str) -> usize {
    width(&unpainted(text))
}

/// Of secondary interest.
pub(crate) fn dim(text: &str) -> String {
    Tone::Dim.paint(text)
}

/// Who a process is, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Who<'a> {
    /// Process id on the host.
    pub pid: u32,
    /// Name (comm) of the process.
    pub comm: Option<&'a str>,
    /// Command line, as far as known.
    pub command: Option<&'a str>,
    /// Name of its user.
    pub user: Option<&'a str>,
    /// Id of its user.
    pub uid: Option<u32>,
    /// Whether it has ended.
    pub exited: bool,
}

/// Characters of a command that are shown.
const MAX_COMMAND: usize = 40;

impl Who<'_> {
    /// `python3 train.py`: the words of the command, without the folders of its files.
    pub fn program(&self) -> String {
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
    pub fn user(&self) -> String {
        match (self.user, self.uid) {
            (Some(user), _) => printable(user),
            (None, Some(uid)) => format!("uid {uid}"),
            (None, None) => String::new(),
        }
    }

    /// `python3 train.py  pid 574 ada`, and that it has ended.
    pub fn title(&self) -> String {
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

/// A change: `+32.00 MiB`, `-1.50 GiB`, `0`.
pub fn signed_size(bytes: i64) -> String {
    match bytes {
        0 => "0".into(),
        1.. => format!("+{}", size(bytes.unsigned_abs())),
        _ => format!("-{}", size(bytes.unsigned_abs())),
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
pub(crate) fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// `8x16`: ones at the end, and sizes that are not known, are left out.
pub(crate) fn dimensions(dimensions: [u32; 3]) -> String {
    match dimensions {
        [0, ..] => String::new(),
        [x, 1, 1] => x.to_string(),
        [x, y, 1] => format!("{x}x{y}"),
        [x, y, z] => format!("{x}x{y}x{z}"),
    }
}

/// `38.0` of 0.38.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// Three or four digits, and the unit that fits.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.3} ms", ns / 1e6),
        ns => format!("{:.3} s", ns / 1e9),
    }
}

/// Writes a sentence: its first line behind `first`, the others behind as much room.
///
/// # Errors
/// Returns the error of `out`.
pub fn wrapped(
    first: &str,
    said: &str,
    columns: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let indent = columns_of(first);
    let room = columns.unwrap_or(usize::MAX).saturating_sub(indent);
    let mut lines = vec![String::new()];
    for word in said.split(' ') {
        let line = lines.last_mut().map_or(0, |line| columns_of(line));
        if line > 0 && line + 1 + columns_of(word) > room {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    for (index, line) in lines.iter().enumerate() {
        match index {
            0 => writeln!(out, "{first}{line}")?,
            _ => writeln!(out, "{:indent$}{line}", "")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
