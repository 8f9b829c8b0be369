//! How much room a recording may take, as it is typed.

use clap::Args;

use super::super::view::parse_size;
use gpuprobe_recording::Limits;

#[derive(Debug, Args)]
pub(in crate::cli) struct LimitArgs {
    /// Stop recording when the file has this size: 512M, 4G. Tracing goes on.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_file_size: Option<u64>,

    /// When a file has its size, go on in another (run.sqlite, run.1.sqlite, run.2.sqlite, ...) that begins
    /// with what is allocated then, and keep the newest N files.
    #[arg(long, value_name = "N", requires = "max_file_size", value_parser = clap::value_parser!(u32).range(2..))]
    rotate: Option<u32>,
}

impl LimitArgs {
    pub(super) fn limits(&self) -> Limits {
        Limits {
            file_bytes: self.max_file_size,
            files: self.rotate.unwrap_or(1),
        }
    }
}
