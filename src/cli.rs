//! The command line: what was typed, turned once into what it means.

mod activity;
mod export;
mod messages;
mod plot;
mod profile;
mod record;
mod report;
mod target;
mod view;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::doctor;
use crate::live;
use crate::live::{Config, Record};
use activity::ActivityArgs;
use gpuprobe_cuda::{Modes, document};
use gpuprobe_os::say;
use gpuprobe_report::Format;
use gpuprobe_report::profile::Weight;
use profile::ProfileArgs;
use target::TargetArgs;
use view::ViewArgs;

/// Says who holds GPU memory, which kernels are launched and what copies cost, in running CUDA
/// programs, without restarting them.
///
/// Without --pid and COMMAND, every CUDA process on this host is traced, those that start later
/// too. Reports go to standard output, everything else to standard error.
#[derive(Debug, Parser)]
#[command(name = "gpuprobe", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    trace: TraceArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Say what works on this machine, and which functions would be probed.
    Doctor {
        /// Look at the libraries of this process only.
        #[arg(long, value_name = "PID")]
        pid: Option<u32>,

        /// Name the functions that each library exports, and those that it does not.
        #[arg(short, long)]
        verbose: bool,
    },
    /// Trace into a recording, without reports.
    Record(record::RecordArgs),
    /// Analyse a recording, or an Nsight Systems export.
    Report(report::ReportArgs),
    /// Draw memory over time.
    Plot(plot::PlotArgs),
    /// Write a trace that Perfetto and Chrome show: calls, GPU work and memory over time.
    Export(export::ExportArgs),
    /// Write the reports of a recorded run again.
    Replay(record::ReplayArgs),
    /// List the functions that are probed, as a table in Markdown.
    Functions,
}

#[derive(Debug, Args)]
struct TraceArgs {
    /// Report memory that is allocated and not freed, by process and thread.
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

    /// Write sums only of what the GPU does, not a line for every single record. Implies
    /// --activity.
    #[arg(long, group = activity::COLLECTS)]
    activity_summary: bool,

    /// Record everything into the new file FILE too, an SQLite database for `gpuprobe report`; with
    /// --cudatrace, also every single launch.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    #[command(flatten)]
    target: TargetArgs,

    /// Time between reports: 500ms, 2s, 1m.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    interval: Duration,

    #[command(flatten)]
    view: ViewArgs,

    #[command(flatten)]
    profile: ProfileArgs,

    /// Rows per thread or process, largest first [default: 10 in text, all in json and csv].
    ///
    /// Call sites of a process, allocations of a thread, kernels of a process.
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Format of the reports.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Write reports to FILE instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command line; the exit status is the program's.
pub fn main() -> ExitCode {
    messages::begin_log();
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |level, text| {
        // What libbpf says of a refused program is for debugging; our errors are for users.
        tracing::debug!("libbpf {level:?}: {}", text.trim_end());
    })));
    let cli = Cli::parse();
    let result = match cli.action {
        Some(Action::Doctor { pid, verbose }) => doctor::run(pid, verbose),
        Some(Action::Record(arguments)) => live::run(&arguments.into_config()),
        Some(Action::Report(arguments)) => arguments.run(),
        Some(Action::Plot(arguments)) => arguments.run(),
        Some(Action::Export(arguments)) => arguments.run(),
        Some(Action::Replay(arguments)) => arguments.run(),
        Some(Action::Functions) => list_functions(),
        None => live::run(&cli.trace.into_config()),
    };
    result.unwrap_or_else(|error| {
        say(format_args!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn list_functions() -> anyhow::Result<ExitCode> {
    match io::stdout().write_all(document::markdown().as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

impl TraceArgs {
    fn into_config(self) -> Config {
        let wrong = |kind, message: &str| Cli::command().error(kind, message).exit();
        let modes = Modes {
            memleak: self.memleak,
            cudatrace: self.cudatrace,
            bandwidth_util: self.bandwidth_util,
            activity: self.activity.is_on() || self.activity_summary,
        };
        if modes == Modes::default() {
            wrong(
                ErrorKind::MissingRequiredArgument,
                "nothing to trace: give --memleak, --cudatrace, --bandwidth-util or --activity",
            );
        }
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
        let profiles = self.profile.config(self.view.view().full_stacks);
        if profiles.any() && !self.memleak {
            wrong(
                ErrorKind::MissingRequiredArgument,
                "--folded, --flamegraph and --pprof are about memory: give --memleak",
            );
        }
        if profiles.any() && profiles.weight == Weight::Peak {
            wrong(
                ErrorKind::ArgumentConflict,
                "what was live at the peak is known afterwards: give --record FILE, then \
                 `gpuprobe report FILE --weight peak`",
            );
        }
        let collect = self.activity.collect(&self.target.target(), modes.activity);
        let collect = collect.unwrap_or_else(|why| wrong(ErrorKind::ArgumentConflict, why));
        Config {
            collect,
            single_records: modes.activity && !self.activity_summary,
            stacks: self.target.stacks(self.memleak),
            view: self.view.view(),
            profiles,
            target: self.target.target(),
            children: self.target.children,
            as_root: self.target.as_root,
            filter: self.target.filter(),
            kinds: self.target.kinds(),
            modes,
            per_call: self.per_call,
            interval: self.interval,
            duration: self.target.duration,
            top: self.top.or(self.format.default_top()),
            format: self.format,
            output: self.output,
            api: self.target.api,
            attach: self.target.attach,
            map_entries: self.target.map_entries,
            allow_arm64: self.target.allow_arm64,
            record: self.record.map(|path| Record {
                path,
                only: false,
                all_tables: false,
                sample_every: None,
            }),
        }
    }
}

/// A positive time with a unit (`ms`, `s`, `m`, `h`); seconds without one.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.len()
        - text
            .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
            .len();
    let (number, unit) = text.split_at(digits);
    let number: f64 = number
        .parse()
        .map_err(|_| format!("'{text}' is not a time; try 500ms, 2s or 1m"))?;
    let seconds = match unit.trim() {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        other => return Err(format!("unknown unit '{other}'; use ms, s, m or h")),
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration >= Duration::from_millis(1) => Ok(duration),
        _ => Err(format!("'{text}' is out of range")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::live::Target;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_says_what_it_did() {
        // After a change: cargo run -- --help > tests/help.txt
        let help = Cli::command().render_long_help().to_string();
        let expected = include_str!("../tests/help.txt");
        assert_eq!(help.trim_end(), expected.trim_end());
    }

    #[test]
    fn durations() {
        let parse = |text| parse_duration(text).ok();
        assert_eq!(parse("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse("2"), Some(Duration::from_secs(2)));
        assert_eq!(parse("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse("2m"), Some(Duration::from_secs(120)));
        assert_eq!(parse("1h"), Some(Duration::from_secs(3600)));
        for bad in ["", "s", "0", "0ms", "-1s", "2 parsecs", "1e400", "1..2s"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn targets() {
        let target = |arguments: &[&str]| {
            let all = ["gpuprobe", "--memleak"].iter().chain(arguments);
            Cli::try_parse_from(all).map(|cli| cli.trace.into_config().target)
        };
        assert_eq!(target(&[]).unwrap(), Target::Everything);
        assert_eq!(target(&["--pid", "7"]).unwrap(), Target::Process(7));
        let command = vec![OsString::from("app"), OsString::from("--pid")];
        assert_eq!(
            target(&["--", "app", "--pid"]).unwrap(),
            Target::Command(command)
        );
        assert!(target(&["--pid", "7", "--", "app"]).is_err());
    }
}
