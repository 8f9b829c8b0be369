//! `gpuprobe record` and `gpuprobe replay`, as they are typed.

use std::ffi::OsString;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::parse_duration;
use super::view::{ViewArgs, stack_mode};
use crate::api::{KindSet, Modes};
use crate::probe::AttachKind;
use crate::profile;
use crate::recording::replay;
use crate::report::{Format, View};
use crate::session::{ApiChoice, Config, Filter, Record, Target};
use crate::stacks::StackMode;

#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    /// The new file, an SQLite database with the tables of an Nsight Systems export.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Record memory; the default if nothing else is asked for.
    #[arg(long)]
    memleak: bool,

    /// Record which kernels are launched, and how often.
    #[arg(long)]
    cudatrace: bool,

    /// Record every copy.
    #[arg(long)]
    bandwidth_util: bool,

    /// Have empty tables for what was not recorded, for readers that need them.
    #[arg(long)]
    all_tables: bool,

    /// Ask NVML this often what the GPUs' memory holds, as `nvidia-smi` shows it.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    smi_interval: Option<Duration>,

    /// How call stacks are taken [default: auto for --memleak with --pid or COMMAND, else off].
    #[arg(long, value_enum, value_name = "HOW")]
    stacks: Option<StackMode>,

    /// Trace this running process; ends when it ends.
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pid: Option<u32>,

    /// Stop after this time.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,

    /// Which layer's memory calls are probed. With both, the outermost call counts.
    #[arg(long, value_enum, default_value_t = ApiChoice::Auto)]
    api: ApiChoice,

    /// Attach in this way only [default: the best that works here].
    #[arg(long, value_enum, value_name = "KIND")]
    attach: Option<AttachKind>,

    /// Start COMMAND, record it and its children from their first call, and end with its exit
    /// status.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How often launches are read from the kernel side.
const COUNT_EVERY: Duration = Duration::from_secs(1);

impl RecordArgs {
    pub(super) fn into_config(self) -> Config {
        let modes = Modes {
            memleak: self.memleak || !(self.cudatrace || self.bandwidth_util),
            cudatrace: self.cudatrace,
            bandwidth_util: self.bandwidth_util,
        };
        let target = match (self.pid, self.command) {
            (Some(pid), _) => Target::Process(pid),
            (None, command) if !command.is_empty() => Target::Command(command),
            (None, _) => Target::Everything,
        };
        Config {
            stacks: stack_mode(self.stacks, modes.memleak, &target),
            view: View::default(),
            profiles: profile::Config::default(),
            target,
            modes,
            children: false,
            filter: Filter::default(),
            kinds: KindSet::default(),
            per_call: false,
            interval: COUNT_EVERY,
            duration: self.duration,
            top: Some(0),
            format: Format::Json,
            output: None,
            api: self.api,
            attach: self.attach,
            record: Some(Record {
                path: self.output,
                only: true,
                all_tables: self.all_tables,
                sample_every: self.smi_interval,
            }),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// A recording.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Write the last report only.
    #[arg(long)]
    last: bool,

    /// Write a line for every single copy.
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
        let mut out = BufWriter::new(io::stdout().lock());
        replay::run(&config, &mut out)?;
        Ok(ExitCode::SUCCESS)
    }
}
