//! `gpuprobe replay`, as it is typed.

use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::view::ViewArgs;
use gpuprobe_os::terminal;
use gpuprobe_report::Format;
use gpuprobe_report::replay;

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// A recording.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Write the last report only.
    #[arg(long)]
    last: bool,

    /// Write a line for every single copy, and for every record of what the GPU did.
    #[arg(long)]
    per_call: bool,

    #[command(flatten)]
    view: ViewArgs,

    /// Rows per thread or process, largest first [default: 10 in text, all in json and csv].
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Format of the reports.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl ReplayArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let config = replay::Config {
            file: self.file,
            format: self.format,
            top: self.top.or(self.format.default_top()),
            view: self.view.view(),
            per_call: self.per_call,
            only_last: self.last,
        };
        let mut out = BufWriter::new(terminal::stdout());
        replay::run(&config, &mut out)?;
        Ok(ExitCode::SUCCESS)
    }
}
