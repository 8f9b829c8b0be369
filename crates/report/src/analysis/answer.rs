//! Writes the results of analyses in every format.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

use anyhow::{Context, Result};
use serde::Serialize;

use super::file::Analysis;
use super::merged::MergedCalls;
use super::report::AnalysisFormat;
use super::tables::optional;
use super::{diff, tables, text};
use crate::csv::cell as csv_cell;
use crate::memleak::{AllocationReport, Memleak, ProcessReport, SiteReport, ThreadReport};
use crate::text::lines::laid_out;
use crate::{GroupBy, Report, SortBy, View};
use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_model::stack::Frame;
use gpuprobe_os::terminal::Layout;

/// Writes results in a format.
pub(super) struct AnalysisWriter {
    pub(super) format: AnalysisFormat,
    /// Limit on the rows of a list, in text.
    pub(super) top: usize,
    /// Width of lines and colours, in text.
    pub(super) layout: Layout,
    /// Grouping, filters and order of lists.
    pub(super) view: View,
    /// Whether host memory is listed, too.
    pub(super) host: bool,
}

/// An allocation of a report, with its process and thread.
pub(super) struct AnalysisRow<'a> {
    pub(super) process: &'a ProcessReport,
    pub(super) thread: &'a ThreadReport,
    pub(super) allocation: &'a AllocationReport,
    pub(super) site: Option<&'a SiteReport>,
}

/// The function that allocated memory of this kind; empty if unknown.
pub(super) fn operation<'a>(api: &'a str, kind: &str) -> &'a str {
    if api == kind { "" } else { api }
}

impl AnalysisRow<'_> {
    /// How much is known of the allocating call.
    pub(super) fn trace(&self) -> &'static str {
        self.site.and_then(|site| site.trace).unwrap_or("invalid")
    }

    pub(super) fn stack(&self) -> &[Frame] {
        self.site.map_or(&[], |site| &site.stack)
    }
}

pub(super) fn written(result: io::Result<()>) -> Result<()> {
    result.context("cannot write the report")
}

fn json(value: &impl Serialize, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer(&mut *out, value)
        .map_err(io::Error::from)
        .context("cannot write the report")?;
    written(out.write_all(b"\n"))
}

impl AnalysisWriter {
    /// The allocations of each thread of `process`, as the report lists them.
    pub(super) fn rows_by_thread<'a>(
        &self,
        process: &'a ProcessReport,
    ) -> impl Iterator<Item = (&'a ThreadReport, Vec<AnalysisRow<'a>>)> + use<'a> {
        let host = self.host;
        let sites = process.sites.iter().flatten();
        let sites: HashMap<_, _> = sites.map(|site| (site.id, site)).collect();
        process.threads.iter().map(move |thread| {
            let listed = thread.allocations.iter();
            let listed = listed.filter(|allocation| host || !allocation.at_host);
            let rows = listed.map(|allocation| AnalysisRow {
                process,
                thread,
                allocation,
                site: allocation.site.and_then(|site| sites.get(&site).copied()),
            });
            (thread, rows.collect())
        })
    }

    /// The allocations of a report, in the order selected.
    pub(super) fn rows<'a>(&self, memleak: &'a Memleak) -> Vec<AnalysisRow<'a>> {
        let processes = memleak.processes.iter();
        let by_thread = processes.flat_map(|process| self.rows_by_thread(process));
        let mut rows: Vec<_> = by_thread.flat_map(|(_, rows)| rows).collect();
        let by_age = self.view.sort == SortBy::Age;
        rows.sort_by_key(|row| {
            let AllocationReport {
                bytes,
                time_ns,
                address,
                ..
            } = *row.allocation;
            let first = if by_age { time_ns } else { 0 };
            (first, Reverse(bytes), time_ns, address)
        });
        rows
    }

    /// The call sites of a report, in the order selected.
    pub(super) fn sites<'a>(
        &self,
        memleak: &'a Memleak,
    ) -> Vec<(&'a ProcessReport, &'a SiteReport)> {
        sites(memleak, self.view.sort, self.host)
    }

    fn table(
        &self,
        columns: &[&str],
        rows: impl Iterator<Item = Vec<String>>,
        out: &mut dyn Write,
    ) -> Result<()> {
        let is_tsv = self.format == AnalysisFormat::Tsv;
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
                true => Cow::Owned(field.replace(['\t', '\n', '\r'], " ")),
                false => csv_cell(field),
            });
            for field in fields {
                wrote(table.write_field(&*field))?;
            }
            wrote(table.write_record(None::<&[u8]>))?;
        }
        written(table.flush())
    }

    /// Writes a row for each call site.
    fn sites_table(&self, memleak: &Memleak, out: &mut dyn Write) -> Result<()> {
        let columns = [
            "bytes",
            "allocations",
            "kind",
            "operation",
            "call_stack",
            "pid",
        ];
        let rows = self.sites(memleak).into_iter().map(|(process, site)| {
            vec![
                site.live.bytes().to_string(),
                site.live.allocations().to_string(),
                kinds(&site.kinds),
                operation(&site.api, &kinds(&site.kinds)).to_owned(),
                line(&site.stack),
                process.pid.to_string(),
            ]
        });
        self.table(&columns, rows, out)
    }

    /// Writes the memory live at the peak, or never freed.
    pub(super) fn listing(&self, report: &Report, out: &mut dyn Write) -> Result<()> {
        let (Some(memleak), Some(about)) = (&report.memleak, &report.about) else {
            return Ok(());
        };
        match self.format {
            AnalysisFormat::Text => return self.text(out, |out| text::listing(self, report, out)),
            AnalysisFormat::Json => return json(report, out),
            AnalysisFormat::Tsv | AnalysisFormat::Csv => {}
        }
        if self.view.group.is_some_and(GroupBy::is_by_site) {
            return self.sites_table(memleak, out);
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
        let rows = self.rows(memleak).into_iter().map(|row| {
            let allocation = row.allocation;
            vec![
                row.process.pid.to_string(),
                optional(row.thread.tid),
                optional(allocation.device),
                format!("{:#x}", allocation.address),
                about.since_first(allocation).to_string(),
                allocation.bytes.to_string(),
                allocation.kind.to_string(),
                operation(&allocation.api, allocation.kind.name()).to_owned(),
                allocation.name.clone().unwrap_or_default(),
                row.trace().to_owned(),
                line(row.stack()),
            ]
        });
        self.table(&columns, rows, out)
    }

    /// Writes text, laid out.
    fn text(
        &self,
        out: &mut dyn Write,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        written(laid_out(self.layout, out, write))
    }

    fn lines(&self) -> text::ListLength {
        text::ListLength {
            top: self.top,
            width: self.layout.columns,
            full_names: self.layout.full_names,
        }
    }

    /// Writes the result of a question that is not about memory alone.
    pub(super) fn question(
        &self,
        question: Analysis,
        report: &Report,
        out: &mut dyn Write,
    ) -> Result<()> {
        match self.format {
            AnalysisFormat::Json => return json(report, out),
            AnalysisFormat::Text => {
                return self.text(out, |out| {
                    text::question(question, report, self.lines(), out)
                });
            }
            AnalysisFormat::Tsv | AnalysisFormat::Csv => {}
        }
        let table = match question {
            Analysis::Kernels => tables::kernels(report),
            Analysis::Copies => tables::copies(report),
            Analysis::Calls => tables::named(MergedCalls::calls(report), "function"),
            Analysis::Waits => tables::named(MergedCalls::waits(report), "kind"),
            Analysis::Nvtx => tables::named(MergedCalls::ranges(report), "range"),
            Analysis::Processes => tables::processes(report),
            Analysis::Watermark
            | Analysis::Leakage
            | Analysis::Explain
            | Analysis::Summary
            | Analysis::Page => return Ok(()),
        };
        self.table(&table.columns, table.rows.into_iter(), out)
    }

    pub(super) fn diff(&self, diff: &diff::Diff, out: &mut dyn Write) -> Result<()> {
        match self.format {
            AnalysisFormat::Text => {
                return self.text(out, |out| text::diff(diff, &self.view, self.lines(), out));
            }
            AnalysisFormat::Json => return json(diff, out),
            AnalysisFormat::Tsv | AnalysisFormat::Csv => {}
        }
        let of_tensors = diff.tensors.iter().flat_map(|tensors| {
            [
                ("tensors_watermark", &tensors.at_peak),
                ("tensors_leakage", &tensors.never_freed),
            ]
        });
        let rows = [("watermark", &diff.at_peak), ("leakage", &diff.never_freed)];
        let rows = rows.into_iter().chain(of_tensors);
        let rows = rows.into_iter().flat_map(|(what, stacks)| {
            stacks.iter().map(move |grown| {
                vec![
                    what.to_owned(),
                    grown.delta().to_string(),
                    grown.bytes[0].to_string(),
                    grown.bytes[1].to_string(),
                    grown.stack.join(" -> "),
                    grown.allocations[0].to_string(),
                    grown.allocations[1].to_string(),
                    grown.label.clone(),
                ]
            })
        });
        self.table(
            &[
                "analysis",
                "delta",
                "before",
                "after",
                "call_stack",
                "allocations_before",
                "allocations_after",
                "label",
            ],
            rows,
            out,
        )
    }
}

/// The call sites of all processes.
pub(super) fn sites(
    memleak: &Memleak,
    sort: SortBy,
    host: bool,
) -> Vec<(&ProcessReport, &SiteReport)> {
    let all = memleak.processes.iter().flat_map(|process| {
        let sites = process.sites.iter().flatten();
        sites.map(move |site| (process, site))
    });
    let is_shown = |site: &SiteReport| {
        let is_host = |kind: &MemoryKind| kind.belongs() == Belongs::Host;
        host || !site.kinds.iter().all(is_host)
    };
    let mut sites: Vec<_> = all.filter(|(_, site)| is_shown(site)).collect();
    sites.sort_by_key(|(_, site)| {
        let (bytes, count) = (Reverse(site.live.bytes()), Reverse(site.live.allocations()));
        let first = sort.first(site.live.allocations(), u64::MAX - site.ages_ns.0);
        (first, bytes, count)
    });
    sites
}

/// Names of memory kinds, joined.
pub(super) fn kinds(kinds: &[MemoryKind]) -> String {
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    names.join(" and ")
}

/// Location of a frame: a binary with an offset, or a Python line.
fn place(frame: &Frame) -> String {
    match (frame.module.as_str(), &frame.file, frame.line) {
        ("", Some(file), Some(line)) => format!("{file}:{line}"),
        ("", Some(file), None) => file.clone(),
        ("", None, _) => "python".into(),
        (module, _, _) => module.to_owned(),
    }
}

/// A call stack on one line, innermost frame first.
fn line(stack: &[Frame]) -> String {
    let frames = stack
        .iter()
        .map(|frame| format!("[{}] ({})", frame.function, place(frame)));
    frames.collect::<Vec<_>>().join(" -> ")
}
