//! `gpuprobe report`, as it is typed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::color::ColorArgs;
use super::gate::GateArgs;
use super::profile::ProfileArgs;
use super::view::{Top, ViewArgs, parse_top};
use super::{file, heading, parse_moment, progress};
use gpuprobe_analysis::page;
use gpuprobe_analysis::{Analysis, Filter, Moment};
use gpuprobe_report::gate::LEAKED;
use gpuprobe_views::report::{AnalysisFormat, ReportConfig, ReportQuestion};
use gpuprobe_views::{html, report};

/// Analyses of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MemoryAnalysis {
    /// The highest total, when, and everything that was live then.
    Watermark,
    /// How much was live, at every change.
    Usage,
    /// Memory that was never freed.
    Leakage,
}

/// Selection of a part of a file.
#[derive(Debug, Args)]
pub(super) struct FilterArgs {
    /// Look at this process only.
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,

    /// Look at this device only.
    #[arg(long, value_name = "N")]
    device: Option<i64>,

    /// Show memory of the host (pinned, pageable) too.
    #[arg(long)]
    host: bool,

    /// Begin this long after the first memory event, or at this time of day: 2s, 2026-11-25T12:00:00.
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    from: Option<Moment>,

    /// End this long after the first memory event, or at this time of day.
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    to: Option<Moment>,
}

impl FilterArgs {
    /// The filter.
    pub(super) fn filter(&self) -> Filter {
        Filter {
            pid: self.pid,
            device: self.device,
            host: self.host,
            from: self.from,
            to: self.to,
        }
    }
}

/// A time after the first memory event, or before it with a minus, or a time of day.
fn parse_time(text: &str) -> Result<Moment, String> {
    if let Some(time) = Moment::time_of_day(text) {
        return Ok(time);
    }
    let (is_before, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let ns = i64::try_from(parse_moment(digits)?.as_nanos()).unwrap_or(i64::MAX);
    Ok(Moment::After(if is_before { -ns } else { ns }))
}

/// Options that select what the HTML file lets its reader select, or that are about other outputs.
const NOT_WITH_HTML: &[&str] = &[
    "analysis",
    "kernels",
    "copies",
    "calls",
    "waits",
    "nvtx",
    "processes",
    "summary",
    "top",
    "format",
    "output",
    "from",
    "to",
    "host",
    "folded",
    "flamegraph",
    "pprof",
    "weight",
    "of",
    "group",
    "full_stacks",
    "stacks_native",
    "stacks_shown",
    "full_names",
    "color",
    "fail_on_leak",
];

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// A recording or Nsight Systems export [default: the newest gpuprobe-*.sqlite here].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Answer one question about memory, instead of writing a summary.
    #[arg(long, value_enum, value_name = "NAME", group = "question")]
    analysis: Option<MemoryAnalysis>,

    /// Show which kernels were launched.
    #[arg(long, group = "question")]
    kernels: bool,

    /// Show what was copied, and how fast.
    #[arg(long, group = "question")]
    copies: bool,

    /// Show which functions of the driver and the runtime were called, and how long that took.
    #[arg(long, group = "question")]
    calls: bool,

    /// Show what waited for the GPU, by kind of wait.
    #[arg(long, group = "question")]
    waits: bool,

    /// Show the ranges that the program marked through NVTX, by name.
    #[arg(long, group = "question")]
    nvtx: bool,

    /// Show what each process held, launched and copied, and for how long it ran.
    #[arg(long, group = "question")]
    processes: bool,

    /// Show everything on one page; the default.
    #[arg(long, group = "question")]
    summary: bool,

    /// Show what grew from FILE to this later run, by call stack.
    #[arg(long, value_name = "OTHER", group = "question")]
    diff: Option<PathBuf>,

    /// Rows at most, largest first, or all.
    #[arg(long, value_name = "N|all", value_parser = parse_top, help_heading = heading::OUTPUT)]
    top: Option<Top>,

    /// Format of the answer.
    #[arg(long, value_enum, default_value_t = AnalysisFormat::Text, help_heading = heading::OUTPUT)]
    format: AnalysisFormat,

    /// Write to this file instead of standard output (`-`).
    #[arg(short, long, value_name = "FILE", help_heading = heading::OUTPUT)]
    output: Option<PathBuf>,

    #[command(flatten)]
    color: ColorArgs,

    /// Write one self-contained HTML file: timelines, call sites, kernels, copies; beside OTHER with --diff.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = heading::OUTPUT,
        conflicts_with_all = NOT_WITH_HTML
    )]
    html: Option<PathBuf>,

    #[command(flatten)]
    profile: ProfileArgs,

    #[command(flatten)]
    gate: GateArgs,

    #[command(flatten)]
    view: ViewArgs,

    #[command(flatten)]
    filter: FilterArgs,
}

impl ReportArgs {
    pub(super) fn run(mut self) -> Result<ExitCode> {
        if let Some(output) = self.html.take() {
            let file = file::or_newest(self.file);
            let filter = self.filter.filter();
            let after = self.diff.as_deref();
            let page = page::read(&file, after, &filter, &progress::on_stderr())?;
            html::write(&page, &output)?;
            return Ok(ExitCode::SUCCESS);
        }
        let config = self.into_config()?;
        let progress = match config.question {
            ReportQuestion::Usage => progress::beside(config.output.as_deref()),
            ReportQuestion::Report(_) => progress::on_stderr(),
        };
        match report::run(&config, &progress)?.leaks {
            true => Ok(ExitCode::from(LEAKED)),
            false => Ok(ExitCode::SUCCESS),
        }
    }

    fn into_config(self) -> Result<ReportConfig> {
        let question = match self.analysis {
            Some(MemoryAnalysis::Watermark) => ReportQuestion::Report(Analysis::Watermark),
            Some(MemoryAnalysis::Leakage) => ReportQuestion::Report(Analysis::Leakage),
            Some(MemoryAnalysis::Usage) => ReportQuestion::Usage,
            None if self.kernels => ReportQuestion::Report(Analysis::Kernels),
            None if self.copies => ReportQuestion::Report(Analysis::Copies),
            None if self.calls => ReportQuestion::Report(Analysis::Calls),
            None if self.waits => ReportQuestion::Report(Analysis::Waits),
            None if self.nvtx => ReportQuestion::Report(Analysis::Nvtx),
            None if self.processes => ReportQuestion::Report(Analysis::Processes),
            None => ReportQuestion::Report(Analysis::Summary),
        };
        let view = self.view.view();
        let file = file::or_newest(self.file);
        Ok(ReportConfig {
            question,
            filter: self.filter.filter(),
            file,
            view,
            top: Top::rows(self.top, None),
            format: self.format,
            output: self.output,
            color: self.color.choice(),
            diff: self.diff,
            profiles: self.profile.config(view.full_stacks),
            gate: self.gate.config(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(parse_time("2s"), Ok(Moment::After(2_000_000_000)));
        assert_eq!(parse_time("-5ns"), Ok(Moment::After(-5)));
        assert!(matches!(
            parse_time("2026-11-25T12:00:00Z"),
            Ok(Moment::At(_))
        ));
        for wrong in ["", "-", "--1s", "soon", "2026-11-25T25:00:00Z"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
