//! Live tracing, as it is typed.

mod activity;
mod modes;
mod record;
mod serve;
mod target;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{Args, Subcommand};

use super::gate::GateArgs;
use super::profile::ProfileArgs;
use super::view::{ColorArgs, ViewArgs, parse_size, parse_top, rows};
use super::{heading, parse_duration, wrong};
use crate::doctor;
use crate::live::{self, AdvancedOptions, RecordConfig, TraceConfig};
use gpuprobe_cuda::Modes;
use gpuprobe_views::ReportFormat;

use activity::ActivityArgs;
use modes::ModeArgs;
pub(super) use target::TargetArgs;

/// Runs as a process that another gpuprobe has started; returns its exit status if it is one.
pub(super) fn run_as_helper() -> Option<ExitCode> {
    libbpf_rs::set_print(None);
    gpuprobe_stacks::program::serve_if_asked().or_else(live::guard_if_asked)
}

/// Passes libbpf's messages to the log. Reasons for which it refuses a program are for debugging; our errors are for
/// users. The messages of a start are many: unless they are wanted, they are not formatted.
pub(super) fn log_libbpf() {
    let is_wanted = tracing::enabled!(tracing::Level::DEBUG);
    libbpf_rs::set_print(
        is_wanted.then_some((libbpf_rs::PrintLevel::Debug, |level, text| {
            tracing::debug!("libbpf {level:?}: {}", text.trim_end());
        })),
    );
}

#[derive(Debug, Subcommand)]
pub(super) enum TraceCommandAction {
    /// Check what works on this machine, and what would be probed.
    Doctor {
        /// Look at the libraries of this process only.
        #[arg(short, long, value_name = "PID")]
        pid: Option<u32>,

        /// Name the functions that each library exports, and those that it does not.
        #[arg(short, long)]
        verbose: bool,
    },
    /// Trace into a recording, without reports.
    Record(Box<record::RecordArgs>),
    /// Serve metrics and profiles over HTTP, for Prometheus and others.
    Serve(Box<serve::ServeArgs>),
}

impl TraceCommandAction {
    pub(super) fn run(self) -> Result<ExitCode> {
        match self {
            Self::Doctor { pid, verbose } => doctor::run(pid, verbose),
            Self::Record(arguments) => live::run(&arguments.into_config()),
            Self::Serve(arguments) => arguments.run(),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    #[command(flatten)]
    modes: ModeArgs,

    #[command(flatten)]
    activity: ActivityArgs,

    #[command(flatten)]
    target: TargetArgs,

    #[command(flatten)]
    profile: ProfileArgs,

    /// Time between reports: 500ms, 2s, 1m.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "2s",
        value_parser = parse_duration,
        help_heading = heading::OUTPUT
    )]
    interval: Duration,

    /// Rows per list, or all.
    ///
    /// By default 10 in text, all in json and csv.
    #[arg(long, value_name = "N|all", value_parser = parse_top, help_heading = heading::OUTPUT)]
    top: Option<usize>,

    /// Format of the reports: text, json or csv.
    #[arg(
        long,
        value_enum,
        default_value_t = ReportFormat::Text,
        hide_default_value = true,
        hide_possible_values = true,
        help_heading = heading::OUTPUT
    )]
    format: ReportFormat,

    /// Write reports to FILE, or to stdout (`-`).
    ///
    /// By default, to standard output, and with COMMAND to standard error.
    #[arg(short, long, value_name = "FILE", help_heading = heading::OUTPUT)]
    output: Option<PathBuf>,

    #[command(flatten)]
    view: ViewArgs,

    /// With --bandwidth-util or --activity, write a line for every copy or record.
    ///
    /// In csv, instead of sums.
    #[arg(long, requires = modes::SINGLE, help_heading = heading::OUTPUT)]
    per_call: bool,

    #[command(flatten)]
    color: ColorArgs,

    #[command(flatten)]
    gate: GateArgs,

    /// Record into the new file FILE too, for `gpuprobe report`.
    ///
    /// With --cudatrace, that has every single launch.
    #[arg(long, value_name = "FILE", help_heading = heading::RECORDING)]
    record: Option<PathBuf>,

    /// Stop recording at this file size: 512M, 4G.
    ///
    /// Tracing with reports continues.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        requires = "record",
        help_heading = heading::RECORDING
    )]
    max_file_size: Option<u64>,

    #[command(flatten, next_help_heading = heading::ADVANCED)]
    advanced: AdvancedOptions,
}

impl TraceArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        live::run(&self.into_config())
    }

    /// Modes of the trace; exits if they contradict each other.
    fn modes(&self) -> Modes {
        let modes = self.modes.with(self.activity.is_on());
        let modes = modes.unwrap_or_else(|| self.default_modes(io::stdout().is_terminal()));
        let several = [
            modes.memleak,
            modes.cudatrace,
            modes.bandwidth_util,
            modes.activity,
        ];
        if self.format == ReportFormat::Csv && several.into_iter().filter(|&mode| mode).count() > 1
        {
            wrong(
                ErrorKind::ArgumentConflict,
                "csv holds one table: give one of --memleak, --cudatrace, --bandwidth-util and \
                 --activity",
            );
        }
        modes
    }

    /// Modes where none is given: memory; of every process only if that was said, or for somebody who looks on, as
    /// it goes on until it is ended.
    fn default_modes(&self, is_on_terminal: bool) -> Modes {
        if !self.target.is_said() && !is_on_terminal {
            wrong(
                ErrorKind::MissingRequiredArgument,
                "nothing to trace: give --pid, `-- COMMAND`, or --all for every process",
            );
        }
        modes::MEMORY
    }

    fn into_config(self) -> TraceConfig {
        let (modes, view) = (self.modes(), self.view.view());
        let record = self.record.map(|path| RecordConfig {
            path,
            only: false,
            max_bytes: self.max_file_size,
            sample_every: None,
        });
        TraceConfig {
            collect: self.activity.collect(&self.target.target()),
            single_records: self.per_call && modes.activity,
            view,
            profiles: self.profile.config(view.full_stacks),
            gate: self.gate.config(),
            per_call: self.per_call && modes.bandwidth_util,
            top: rows(self.top, self.format.default_top()),
            format: self.format,
            output: self.output,
            color: self.color.choice(),
            record,
            ..self.target.config(self.advanced, modes, self.interval)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
