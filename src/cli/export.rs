//! `gpuprobe export`, as it is typed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::report::FilterArgs;
use super::{file, progress};
use gpuprobe_views::export;
use gpuprobe_views::export::{ExportConfig, ExportFormat};

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// A recording or Nsight Systems export [default: the newest gpuprobe-*.sqlite here].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Format of the output.
    #[arg(long, value_enum, default_value_t = ExportFormat::Chrome)]
    format: ExportFormat,

    /// Write to this file instead of standard output (`-`), packed if it ends in `.gz`; with --format tsv, into this
    /// folder.
    #[arg(short, long, value_name = "PATH", required_if_eq("format", "tsv"))]
    output: Option<PathBuf>,

    #[command(flatten)]
    filter: FilterArgs,
}

impl ExportArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let config = ExportConfig {
            filter: self.filter.filter(),
            file: file::or_newest(self.file),
            format: self.format,
            output: self.output,
        };
        export::run(&config, &progress::beside(config.output.as_deref()))?;
        Ok(ExitCode::SUCCESS)
    }
}
