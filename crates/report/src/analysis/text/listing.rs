//! Live memory of a file, as in live reports.

use std::io::{self, Write};

use super::{findings, headline};
use crate::Report;
use crate::analysis::answer::AnalysisWriter;
use crate::text::page::Page;
use crate::text::{write_lost, write_memory};

/// Writes the memory live at the peak, or never freed.
pub(in crate::analysis) fn listing(
    answer: &AnalysisWriter,
    report: &Report,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (Some(memleak), Some(about)) = (&report.memleak, &report.about) else {
        return Ok(());
    };
    let totals = about.totals.unwrap_or_default();
    let host = about.host.filter(|_| answer.host);
    let (what, time_ns, time) = (about.analysis, about.time_ns, about.time);
    let page = Page::of_file(answer.layout.columns);
    headline(what, time_ns, time, &totals, host.as_ref(), &page, out)?;
    write_memory(memleak, &page, out)?;
    findings(about.findings.as_ref(), out)?;
    write_lost(report, out)
}
