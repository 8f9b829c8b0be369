//! Commands that read a recording, as they are typed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::{file, progress};
use gpuprobe_analysis::Analysis;
use gpuprobe_analysis::chart::{self, ChartConfig};
use gpuprobe_analysis::playback::{self, ReplayConfig};
use gpuprobe_os::color::ColorOption;
use gpuprobe_os::terminal::{Layout, StandardStream};
use gpuprobe_os::{files, say};
use gpuprobe_report::gate::LEAKED;
use gpuprobe_views::export::{self, ExportConfig};
use gpuprobe_views::report::{self, ReportConfig};
use gpuprobe_views::{ReportFormat, plot, to_output};

/// `gpuprobe report`.
pub(super) fn report(mut config: ReportConfig) -> Result<ExitCode> {
    config.file = file::or_newest(config.file);
    let progress = match config.analysis {
        Analysis::Usage => progress::beside(config.output.as_deref()),
        _ => progress::on_stderr(),
    };
    Ok(judged(report::run(&config, &progress)?))
}

/// The exit status after a gate that fails or not.
pub(super) fn judged(fails: bool) -> ExitCode {
    match fails {
        true => ExitCode::from(LEAKED),
        false => ExitCode::SUCCESS,
    }
}

/// `gpuprobe export`.
pub(super) fn export(mut config: ExportConfig) -> Result<ExitCode> {
    config.file = file::or_newest(config.file);
    export::run(&config, &progress::beside(config.output.as_deref()))?;
    Ok(ExitCode::SUCCESS)
}

/// Width and height of a picture, pixels.
const SIZE: (u32, u32) = (1600, 800);

#[derive(Debug, Args)]
pub(super) struct PlotArgs {
    /// The picture: .svg or .png, or `-` for an SVG on stdout [default: an SVG named like FILE].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    chart: ChartConfig,
}

impl PlotArgs {
    pub(super) fn run(mut self) -> Result<ExitCode> {
        self.chart.file = file::or_newest(self.chart.file);
        let invented = || file::picture_of(&self.chart.file);
        let output = self.output.clone().unwrap_or_else(invented);
        let chart = chart::read(&self.chart, &progress::on_stderr())?;
        plot::write(&chart, &output, SIZE)?;
        if self.output.is_none() {
            say(format_args!("drawn: {}", output.display()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    replay: ReplayConfig,

    /// Format of the reports.
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    format: ReportFormat,

    /// Write to this file instead of standard output (`-`).
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    #[command(flatten)]
    color: ColorOption,
}

impl ReplayArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let mut config = self.replay;
        config.file = file::or_newest(config.file);
        config.top = config.top.or(self.format.default_top());
        let output = self.output.as_deref();
        let is_stdout = output.is_none_or(files::is_stdout);
        let stream = is_stdout.then_some(StandardStream::Stdout);
        let layout = Layout::of(stream, self.color, config.view.full_names);
        let progress = progress::beside(output);
        let mut writer = self.format.writer(config.per_call);
        writer.lay_out(layout);
        to_output(output, layout.colored, |out| {
            playback::replay(&config, &mut *writer, out, &progress)
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
