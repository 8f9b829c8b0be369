//! `gpuprobe record`, as it is typed.

use std::path::PathBuf;
use std::time::Duration;

use chrono::Local;
use clap::Args;

use super::super::view::parse_size;
use super::super::{heading, parse_duration};
use super::activity::ActivityArgs;
use super::modes::{MEMORY, ModeArgs};
use super::target::TargetArgs;
use crate::live::{AdvancedOptions, RecordConfig, TraceConfig, recording_path};

#[derive(Debug, Args)]
pub(in crate::cli) struct RecordArgs {
    #[command(flatten)]
    modes: ModeArgs,

    #[command(flatten)]
    pub(super) activity: ActivityArgs,

    #[command(flatten)]
    pub(super) target: TargetArgs,

    /// The new file, an SQLite database [default: gpuprobe-NAME-DATE.sqlite].
    ///
    /// Its tables are those of an Nsight Systems export.
    #[arg(short, long, value_name = "FILE", help_heading = heading::RECORDING)]
    output: Option<PathBuf>,

    /// Record the GPUs' used memory from NVML, as `nvidia-smi` shows it, this often.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = heading::RECORDING)]
    smi_interval: Option<Duration>,

    /// Stop recording at this file size, and end with status 1: 512M, 4G.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = heading::RECORDING)]
    max_file_size: Option<u64>,

    #[command(flatten, next_help_heading = heading::ADVANCED)]
    advanced: AdvancedOptions,
}

/// How often launches are read from the kernel side.
const COUNT_EVERY: Duration = Duration::from_secs(1);

impl RecordArgs {
    pub(super) fn into_config(self) -> TraceConfig {
        let target = self.target.target();
        let path = self.output;
        let record = RecordConfig {
            path: path.unwrap_or_else(|| recording_path(&target, Local::now())),
            only: true,
            max_bytes: self.max_file_size,
            sample_every: self.smi_interval,
        };
        let modes = self.modes.with(self.activity.is_on());
        TraceConfig {
            collect: self.activity.collect(&target),
            top: Some(0),
            record: Some(record),
            ..self
                .target
                .config(self.advanced, modes.unwrap_or(MEMORY), COUNT_EVERY)
        }
    }
}
