//! Options of `gpuprobe top` for a live trace.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use clap::error::ErrorKind;

use super::advanced::AdvancedArgs;
use super::target::TargetArgs;
use super::wrong;
use crate::live::{self, Target, TraceConfig};
use crate::probe::StackMode;
use gpuprobe_cuda::Modes;
use gpuprobe_os::color::ColorChoice;
use gpuprobe_report::{GroupBy, ReportFormat, View, profile};
use gpuprobe_top::ScreenConfig;

/// Call sites, and kernels, of a process that is not looked at.
const LISTED: usize = 20;

#[derive(Debug, Args)]
pub(in crate::cli) struct Watched {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    advanced: AdvancedArgs,
}

impl Watched {
    pub(in crate::cli) fn run(
        self,
        interval: Duration,
        output: Option<PathBuf>,
        screen: ScreenConfig,
    ) -> Result<ExitCode> {
        if matches!(self.target.target(), Target::Command(_)) {
            wrong(
                ErrorKind::ArgumentConflict,
                "COMMAND would write to the same terminal; start it in another one and give --pid",
            );
        }
        live::run(&self.into_config(interval, output, screen))
    }

    fn into_config(
        self,
        interval: Duration,
        output: Option<PathBuf>,
        screen: ScreenConfig,
    ) -> TraceConfig {
        let (target, advanced) = (self.target, self.advanced);
        TraceConfig {
            collect: None,
            single_records: false,
            stacks: target.stacks_or(StackMode::Auto),
            python: target.python(),
            tensors: target.tensors(true),
            view: View {
                group: Some(GroupBy::Stack),
                ..View::default()
            },
            profiles: profile::ProfileConfig::default(),
            gate: None,
            target: target.target(),
            modes: Modes {
                memleak: true,
                cudatrace: true,
                bandwidth_util: true,
                activity: false,
            },
            children: target.children,
            as_root: advanced.as_root,
            filter: target.filter(),
            kinds: target.kinds(),
            per_call: false,
            scroll: true,
            interval,
            duration: target.duration,
            top: Some(LISTED),
            format: ReportFormat::Json,
            output,
            color: ColorChoice::Never,
            api: advanced.api,
            attach: advanced.attach,
            map_entries: advanced.map_entries,
            memory_limit_mib: advanced.memory_limit,
            allow_arm64: advanced.allow_arm64,
            allow_nop5: advanced.allow_nop5,
            untrusted_mounts: advanced.untrusted_mounts,
            on_oom: advanced.on_oom,
            record: None,
            progress: Arc::new(()),
            explains: None,
            serve: None,
            screens: Some(screen),
        }
    }
}
