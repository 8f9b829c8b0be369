//! `gpuprobe explain`, as it is typed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::color::ColorArgs;
#[cfg(not(feature = "live"))]
use super::file;
use super::progress;
#[cfg(feature = "live")]
use super::trace::Explained;
use gpuprobe_analysis::{Analysis, Filter};
use gpuprobe_report::View;
use gpuprobe_report::gate::LEAKED;
use gpuprobe_views::profile::ProfileConfig;
use gpuprobe_views::report;
use gpuprobe_views::report::{AnalysisFormat, ReportConfig, ReportQuestion};

/// Formats of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ExplainFormat {
    /// For people.
    Text,
    /// One JSON object: the report, with `explain`.
    Json,
}

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// Explain this recording, or Nsight Systems export, instead of running processes.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Format of the answer.
    #[arg(long, value_enum, default_value_t = ExplainFormat::Text)]
    format: ExplainFormat,

    /// Write to this file instead of standard output (`-`) [with COMMAND: standard error].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    color: ColorArgs,

    /// End with status 100 if a leak was found.
    #[arg(long)]
    fail_on_leak: bool,

    #[cfg(feature = "live")]
    #[command(flatten)]
    live: Explained,
}

impl ExplainArgs {
    #[cfg(feature = "live")]
    pub(super) fn run(self) -> Result<ExitCode> {
        match self.file.clone() {
            Some(file) => self.of_file(file),
            None => {
                let is_json = self.format == ExplainFormat::Json;
                let color = self.color.choice();
                self.live
                    .run(is_json, (self.output, color), self.fail_on_leak)
            }
        }
    }

    #[cfg(not(feature = "live"))]
    pub(super) fn run(self) -> Result<ExitCode> {
        let file = file::or_newest(self.file.clone());
        self.of_file(file)
    }

    fn of_file(self, file: PathBuf) -> Result<ExitCode> {
        #[cfg(feature = "live")]
        let pid = self.live.pid_of_file();
        #[cfg(not(feature = "live"))]
        let pid = None;
        let config = ReportConfig {
            file,
            question: ReportQuestion::Report(Analysis::Explain),
            filter: Filter {
                pid,
                ..Filter::default()
            },
            view: View::default(),
            top: None,
            format: match self.format {
                ExplainFormat::Json => AnalysisFormat::Json,
                ExplainFormat::Text => AnalysisFormat::Text,
            },
            output: self.output,
            color: self.color.choice(),
            diff: None,
            profiles: ProfileConfig::default(),
            gate: None,
        };
        let found = report::run(&config, &progress::on_stderr())?.explain;
        let is_leak = found.is_some_and(|found| found.has_growth());
        Ok(match self.fail_on_leak && is_leak {
            true => ExitCode::from(LEAKED),
            false => ExitCode::SUCCESS,
        })
    }
}
