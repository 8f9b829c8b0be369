//! Live tracing, as it is typed.

mod record;
mod serve;
mod snapshot;
mod target;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{Args, Subcommand};

use super::wrong;
use crate::doctor;
use crate::live::{self, AdvancedOptions, CollectorSettings, RecordConfig, Target, TraceConfig};
use gpuprobe_cuda::Modes;
use gpuprobe_model::typed::{parse_duration, parse_top};
use gpuprobe_os::color::ColorOption;
use gpuprobe_report::View;
use gpuprobe_report::gate::GateConfig;
use gpuprobe_views::ReportFormat;
use gpuprobe_views::profile::ProfileConfig;

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
    /// Write a snapshot of PyTorch's memory in a process, for its viewer.
    ///
    /// It is read from the memory of the process, which is neither stopped nor traced: every block, with its state.
    Snapshot(snapshot::SnapshotArgs),
    /// Trace into a recording, without reports.
    Record(Box<record::RecordArgs>),
    /// Serve metrics and profiles over HTTP, for Prometheus and others.
    Serve(Box<serve::ServeArgs>),
}

impl TraceCommandAction {
    pub(super) fn run(self) -> Result<ExitCode> {
        match self {
            Self::Doctor { pid, verbose } => doctor::run(pid, verbose),
            Self::Snapshot(arguments) => arguments.run(),
            Self::Record(arguments) => live::run(&arguments.into_config()),
            Self::Serve(arguments) => arguments.run(),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    #[command(flatten)]
    modes: Modes,

    #[command(flatten)]
    collect: Option<CollectorSettings>,

    #[command(flatten)]
    target: TargetArgs,

    #[command(flatten)]
    profiles: ProfileConfig,

    /// Time between reports: 500ms, 2s, 1m.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "2s",
        value_parser = parse_duration,
        help_heading = "Output"
    )]
    interval: Duration,

    /// Rows per list, or all.
    ///
    /// By default 10 in text, all in json and csv.
    #[arg(long, value_name = "N|all", value_parser = parse_top, help_heading = "Output")]
    top: Option<usize>,

    /// Format of the reports: text, json, csv or classic.
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true,
        help_heading = "Output"
    )]
    format: ReportFormat,

    /// Write reports to FILE, or to stdout (`-`).
    ///
    /// By default, to standard output, and with COMMAND to standard error.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    #[command(flatten)]
    view: View,

    /// With --bandwidth-util or --activity, write a line for every copy or record.
    ///
    /// In csv, instead of sums.
    #[arg(long, requires = "single", help_heading = "Output")]
    per_call: bool,

    #[command(flatten)]
    color: ColorOption,

    #[command(flatten)]
    gate: Option<GateConfig>,

    #[command(flatten)]
    record: Option<RecordConfig>,

    #[command(flatten, next_help_heading = "Advanced")]
    advanced: AdvancedOptions,
}

impl TraceArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        live::run(&self.into_config())
    }

    /// Modes of the trace; exits if they contradict each other.
    fn modes(&self) -> Modes {
        let modes = with_activity(self.modes, self.collect.as_ref(), &self.target);
        if modes == Modes::default() {
            self.check_said(io::stdout().is_terminal());
        }
        let modes = modes.or(Modes::MEMORY);
        if self.format == ReportFormat::Csv && modes.names().len() > 1 {
            wrong(
                ErrorKind::ArgumentConflict,
                "csv holds one table: give one of --memleak, --cudatrace, --bandwidth-util and \
                 --activity",
            );
        }
        modes
    }

    /// Exits if nothing was said of what to trace, nor is somebody there who looks on: of every process, that goes on
    /// until it is ended.
    fn check_said(&self, is_on_terminal: bool) {
        if !self.target.is_said() && !is_on_terminal {
            wrong(
                ErrorKind::MissingRequiredArgument,
                "nothing to trace: give --pid, `-- COMMAND`, or --all for every process",
            );
        }
    }

    fn into_config(mut self) -> TraceConfig {
        let modes = self.modes();
        self.profiles.scope.full_stacks = self.view.full_stacks;
        TraceConfig {
            collect: self.collect,
            single_records: self.per_call && modes.activity,
            view: self.view,
            profiles: self.profiles,
            gate: self.gate,
            per_call: self.per_call && modes.bandwidth_util,
            top: self.top.or(self.format.default_top()),
            format: self.format,
            output: self.output,
            color: self.color,
            record: self
                .record
                .inspect(|record| record::check_recording(&record.path)),
            ..self.target.config(self.advanced, modes, self.interval)
        }
    }
}

/// Why nothing but a command can be told of.
const NEEDS_COMMAND: &str = "--activity needs a command to start: CUPTI cannot be loaded into a \
    process that is already running. Give `-- COMMAND`; of running processes, --cudatrace counts \
    the launches, --bandwidth-util the copies and --memleak the memory";

/// `modes`, with what is to be collected; exits if that cannot be had from `target`.
fn with_activity(modes: Modes, collect: Option<&CollectorSettings>, target: &TargetArgs) -> Modes {
    let activity = collect.is_some();
    if activity && !matches!(target.target(), Target::Command(_)) {
        wrong(ErrorKind::ArgumentConflict, NEEDS_COMMAND);
    }
    Modes { activity, ..modes }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
