//! `gpuprobe explain`, as it is typed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::recorded::judged;
use super::{file, progress};
use gpuprobe_analysis::{Analysis, Filter, NEWEST};
use gpuprobe_os::color::ColorOption;
use gpuprobe_report::gate::GateConfig;
use gpuprobe_views::report::{self, AnalysisFormat, ReportConfig};
#[cfg(feature = "live")]
use {
    super::trace::TargetArgs,
    super::wrong,
    crate::live::{self, AdvancedOptions, Target, TraceConfig},
    clap::error::ErrorKind,
    gpuprobe_cuda::Modes,
    gpuprobe_views::ReportFormat,
    std::time::Duration,
};

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// Explain this recording, or Nsight Systems export, instead of running processes.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Format of the answer: for people, or the report with `explain`.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    format: String,

    /// Write to this file instead of standard output (`-`) [with COMMAND: standard error].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    color: ColorOption,

    #[command(flatten)]
    gate: Option<GateConfig>,

    #[cfg(feature = "live")]
    #[command(flatten)]
    target: TargetArgs,

    #[cfg(feature = "live")]
    #[command(flatten, next_help_heading = "Advanced")]
    advanced: AdvancedOptions,
}

/// How long is watched by default at most: a verdict of growth needs nearly that.
#[cfg(feature = "live")]
const WATCHED: Duration = Duration::from_secs(60);
/// Reports are only written at the end.
#[cfg(feature = "live")]
const NEVER: Duration = Duration::from_secs(3600);

impl ExplainArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        #[cfg(feature = "live")]
        let pid = match (&self.file, self.target.pid.as_slice(), self.target.target()) {
            (None, ..) => return live::run(&self.into_config()),
            (_, [pid], _) => Some(*pid),
            (.., Target::Everything) => None,
            _ => wrong(
                ErrorKind::ArgumentConflict,
                "with FILE, nothing is started, and one --pid is looked at",
            ),
        };
        #[cfg(not(feature = "live"))]
        let pid = None;
        let config = ReportConfig {
            file: file::or_newest(self.file.unwrap_or(NEWEST.into())),
            analysis: Analysis::Explain,
            filter: Filter {
                pid,
                ..Filter::default()
            },
            format: match self.format.as_str() {
                "json" => AnalysisFormat::Json,
                _ => AnalysisFormat::Text,
            },
            output: self.output,
            color: self.color,
            gate: self.gate,
            ..ReportConfig::default()
        };
        Ok(judged(report::run(&config, &progress::on_stderr())?))
    }

    #[cfg(feature = "live")]
    fn into_config(self) -> TraceConfig {
        let is_command = matches!(self.target.target(), Target::Command(_));
        let watched = (!is_command).then_some(WATCHED);
        let modes = Modes {
            memleak: true,
            // Launches tell whose contexts are idle.
            cudatrace: true,
            ..Modes::default()
        };
        TraceConfig {
            duration: self.target.duration.or(watched),
            format: match self.format.as_str() {
                "json" => ReportFormat::Json,
                _ => ReportFormat::Text,
            },
            output: self.output,
            color: self.color,
            explains: true,
            until_settled: watched.is_some() && self.target.duration.is_none(),
            gate: self.gate,
            ..self.target.config(self.advanced, modes, NEVER)
        }
    }
}
