//! Live tracing, as it is typed.

mod activity;
mod explain;
mod limits;
mod mistyped;
mod record;
mod target;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Subcommand};

use super::gate::GateArgs;
use super::profile::ProfileArgs;
use super::view::{Top, ViewArgs, parse_top};
use super::{Cli, parse_duration};
use crate::doctor;
use crate::live;
use crate::live::{Config, Record, Target};
use gpuprobe_cuda::Modes;
use gpuprobe_report::Format;

use activity::ActivityArgs;
pub(super) use explain::Explained;
pub(super) use mistyped::explain;
use target::TargetArgs;

/// What live tracing needs before anything else; gives an exit status if that was all.
pub(super) fn begin() -> Option<ExitCode> {
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |level, text| {
        // What libbpf says of a refused program is for debugging; our errors are for users.
        tracing::debug!("libbpf {level:?}: {}", text.trim_end());
    })));
    gpuprobe_stacks::reader::serve_if_asked().or_else(live::guard_if_asked)
}

#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Say what works on this machine, and which functions would be probed.
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
}

impl Action {
    pub(super) fn run(self) -> Result<ExitCode> {
        match self {
            Self::Doctor { pid, verbose } => doctor::run(pid, verbose),
            Self::Record(arguments) => live::run(&arguments.into_config()),
        }
    }
}

/// Says what is wrong with the command line, and exits.
fn wrong(kind: ErrorKind, message: &str) -> ! {
    Cli::command().error(kind, message).exit()
}

#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    /// Report memory that is allocated and not freed, by process and thread; the default.
    #[arg(long)]
    memleak: bool,

    /// Report which kernels are launched, and how often.
    #[arg(long)]
    cudatrace: bool,

    /// Report what copies move, and how fast.
    #[arg(long)]
    bandwidth_util: bool,

    /// Write a line for every single copy.
    #[arg(long, requires = "bandwidth_util")]
    per_call: bool,

    #[command(flatten)]
    activity: ActivityArgs,

    /// With --activity, write a line for every single record of what the GPU does too, or, in csv, a
    /// row for each instead of sums.
    #[arg(long, requires = activity::COLLECTS)]
    per_record: bool,

    /// The same as --activity, whose default this once was not: sums only.
    #[arg(long, group = activity::COLLECTS, hide = true, conflicts_with = "per_record")]
    activity_summary: bool,

    /// Record everything into the new file FILE too, an SQLite database for `gpuprobe report`; with
    /// --cudatrace, also every single launch.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    #[command(flatten)]
    limits: limits::LimitArgs,

    #[command(flatten)]
    target: TargetArgs,

    /// Time between reports: 500ms, 2s, 1m.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    interval: Duration,

    #[command(flatten)]
    view: ViewArgs,

    #[command(flatten)]
    profile: ProfileArgs,

    #[command(flatten)]
    gate: GateArgs,

    /// Rows per thread or process, largest first, or all [default: 10 in text, all in json and csv].
    ///
    /// Call sites of a process, allocations of a thread, kernels of a process.
    #[arg(long, value_name = "N|all", value_parser = parse_top)]
    top: Option<Top>,

    /// On a terminal, write each report below the last one, instead of in its place.
    #[arg(long)]
    scroll: bool,

    /// Format of the reports.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Write reports to FILE, or with `-` to standard output [default: standard output, with COMMAND
    /// standard error].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl TraceArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        live::run(&self.into_config())
    }

    /// What is to be traced; exits if that makes no sense.
    fn modes(&self) -> Modes {
        let modes = Modes {
            memleak: self.memleak,
            cudatrace: self.cudatrace,
            bandwidth_util: self.bandwidth_util,
            activity: self.activity.is_on() || self.activity_summary,
        };
        let modes = match modes == Modes::default() {
            true => self.default_modes(io::stdout().is_terminal()),
            false => modes,
        };
        let several = [
            modes.memleak,
            modes.cudatrace,
            modes.bandwidth_util,
            modes.activity,
        ];
        if self.format == Format::Csv && several.iter().filter(|&&mode| mode).count() > 1 {
            wrong(
                ErrorKind::ArgumentConflict,
                "csv holds one table: give one of --memleak, --cudatrace, --bandwidth-util and \
                 --activity",
            );
        }
        modes
    }

    /// What is traced where no mode is given: memory; of every process only for somebody who looks
    /// on, as it goes on until it is ended.
    fn default_modes(&self, is_on_terminal: bool) -> Modes {
        if self.target.target() == Target::Everything && !is_on_terminal {
            wrong(
                ErrorKind::MissingRequiredArgument,
                "nothing to trace: give --pid or `-- COMMAND`, or a mode to trace every process \
                 (--memleak, --cudatrace or --bandwidth-util)",
            );
        }
        Modes {
            memleak: true,
            ..Modes::default()
        }
    }

    fn into_config(self) -> Config {
        let modes = self.modes();
        let profiles = self.profile.config(self.view.view().full_stacks);
        let collect = self.activity.collect(&self.target.target(), modes.activity);
        let collect = collect.unwrap_or_else(|why| wrong(ErrorKind::ArgumentConflict, why));
        Config {
            collect,
            single_records: self.per_record,
            stacks: self.target.stacks(modes.memleak),
            python: self.target.python(),
            tensors: self.target.tensors(modes.memleak),
            view: self.view.view(),
            profiles,
            gate: self.gate.config(),
            target: self.target.target(),
            children: self.target.children,
            as_root: self.target.as_root,
            filter: self.target.filter(),
            kinds: self.target.kinds(),
            modes,
            per_call: self.per_call,
            scroll: self.scroll,
            interval: self.interval,
            duration: self.target.duration,
            top: Top::rows(self.top, self.format.default_top()),
            format: self.format,
            output: self.output,
            api: self.target.api,
            attach: self.target.attach,
            map_entries: self.target.map_entries,
            allow_arm64: self.target.allow_arm64,
            untrusted_mounts: self.target.untrusted_mounts,
            on_oom: self.target.on_oom,
            record: self.record.map(|path| Record {
                path,
                name: None,
                only: false,
                all_tables: false,
                limits: self.limits.limits(),
                sample_every: None,
            }),
            explains: None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser;

    use super::*;

    #[test]
    fn help_says_what_it_did() {
        // After a change: cargo run -- --help > tests/help.txt
        let help = Cli::command().render_long_help().to_string();
        let expected = include_str!("../../../tests/help.txt");
        assert_eq!(help.trim_end(), expected.trim_end());
    }

    #[test]
    fn memory_is_what_is_traced_by_default() {
        let modes = |words: &[&str]| {
            Cli::try_parse_from(words)
                .unwrap()
                .trace
                .into_config()
                .modes
        };
        let memleak = Modes {
            memleak: true,
            ..Modes::default()
        };
        for target in [&["gpuprobe", "-p", "7"][..], &["gpuprobe", "--", "app"]] {
            assert_eq!(modes(target), memleak);
            let others = [&target[..1], &["--cudatrace"], &target[1..]].concat();
            assert!(!modes(&others).memleak);
        }
        let alone = Cli::try_parse_from(["gpuprobe"]).unwrap().trace;
        assert_eq!(alone.default_modes(true), memleak);
    }

    #[test]
    fn targets() {
        let target = |arguments: &[&str]| {
            let all = ["gpuprobe", "--memleak"].iter().chain(arguments);
            Cli::try_parse_from(all).map(|cli| cli.trace.into_config().target)
        };
        assert_eq!(target(&[]).unwrap(), Target::Everything);
        for (words, pids) in [
            (&["--pid", "7"][..], &[7][..]),
            (&["-p7"], &[7]),
            (&["-p", "7,8", "--pid", "9"], &[7, 8, 9]),
        ] {
            assert_eq!(target(words).unwrap(), Target::Processes(pids.to_vec()));
        }
        let command = vec![OsString::from("app"), OsString::from("--pid")];
        assert_eq!(
            target(&["--", "app", "--pid"]).unwrap(),
            Target::Command(command)
        );
        assert!(target(&["--pid", "7", "--", "app"]).is_err());
    }
}
