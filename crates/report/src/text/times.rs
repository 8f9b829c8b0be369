//! Durations in tables.

use std::io::{self, Write};

use super::table::Column;
use crate::activity::{BusyShares, Times};
use crate::words::columns_of;

/// Columns of [`Times`] besides their number; narrow lines have the first ones only.
pub(crate) const TIMES: [Column; 6] = [
    Column::right("TOTAL"),
    Column::right("MEAN"),
    Column::right("MEDIAN").needs_width(140),
    Column::right("P99").needs_width(100),
    Column::right("MIN").needs_width(160),
    Column::right("MAX").needs_width(160),
];

/// The same for copies, whose other columns are more.
pub(crate) const COPY_TIMES: [Column; 6] = [
    Column::right("TOTAL").needs_width(120),
    Column::right("MEAN").needs_width(120),
    Column::right("MEDIAN").needs_width(160),
    Column::right("P99").needs_width(120),
    Column::right("MIN").needs_width(160),
    Column::right("MAX").needs_width(160),
];

/// The cells of [`TIMES`]; empty ones if nobody measured.
pub(crate) fn cells(times: Option<&Times>) -> [String; 6] {
    let Some(times) = times else {
        return Default::default();
    };
    [
        time(times.total_ns as f64),
        time(times.mean_ns),
        time(times.median_ns as f64),
        time(times.p99_ns as f64),
        time(times.min_ns as f64),
        time(times.max_ns as f64),
    ]
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

/// A cell of a column whose heading says of what it is a part.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// Gigabytes per second: links and vendors count in powers of ten.
pub(crate) fn gigabytes(bytes_per_second: Option<f64>) -> String {
    bytes_per_second.map_or_else(String::new, |speed| format!("{:.1}", speed / 1e9))
}

/// Writes `head` and the shares of a time after it, or below it where there is no room.
pub(crate) fn write_shares(
    head: &str,
    of: &BusyShares,
    of_ns: f64,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let shares = shares(of, of_ns);
    let taken = columns_of(head) + 2 + columns_of(&shares);
    if width.is_some_and(|width| taken > width) {
        let indent = head.chars().take_while(|c| *c == ' ').count() + 2;
        write!(out, "{head}")?;
        let mut room = 0;
        for part in shares.split_inclusive(',') {
            let taken = columns_of(part);
            if room < taken {
                write!(out, "\n{:indent$}{}", "", part.trim_start())?;
                room = width.unwrap_or(usize::MAX).saturating_sub(indent);
            } else {
                write!(out, "{part}")?;
            }
            room = room.saturating_sub(taken);
        }
        return writeln!(out);
    }
    writeln!(out, "{head}  {shares}")
}

/// `kernels 2.3 %, copies 97.0 %, idle 0.7 % of 12.3 s`; memory sets and graphs where there are any.
fn shares(shares: &BusyShares, of_ns: f64) -> String {
    let rare = |what: &str, share: f64| match share > 0.0 {
        true => format!("{what} {} %, ", percent(share)),
        false => String::new(),
    };
    format!(
        "kernels {} %, copies {} %, {}{}idle {} % of {}",
        percent(shares.kernels),
        percent(shares.copies),
        rare("sets", shares.sets),
        rare("graphs", shares.graphs),
        percent(shares.idle),
        short(of_ns),
    )
}

/// A time of which something is a part: `12.3 s`.
fn short(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_go_on_in_the_next_line() {
        let of = BusyShares {
            kernels: 0.023,
            copies: 0.97,
            sets: 0.001,
            graphs: 0.5,
            idle: 0.007,
        };
        let written = |width: usize| {
            let mut out = Vec::new();
            let result = write_shares("  GPU 0 H200", &of, 12.3e9, Some(width), &mut out);
            assert!(result.is_ok());
            String::from_utf8_lossy(&out).into_owned()
        };
        let all = "kernels 2.3 %, copies 97.0 %, sets 0.1 %, graphs 50.0 %, idle 0.7 % of 12.3 s";
        assert_eq!(written(120), format!("  GPU 0 H200  {all}\n"));
        let broken = all.replace(" idle", "\n    idle");
        assert_eq!(written(80), format!("  GPU 0 H200\n    {broken}\n"));
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
}
