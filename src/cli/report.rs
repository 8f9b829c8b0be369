//! `gpuprobe report`, as it is typed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::gate::GateArgs;
use super::profile::ProfileArgs;
use super::view::{ColorArgs, ViewArgs, parse_top, rows};
use super::{file, heading, parse_moment, progress};
use gpuprobe_analysis::page;
use gpuprobe_analysis::{Analysis, Filter, Moment};
use gpuprobe_report::gate::LEAKED;
use gpuprobe_views::report::{AnalysisFormat, ReportConfig};
use gpuprobe_views::{html, report};

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

/// Options that select what the HTML file lets its reader select, or that are about other outputs; some are groups.
const NOT_WITH_HTML: &[&str] = &[
    "analysis",
    "top",
    "format",
    "output",
    "from",
    "to",
    "host",
    "ProfileArgs",
    "ViewArgs",
    "ColorArgs",
    "GateArgs",
];

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// A recording or Nsight Systems export [default: the newest gpuprobe-*.sqlite here].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// What to report.
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Analysis::Summary)]
    analysis: Analysis,

    /// Show what grew from FILE to this later run, by call stack.
    #[arg(long, value_name = "OTHER", conflicts_with = "analysis")]
    diff: Option<PathBuf>,

    #[command(flatten)]
    filter: FilterArgs,

    /// Rows at most, largest first, or all.
    #[arg(long, value_name = "N|all", value_parser = parse_top, help_heading = heading::OUTPUT)]
    top: Option<usize>,

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
            Analysis::Usage => progress::beside(config.output.as_deref()),
            _ => progress::on_stderr(),
        };
        match report::run(&config, &progress)?.leaks {
            true => Ok(ExitCode::from(LEAKED)),
            false => Ok(ExitCode::SUCCESS),
        }
    }

    fn into_config(self) -> Result<ReportConfig> {
        let view = self.view.view();
        let file = file::or_newest(self.file);
        Ok(ReportConfig {
            question: self.analysis,
            filter: self.filter.filter(),
            file,
            view,
            top: rows(self.top, None),
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
