//! `gpuprobe record`, as it is typed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::Local;
use clap::Args;
use clap::error::ErrorKind;

use super::target::TargetArgs;
use super::with_activity;
use crate::cli::wrong;
use crate::live::{AdvancedOptions, CollectorSettings, RecordConfig, TraceConfig, recording_path};
use gpuprobe_cuda::Modes;
use gpuprobe_model::typed::{parse_duration, parse_size};
use gpuprobe_report::gate::GateConfig;

#[derive(Debug, Args)]
pub(in crate::cli) struct RecordArgs {
    #[command(flatten)]
    modes: Modes,

    #[command(flatten)]
    pub(super) collect: Option<CollectorSettings>,

    #[command(flatten)]
    pub(super) target: TargetArgs,

    /// The new file, an SQLite database [default: gpuprobe-NAME-DATE.sqlite].
    ///
    /// Its tables are those of an Nsight Systems export.
    #[arg(short, long, value_name = "FILE", help_heading = "Recording")]
    output: Option<PathBuf>,

    /// Record the GPUs' used memory from NVML, as `nvidia-smi` shows it, this often.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Recording")]
    smi_interval: Option<Duration>,

    /// Stop recording at this file size, and end with status 1: 512M, 4G.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Recording")]
    max_file_size: Option<u64>,

    #[command(flatten)]
    gate: Option<GateConfig>,

    #[command(flatten, next_help_heading = "Advanced")]
    advanced: AdvancedOptions,
}

/// Exits if the name is that of another format.
pub(super) fn check_recording(path: &Path) {
    let extension = path.extension().and_then(OsStr::to_str);
    let others = ["svg", "png", "html", "json", "csv", "pb", "gz", "pickle"];
    if let Some(other) = extension.filter(|one| others.contains(one)) {
        wrong(
            ErrorKind::InvalidValue,
            &format!(
                "{}: a recording is an SQLite database, not .{other}; record into a .sqlite, then see gpuprobe plot, \
                 report and export",
                path.display()
            ),
        );
    }
}

/// How often launches are read from the kernel side.
const COUNT_EVERY: Duration = Duration::from_secs(1);

impl RecordArgs {
    pub(super) fn into_config(self) -> TraceConfig {
        let target = self.target.target();
        let path = self.output;
        path.iter().for_each(|path| check_recording(path));
        let record = RecordConfig {
            path: path.unwrap_or_else(|| recording_path(&target, Local::now())),
            only: true,
            max_bytes: self.max_file_size,
            sample_every: self.smi_interval,
        };
        let modes = with_activity(self.modes, self.collect.as_ref(), &self.target);
        let modes = modes.or(Modes::MEMORY);
        TraceConfig {
            collect: self.collect,
            top: Some(0),
            record: Some(record),
            gate: self.gate,
            ..self.target.config(self.advanced, modes, COUNT_EVERY)
        }
    }
}
