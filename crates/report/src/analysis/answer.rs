//! Answers in every format.

use std::io::{self, Write};

use anyhow::{Context, Result};
use serde::Serialize;

use super::activity::{Copies, Kernels};
use super::listing::Listing;
use super::report::Format;
use super::{diff, text};
use gpuprobe_recording::chains::Stack;

/// Writes answers in a format.
pub(super) struct Answer {
    pub(super) format: Format,
    /// Rows at most, in text.
    pub(super) top: usize,
}

pub(super) fn written(result: io::Result<()>) -> Result<()> {
    result.context("cannot write the report")
}

pub(super) fn json(value: &impl Serialize, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer(&mut *out, value)
        .map_err(io::Error::from)
        .context("cannot write the report")?;
    written(out.write_all(b"\n"))
}

impl Answer {
    fn table(
        &self,
        columns: &[&str],
        rows: impl Iterator<Item = Vec<String>>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let is_tsv = self.format == Format::Tsv;
        let mut table = csv::WriterBuilder::new()
            .delimiter(if is_tsv { b'\t' } else { b',' })
            .quote_style(if is_tsv {
                csv::QuoteStyle::Never
            } else {
                csv::QuoteStyle::Necessary
            })
            .from_writer(out);
        let wrote = |result: csv::Result<()>| {
            result
                .map_err(io::Error::from)
                .context("cannot write the report")
        };
        wrote(table.write_record(columns))?;
        for row in rows {
            let fields = row.iter().map(|field| match is_tsv {
                true => field.replace(['\t', '\n', '\r'], " "),
                false => field.clone(),
            });
            wrote(table.write_record(fields))?;
        }
        written(table.flush())
    }

    pub(super) fn listing(&self, listing: &Listing, out: &mut dyn Write) -> Result<()> {
        match self.format {
            Format::Text => return written(text::listing(listing, self.top, out)),
            Format::Json => return json(listing, out),
            Format::Tsv | Format::Csv => {}
        }
        if let Some(groups) = &listing.groups {
            let columns = ["bytes", "allocations", "kind", "operation", "call_stack"];
            let rows = groups.iter().map(|group| {
                let operation = group.operation.as_deref().unwrap_or("").to_owned();
                let (bytes, count) = (group.bytes.to_string(), group.allocations.to_string());
                vec![
                    bytes,
                    count,
                    group.kind.to_owned(),
                    operation,
                    line(&group.stack),
                ]
            });
            return self.table(&columns, rows, out);
        }
        let columns = [
            "pid",
            "tid",
            "device",
            "address",
            "start_time",
            "bytes",
            "kind",
            "operation",
            "var_name",
            "trace",
            "call_stack",
        ];
        let rows = listing.allocations.iter().flatten().map(|row| {
            vec![
                row.pid.to_string(),
                row.tid.map_or(String::new(), |tid| tid.to_string()),
                row.device.to_string(),
                format!("{:#x}", row.address),
                row.start_ns.to_string(),
                row.bytes.to_string(),
                row.kind.to_owned(),
                row.operation.as_deref().unwrap_or("").to_owned(),
                row.variable.as_deref().unwrap_or("").to_owned(),
                row.trace.name().to_owned(),
                line(&row.stack),
            ]
        });
        self.table(&columns, rows, out)
    }

    pub(super) fn kernels(&self, kernels: &Kernels, out: &mut dyn Write) -> Result<()> {
        match self.format {
            Format::Text => return written(text::kernels(kernels, self.top, out)),
            Format::Json => return json(kernels, out),
            Format::Tsv | Format::Csv => {}
        }
        let number = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
        let rows = kernels.kernels.iter().map(|kernel| {
            vec![
                kernel.name.to_string(),
                kernel.launches.to_string(),
                number(kernel.captured),
                number(kernel.gpu_ns),
                kernel
                    .mean_ns()
                    .map_or(String::new(), |mean| format!("{mean:.0}")),
                number(kernel.shortest_ns),
                number(kernel.longest_ns),
            ]
        });
        let columns = [
            "name",
            "launches",
            "captured",
            "gpu_ns",
            "mean_ns",
            "shortest_ns",
            "longest_ns",
        ];
        self.table(&columns, rows, out)
    }

    pub(super) fn copies(&self, copies: &[Copies], out: &mut dyn Write) -> Result<()> {
        match self.format {
            Format::Text => return written(text::copies(copies, out)),
            Format::Json => return json(&copies, out),
            Format::Tsv | Format::Csv => {}
        }
        let rows = copies.iter().map(|copy| {
            vec![
                copy.direction.clone(),
                copy.mode.clone(),
                copy.count.to_string(),
                copy.bytes.to_string(),
                copy.ns.map_or(String::new(), |ns| ns.to_string()),
                copy.bytes_per_second
                    .map_or(String::new(), |speed| format!("{speed:.0}")),
            ]
        });
        let columns = [
            "direction",
            "mode",
            "count",
            "bytes",
            "ns",
            "bytes_per_second",
        ];
        self.table(&columns, rows, out)
    }

    pub(super) fn diff(&self, diff: &diff::Diff, out: &mut dyn Write) -> Result<()> {
        match self.format {
            Format::Text => return written(text::diff(diff, self.top, out)),
            Format::Json => return json(diff, out),
            Format::Tsv | Format::Csv => {}
        }
        let rows = [("watermark", &diff.at_peak), ("leakage", &diff.never_freed)];
        let rows = rows.into_iter().flat_map(|(what, stacks)| {
            stacks.iter().map(move |grown| {
                vec![
                    what.to_owned(),
                    grown.delta().to_string(),
                    grown.bytes[0].to_string(),
                    grown.bytes[1].to_string(),
                    grown.stack.join(" -> "),
                ]
            })
        });
        self.table(
            &["analysis", "delta", "before", "after", "call_stack"],
            rows,
            out,
        )
    }
}

/// A call stack on one line, innermost frame first.
fn line(stack: &Stack) -> String {
    let frames = stack
        .iter()
        .map(|frame| format!("[{}] ({})", frame.function, frame.module));
    frames.collect::<Vec<_>>().join(" -> ")
}
