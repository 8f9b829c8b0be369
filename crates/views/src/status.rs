//! The page of `gpuprobe serve` that one keeps open: GPUs, processes, call sites and verdicts of now.

use std::fmt::Write;

use gpuprobe_model::text::printable;
use gpuprobe_report::explain::{Explain, VerdictReport};
use gpuprobe_report::lists::gpus;
use gpuprobe_report::memleak::Memleak;
use gpuprobe_report::{Report, SortBy};

use crate::tables::memory::{ProcessLine, SiteRow, processes};
use crate::tables::{Cell, Column, shown, text};
use crate::text::gpu_line;

/// Call sites, and verdicts, on the page.
const ROWS: usize = 30;

/// The links of the page, and what is behind them.
const LINKS: &[(&str, &str)] = &[
    ("/metrics", "metrics, for Prometheus"),
    ("/api/v1/report", "the live report, JSON"),
    ("/api/v1/explain", "verdicts, JSON"),
    ("/debug/pprof/gpu_inuse", "profile of live memory, pprof"),
    (
        "/debug/pprof/gpu_alloc",
        "profile of memory ever allocated, pprof",
    ),
    (
        "/debug/pprof/gpu_launches",
        "profile of launches by kernel, pprof",
    ),
    ("/healthz", "whether HTTP is answered"),
    ("/readyz", "whether tracing goes on"),
];

/// It needs nothing but itself, and loads itself again.
const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>gpuprobe</title>\
<meta http-equiv=\"refresh\" content=\"5\"><style>:root{color-scheme:light dark}\
body{font:15px/1.5 sans-serif;max-width:90em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}\
td,th{padding:.2em 1em .2em 0;text-align:left;vertical-align:top}\
.n{text-align:right;font-variant-numeric:tabular-nums}</style></head><body>\n";

/// The page: of the session in a few words, of a report, and of verdicts.
pub fn page(
    session: &[(&'static str, String)],
    report: Option<&Report>,
    explain: Option<&Explain>,
) -> String {
    let mut page = Page(HEAD.to_owned());
    page.heading("gpuprobe");
    page.table(SESSION, session);
    if let Some(memleak) = report.and_then(|report| report.memleak.as_ref()) {
        page.memory(memleak);
    }
    if let Some(explain) = explain.filter(|explain| !explain.verdicts.is_empty()) {
        page.heading("Verdicts");
        let shown = explain.verdicts.len().min(ROWS);
        page.table(VERDICTS, &explain.verdicts[..shown]);
    }
    page.heading("Documents");
    page.0 += "<table>\n";
    for (path, what) in LINKS {
        let row = format!("<tr><td><a href=\"{path}\">{path}</a></td><td>{what}</td></tr>\n");
        page.0 += &row;
    }
    page.0 + "</table>\n</body></html>\n"
}

const SESSION: &[Column<(&'static str, String)>] = &[
    shown("", 0, |(name, _)| text(*name)),
    shown("", 0, |(_, value)| text(&**value)),
];

const VERDICTS: &[Column<VerdictReport>] = &[
    shown("PID", 0, |one| Cell::Count(one.pid.into())),
    shown("", 0, |one| text(one.grade.word())),
    shown("VERDICT", 0, |one| text(one.verdict.name())),
    shown("WHERE", 0, |one| text(one.label.as_deref().unwrap_or(""))),
    shown("WHY", 0, |one| text(one.evidence.join("; "))),
    shown("ADVICE", 0, |one| text(one.advice)),
];

struct Page(String);

impl Page {
    fn memory(&mut self, memleak: &Memleak) {
        for gpu in gpus(memleak) {
            self.heading(&gpu_line(&gpu));
            let users = gpu.users.iter();
            let users = users.map(|(process, share)| (*process, Some(*share)));
            self.table(processes(), &users.collect::<Vec<_>>());
        }
        self.heading("Processes");
        let listed = memleak.processes.iter().filter(|process| !process.exited);
        let listed: Vec<ProcessLine<'_>> = listed.map(|process| (process, None)).collect();
        self.table(processes(), &listed);
        self.heading("Call sites");
        let mut sites = SiteRow::all(memleak, SortBy::Bytes, false);
        sites.truncate(ROWS);
        self.table(SiteRow::columns(), &sites);
    }

    fn heading(&mut self, words: &str) {
        // Strings can always be written to.
        let _ = writeln!(self.0, "<h2>{}</h2>", escaped(words));
    }

    /// Writes a list, without the columns that are empty.
    fn table<T>(&mut self, columns: &[Column<T>], rows: &[T]) {
        let of_text = columns.iter().filter(|column| column.title.is_some());
        let is_used = |column: &&Column<T>| {
            rows.iter()
                .any(|row| !(column.cell)(row).shown().is_empty())
        };
        let columns: Vec<_> = of_text.filter(is_used).collect();
        self.0 += "<table>\n<tr>";
        for column in &columns {
            let _ = write!(self.0, "<th>{}</th>", column.title.unwrap_or_default());
        }
        for row in rows {
            self.0 += "</tr>\n<tr>";
            for column in &columns {
                let cell = (column.cell)(row);
                let class = if cell.is_words() { "" } else { " class=\"n\"" };
                let _ = write!(self.0, "<td{class}>{}</td>", escaped(&cell.shown()));
            }
        }
        self.0 += "</tr>\n</table>\n";
    }
}

/// Text without markup and control characters.
fn escaped(text: &str) -> String {
    quick_xml::escape::escape(printable(text)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_state_and_no_markup_of_others() {
        let session = [("target", "<script>alert(1)</script>".to_owned())];
        let page = page(&session, None, None);
        assert!(page.contains("<td>target</td><td>&lt;script&gt;"), "{page}");
        assert!(!page.contains("<script>"), "{page}");
    }
}
