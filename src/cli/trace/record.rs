//! `gpuprobe record`, as it is typed.

use std::path::PathBuf;
use std::time::Duration;

use chrono::Local;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory};

use super::super::{Cli, parse_duration};
use super::activity::ActivityArgs;
use super::limits::LimitArgs;
use super::target::TargetArgs;
use crate::live::{Config, Name, Record};
use gpuprobe_cuda::Modes;
use gpuprobe_report::profile;
use gpuprobe_report::{Format, View};

#[derive(Debug, Args)]
pub(in crate::cli) struct RecordArgs {
    /// The new file, an SQLite database with the tables of an Nsight Systems export [default:
    /// gpuprobe-COMMAND-PID-DATE.sqlite in the current folder].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

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
    limits: LimitArgs,

    #[command(flatten)]
    pub(super) target: TargetArgs,
}

/// How often launches are read from the kernel side.
const COUNT_EVERY: Duration = Duration::from_secs(1);

impl RecordArgs {
    fn record(&self) -> Record {
        let invented = || Name::of(&self.target.target(), Local::now());
        let name = self.output.is_none().then(invented);
        let path = name.as_ref().map(Name::path);
        Record {
            path: path.or(self.output.clone()).unwrap_or_default(),
            name,
            only: true,
            all_tables: self.all_tables,
            limits: self.limits.limits(),
            sample_every: self.smi_interval,
        }
    }

    pub(super) fn into_config(self) -> Config {
        let record = self.record();
        let others = self.cudatrace || self.bandwidth_util || self.activity.is_on();
        let modes = Modes {
            memleak: self.memleak || !others,
            cudatrace: self.cudatrace,
            bandwidth_util: self.bandwidth_util,
            activity: self.activity.is_on(),
        };
        let collect = self.activity.collect(&self.target.target(), modes.activity);
        let collect = collect.unwrap_or_else(|why| {
            Cli::command()
                .error(ErrorKind::ArgumentConflict, why)
                .exit()
        });
        Config {
            collect,
            single_records: false,
            stacks: self.target.stacks(modes.memleak),
            python: self.target.python(),
            tensors: self.target.tensors(modes.memleak),
            view: View::default(),
            profiles: profile::Config::default(),
            gate: None,
            target: self.target.target(),
            modes,
            children: self.target.children,
            as_root: self.target.as_root,
            filter: self.target.filter(),
            kinds: self.target.kinds(),
            per_call: false,
            scroll: false,
            interval: COUNT_EVERY,
            duration: self.target.duration,
            top: Some(0),
            format: Format::Json,
            output: None,
            api: self.target.api,
            attach: self.target.attach,
            map_entries: self.target.map_entries,
            allow_arm64: self.target.allow_arm64,
            untrusted_mounts: self.target.untrusted_mounts,
            on_oom: self.target.on_oom,
            record: Some(record),
            explains: None,
        }
    }
}
