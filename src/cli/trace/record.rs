//! `gpuprobe record`, as it is typed.

use std::path::PathBuf;
use std::time::Duration;

use chrono::Local;
use clap::Args;
use clap::error::ErrorKind;

use super::super::{heading, parse_duration, progress};
use super::activity::ActivityArgs;
use super::advanced::AdvancedArgs;
use super::common;
use super::limits::LimitArgs;
use super::modes::{MEMORY, ModeArgs};
use super::target::TargetArgs;
use super::wrong;
use crate::live::{RecordConfig, RecordingName, TraceConfig};

#[derive(Debug, Args)]
pub(in crate::cli) struct RecordArgs {
    #[command(flatten)]
    modes: ModeArgs,

    #[command(flatten)]
    pub(super) activity: ActivityArgs,

    #[command(flatten)]
    pub(super) target: TargetArgs,

    /// The new file, an SQLite database [default: gpuprobe-COMMAND-PID-DATE.sqlite].
    ///
    /// Its tables are those of an Nsight Systems export.
    #[arg(short, long, value_name = "FILE", help_heading = heading::RECORDING)]
    output: Option<PathBuf>,

    /// Record the GPUs' used memory from NVML, as `nvidia-smi` shows it, this often.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = heading::RECORDING)]
    smi_interval: Option<Duration>,

    #[command(flatten)]
    limits: LimitArgs,

    #[command(flatten)]
    advanced: AdvancedArgs,
}

/// How often launches are read from the kernel side.
const COUNT_EVERY: Duration = Duration::from_secs(1);

impl RecordArgs {
    fn record(&self) -> RecordConfig {
        let invented = || RecordingName::of(&self.target.target(), Local::now());
        let name = self.output.is_none().then(invented);
        let path = name.as_ref().map(RecordingName::path);
        RecordConfig {
            path: path.or(self.output.clone()).unwrap_or_default(),
            name,
            only: true,
            max_bytes: self.limits.max_file_size,
            sample_every: self.smi_interval,
        }
    }

    pub(super) fn into_config(self) -> TraceConfig {
        let record = self.record();
        let modes = self.modes.with(self.activity.is_on());
        let modes = modes.unwrap_or(MEMORY);
        let collect = self.activity.collect(&self.target.target());
        let collect = collect.unwrap_or_else(|why| wrong(ErrorKind::ArgumentConflict, why));
        TraceConfig {
            collect,
            top: Some(0),
            record: Some(record),
            progress: progress::on_stderr(),
            ..common::config(&self.target, self.advanced, modes, COUNT_EVERY)
        }
    }
}
