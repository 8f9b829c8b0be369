//! `gpuprobe replay`, as it is typed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::view::{ColorArgs, ViewArgs, parse_top, rows};
use super::{file, heading, progress};
use gpuprobe_analysis::playback;
use gpuprobe_os::files;
use gpuprobe_os::terminal::{Layout, StandardStream};
use gpuprobe_views::{ReportFormat, to_output};

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// A recording; by default, the newest gpuprobe-*.sqlite in the current folder.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Write the last report only.
    #[arg(long)]
    last: bool,

    /// Write a line for every single copy and record of what the GPU did.
    #[arg(long)]
    per_call: bool,

    #[command(flatten)]
    view: ViewArgs,

    /// Rows per list, or all.
    ///
    /// By default 10 in text, all in json and csv.
    #[arg(long, value_name = "N|all", value_parser = parse_top, help_heading = heading::OUTPUT)]
    top: Option<usize>,

    /// Format of the reports.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text, help_heading = heading::OUTPUT)]
    format: ReportFormat,

    /// Write to this file instead of standard output (`-`).
    #[arg(short, long, value_name = "FILE", help_heading = heading::OUTPUT)]
    output: Option<PathBuf>,

    #[command(flatten)]
    color: ColorArgs,
}

impl ReplayArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let output = self.output.as_deref();
        let is_stdout = output.is_none_or(files::is_stdout);
        let stream = is_stdout.then_some(StandardStream::Stdout);
        let view = self.view.view();
        let layout = Layout::of(stream, self.color.choice()).with_full_names(view.full_names);
        let config = playback::ReplayConfig {
            file: file::or_newest(self.file),
            top: rows(self.top, self.format.default_top()),
            view,
            per_call: self.per_call,
            only_last: self.last,
        };
        let progress = progress::beside(output);
        let mut writer = self.format.writer(self.per_call);
        writer.lay_out(layout);
        to_output(output, layout.colored, |out| {
            playback::replay(&config, &mut *writer, out, &progress)
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
