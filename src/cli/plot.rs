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

/// Width and height of a picture, pixels.
const SIZE: (u32, u32) = (1600, 800);

#[derive(Debug, Args)]
pub(super) struct PlotArgs {
    /// A recording, an Nsight Systems export, or what `gpuprobe report --analysis usage` wrote
    /// [default: the newest gpuprobe-*.sqlite here].
    #[arg(value_name = "FILE")]
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
    #[arg(long, value_name = "FILE")]
    smi: Option<PathBuf>,

    #[command(flatten)]
    filter: FilterArgs,
}

impl PlotArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let file = file::or_newest(self.file);
        let output = self.output.clone();
        let output = output.unwrap_or_else(|| file::picture_of(&file));
        let config = ChartConfig {
            filter: self.filter.filter(),
            file,
            by: self.by,
            top: self.top,
            smi: self.smi,
        };
        let chart = chart::read(&config, &progress::on_stderr())?;
        plot::write(&chart, &output, SIZE)?;
        if self.output.is_none() {
            say(format_args!("drawn: {}", output.display()));
        }
        Ok(ExitCode::SUCCESS)
    }
}
