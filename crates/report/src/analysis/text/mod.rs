//! Analyses for people.

mod listing;
mod summary;
mod work;

use std::io::{self, Write};

use chrono::{DateTime, FixedOffset};

use super::diff::{Diff, Grown};
use super::totals::{Amount, Findings, Totals};
use gpuprobe_model::clock::rfc3339_micros;
use gpuprobe_model::text::{printable, size};

pub(super) use listing::listing;
pub(super) use summary::summary;
pub(super) use work::{copies, kernels};

fn headline(
    what: &str,
    time_ns: Option<i64>,
    time: Option<DateTime<FixedOffset>>,
    sums: &Totals,
    host: Option<&Totals>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Amount { bytes, allocations } = sums.total;
    let human = size(bytes);
    write!(
        out,
        "{what}: {bytes} bytes ({human}) in {allocations} allocations"
    )?;
    if let Some(time) = time_ns {
        write!(out, ", {:.6} s after the first event", time as f64 / 1e9)?;
    }
    if let Some(time) = &time {
        write!(out, ", {}", rfc3339_micros(time))?;
    }
    writeln!(out)?;
    totals("", sums, out)?;
    match host {
        Some(host) => totals("host memory: ", host, out),
        None => Ok(()),
    }
}

fn totals(what: &str, totals: &Totals, out: &mut dyn Write) -> io::Result<()> {
    let part = |amount: Amount| format!("{} bytes in {}", amount.bytes, amount.allocations);
    writeln!(
        out,
        "  {what}with call stack {}, without {}, by the driver {}",
        part(totals.valid),
        part(totals.invalid),
        part(totals.driver)
    )
}

fn findings(findings: Option<&Findings>, out: &mut dyn Write) -> io::Result<()> {
    let Some(findings) = findings else {
        return Ok(());
    };
    let odd = [
        (
            findings.double_allocations,
            "allocations at an address that was not freed",
        ),
        (
            findings.unmatched_frees,
            "frees of memory that was not seen to be allocated",
        ),
        (
            findings.size_mismatches,
            "frees of another size than was allocated",
        ),
        (findings.malformed, "rows that make no sense"),
    ];
    for (count, what) in odd.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "note: {count} {what}")?;
    }
    if findings.events == 0 {
        writeln!(out, "note: no memory event in what was selected")?;
    }
    Ok(())
}

pub(super) fn diff(diff: &Diff, top: usize, out: &mut dyn Write) -> io::Result<()> {
    let parts = [
        ("watermark", diff.watermark, &diff.at_peak),
        ("leakage", diff.leaked, &diff.never_freed),
    ];
    for (what, [before, after], stacks) in parts {
        let delta = i128::from(after) - i128::from(before);
        writeln!(
            out,
            "{what}: {before} bytes before, {after} after ({delta:+})"
        )?;
        let changed: Vec<_> = stacks.iter().filter(|grown| grown.delta() != 0).collect();
        for grown in changed.iter().take(top) {
            write_grown(grown, out)?;
        }
        match changed.len().saturating_sub(top) {
            0 => {}
            rest => writeln!(out, "  ... and {rest} more")?,
        }
    }
    Ok(())
}

fn write_grown(grown: &Grown, out: &mut dyn Write) -> io::Result<()> {
    let [before, after] = grown.allocations;
    writeln!(
        out,
        "  {:+} bytes, {before} allocations before, {after} after",
        grown.delta()
    )?;
    for line in &grown.stack {
        writeln!(out, "    {}", printable(line))?;
    }
    Ok(())
}
