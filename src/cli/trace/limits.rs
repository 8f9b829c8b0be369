//! How much room a recording may take, as it is typed.

use clap::Args;

use super::super::heading;
use super::super::view::parse_size;
use gpuprobe_recording::FileLimits;

#[derive(Debug, Args)]
pub(in crate::cli) struct LimitArgs {
    /// Stop recording at this file size: 512M, 4G; tracing continues.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        help_heading = heading::RECORDING,
        hide_short_help = true
    )]
    max_file_size: Option<u64>,

    /// At --max-file-size, continue in a new file and keep the newest N.
    ///
    /// The files are run.sqlite, run.1.sqlite, run.2.sqlite, ...; each begins with the memory that is
    /// allocated then.
    #[arg(
        long,
        value_name = "N",
        requires = "max_file_size",
        value_parser = clap::value_parser!(u32).range(2..),
        help_heading = heading::RECORDING,
        hide_short_help = true
    )]
    rotate: Option<u32>,
}

impl LimitArgs {
    pub(super) fn limits(&self) -> FileLimits {
        FileLimits {
            file_bytes: self.max_file_size,
            files: self.rotate.unwrap_or(1),
        }
    }
}
