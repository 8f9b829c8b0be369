//! `gpuprobe export`, as it is typed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::{file, progress};
use gpuprobe_report::export;
use gpuprobe_report::export::{ExportConfig, ExportFormat};

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// A recording or Nsight Systems export [default: the newest gpuprobe-*.sqlite here].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// For which viewer.
    #[arg(long, value_enum, default_value_t = ExportFormat::Chrome)]
    format: ExportFormat,

    /// Write to this file instead of standard output (`-`); packed if it ends in `.gz`.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// With --format torch: of this process; by default, of the one with most tensors.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

impl ExportArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let config = ExportConfig {
            file: file::or_newest(self.file),
            format: self.format,
            output: self.output,
            pid: self.pid,
        };
        export::run(&config, &progress::beside(config.output.as_deref()))?;
        Ok(ExitCode::SUCCESS)
    }
}
