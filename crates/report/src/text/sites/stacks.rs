//! Call stacks below the table of sites.

use super::super::page::Page;
use super::super::python::{self, StackLength};
use super::{LISTING, UNKNOWN_CALLER, room};
use crate::fold::{Folded, is_python};
use crate::memleak::SiteReport;
use crate::words::{dim, plural};
use crate::{View, names};
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::printable;
use gpuprobe_stacks::allocators::down_to_start;
use gpuprobe_stacks::cuda;
use std::io::{self, Write};

/// How stacks are written.
pub(super) struct StackDetail<'a> {
    view: &'a View,
    columns: Option<usize>,
    /// The program is Python's: what has no Python in it is folded too.
    is_python: bool,
}

impl<'a> StackDetail<'a> {
    pub(super) fn of(sites: &[SiteReport], view: &'a View, page: &Page) -> Self {
        Self {
            view,
            columns: room(page.columns),
            is_python: sites.iter().any(|site| site.folded.is_some()),
        }
    }

    /// Writes the stack of a site, of a Python program in at most `max` lines.
    pub(super) fn write(
        &self,
        site: &SiteReport,
        max: usize,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.lines(site, max)
            .iter()
            .try_for_each(|line| writeln!(out, "      {line}"))
    }

    pub(super) fn lines(&self, site: &SiteReport, max: usize) -> Vec<String> {
        let is_whole = self.view.full_stacks || self.view.stacks_native;
        match &site.folded {
            Some(folded) if !is_whole => {
                let cut = (!site.complete).then_some(UNKNOWN_CALLER);
                let room = StackLength {
                    columns: self.columns.unwrap_or(usize::MAX),
                    lines: max.saturating_sub(cut.iter().len()),
                    depth: self.view.depth,
                };
                let mut lines = python::lines(folded, site.variants, &room);
                lines.extend(cut.map(dim));
                lines
            }
            _ => {
                let lines = self.frames(site);
                match self.is_python && !is_whole && lines.len() > max {
                    true => folded_lines(&lines, max),
                    false => lines,
                }
            }
        }
    }

    /// A line for each frame.
    fn frames(&self, site: &SiteReport) -> Vec<String> {
        if site.stack.is_empty() && site.omitted_frames == 0 {
            return vec![dim("(no call stack)")];
        }
        let shown = match self.view.full_stacks {
            true => site.stack.len(),
            false => down_to_start(&site.stack, |frame| &frame.function),
        };
        let frames = &site.stack[..shown];
        let columns = self.columns.unwrap_or(usize::MAX);
        let line = |frame| names::cut(&frame_line(frame), columns);
        let mut lines: Vec<_> = frames.iter().map(line).collect();
        if site.omitted_frames > 0 {
            let more = plural(site.omitted_frames, "more frame");
            lines.push(dim(&format!("... {more}")));
        } else if !site.complete && shown == site.stack.len() {
            lines.push(dim(UNKNOWN_CALLER));
        }
        lines
    }
}

/// The lines of a folded stack that follow a row of a table, on a page of so many columns.
pub(crate) fn folded(folded: &Folded, view: &View, columns: Option<usize>) -> Vec<String> {
    let room = StackLength {
        columns: room(columns).unwrap_or(usize::MAX),
        lines: LISTING - 1,
        depth: view.depth,
    };
    python::lines(folded, 1, &room)
}

/// The innermost and the outermost of the lines of a stack, `max` in all.
fn folded_lines(lines: &[String], max: usize) -> Vec<String> {
    let (inner, outer) = python::ends(lines.len(), None, max.max(1));
    let more = lines.len() - inner - outer;
    let fold = dim(&format!(
        "… {} (--full-stacks)",
        plural(more as u64, "more frame")
    ));
    let fold = std::iter::once(fold);
    let outermost = lines[lines.len() - outer..].iter().cloned();
    lines[..inner]
        .iter()
        .cloned()
        .chain(fold)
        .chain(outermost)
        .collect()
}

/// `function  file:line  (module) [inlined]`; of Python, `function  file:line  (Python)  source`.
fn frame_line(frame: &Frame) -> String {
    let is_python = is_python(frame);
    let mut line = match is_python {
        true => printable(&frame.function),
        false => printable(&names::simplify(&frame.function)),
    };
    if let Some(file) = &frame.file {
        line += &format!("  {}", printable(file));
        if let Some(number) = frame.line {
            line += &format!(":{number}");
        }
    }
    line += &match is_python {
        true => "  (Python)".to_owned(),
        false => format!("  ({})", printable(cuda::file_name(&frame.module))),
    };
    if frame.inlined {
        line += " [inlined]";
    }
    if let Some(source) = &frame.source {
        line += &format!("  {}", printable(source.replace('\t', " ").trim()));
    }
    line
}
