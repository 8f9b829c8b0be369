//! `gpuprobe record` and `gpuprobe replay`, as they are typed.

use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory};

use super::activity::ActivityArgs;
use super::target::TargetArgs;
use super::view::ViewArgs;
use super::{Cli, parse_duration};
use crate::live::{Config, Record};
use gpuprobe_cuda::Modes;
use gpuprobe_os::terminal;
use gpuprobe_report::profile;
use gpuprobe_report::replay;
use gpuprobe_report::{Format, View};

#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    /// The new file, an SQLite database with the tables of an Nsight Systems export.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Record memory; the default if nothing else is asked for.
    #[arg(long)]
    memleak: bool,

    /// Record every launch, and how often each kernel is launched.
    #[arg(long)]
    cudatrace: bool,

    /// Record every copy.
    #[arg(long)]
    bandwidth_util: bool,

    #[command(flatten)]
    pub(super) activity: ActivityArgs,

    /// Have empty tables for what was not recorded, for readers that need them.
    #[arg(long)]
    all_tables: bool,

    /// Ask NVML this often what the GPUs' memory holds, as `nvidia-smi` shows it.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    smi_interval: Option<Duration>,

    #[command(flatten)]
    pub(super) target: TargetArgs,
}

/// How often launches are read from the kernel side.
const COUNT_EVERY: Duration = Duration::from_secs(1);

impl RecordArgs {
    pub(super) fn into_config(self) -> Config {
        let others = self.cudatrace || self.bandwidth_util || self.activity.is_on();
        let modes = Modes {
            memleak: self.memleak || !others,
            cudatrace: self.cudatrace,
            bandwidth_util: self.bandwidth_util,
            activity: self.activity.is_on(),
        };
        let collect = self.activity.collect(&self.target.target());
        let collect = collect.unwrap_or_else(|why| {
            Cli::command()
                .error(ErrorKind::ArgumentConflict, why)
                .exit()
        });
        Config {
            collect,
            single_records: false,
            stacks: self.target.stacks(modes.memleak),
            view: View::default(),
            profiles: profile::Config::default(),
            target: self.target.target(),
            modes,
            children: self.target.children,
            as_root: self.target.as_root,
            filter: self.target.filter(),
            kinds: self.target.kinds(),
            per_call: false,
            interval: COUNT_EVERY,
            duration: self.target.duration,
            top: Some(0),
            format: Format::Json,
            output: None,
            api: self.target.api,
            attach: self.target.attach,
            map_entries: self.target.map_entries,
            allow_arm64: self.target.allow_arm64,
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
