//! `gpuprobe plot`, as it is typed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::report::FilterArgs;
use super::{file, progress};
use gpuprobe_analysis::chart::{self, ChartConfig, PlotBy};
use gpuprobe_os::say;
use gpuprobe_views::plot;

#[derive(Debug, Args)]
pub(super) struct PlotArgs {
    /// A recording or Nsight Systems export [default: the newest gpuprobe-*.sqlite here].
    #[arg(value_name = "FILE", conflicts_with = "usage")]
    file: Option<PathBuf>,

    /// The picture: .svg or .png, or `-` for an SVG on stdout [default: an SVG named like FILE].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Grouping of the stacked areas.
    #[arg(long, value_enum, default_value_t = PlotBy::Kind)]
    by: PlotBy,

    /// With --by site, call sites with an area of their own.
    #[arg(long, value_name = "N", default_value_t = 7)]
    top: usize,

    /// Draw what nvidia-smi showed too, by wall-clock time.
    ///
    /// FILE is the output of `nvidia-smi --query-gpu=timestamp,memory.used
    /// --format=csv,noheader,nounits --loop-ms=10`.
    #[arg(long, value_name = "FILE", conflicts_with = "usage")]
    smi: Option<PathBuf>,

    /// Plot a report that `gpuprobe report --analysis usage` made earlier.
    #[arg(long, value_name = "FILE")]
    usage: Option<PathBuf>,

    /// Write this above the chart.
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// Width in pixels.
    #[arg(long, value_name = "N", default_value_t = 1600, value_parser = clap::value_parser!(u32).range(200..=20_000))]
    width: u32,

    /// Height in pixels.
    #[arg(long, value_name = "N", default_value_t = 800, value_parser = clap::value_parser!(u32).range(150..=20_000))]
    height: u32,

    #[command(flatten)]
    filter: FilterArgs,
}

impl PlotArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let file = match &self.usage {
            Some(usage) => usage.clone(),
            None => file::or_newest(self.file),
        };
        let output = self.output.clone();
        let output = output.unwrap_or_else(|| file::picture_of(&file));
        let config = ChartConfig {
            filter: self.filter.filter(),
            file,
            by: self.by,
            top: self.top,
            smi: self.smi,
            usage: self.usage,
            title: self.title,
        };
        let chart = chart::read(&config, &progress::on_stderr())?;
        plot::write(&chart, &output, (self.width, self.height))?;
        if self.output.is_none() {
            say(format_args!("drawn: {}", output.display()));
        }
        Ok(ExitCode::SUCCESS)
    }
}
