//! How much room a recording may take, as it is typed.

use clap::Args;

use super::super::heading;
use super::super::view::parse_size;

#[derive(Debug, Args)]
pub(in crate::cli) struct LimitArgs {
    /// Stop recording at this file size: 512M, 4G.
    ///
    /// Tracing with reports continues; `gpuprobe record` ends with status 1.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        help_heading = heading::RECORDING,
        hide_short_help = true
    )]
    pub(super) max_file_size: Option<u64>,
}
