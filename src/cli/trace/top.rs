//! Options of `gpuprobe top` for a live trace.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use clap::error::ErrorKind;

use super::advanced::AdvancedArgs;
use super::common;
use super::target::TargetArgs;
use super::wrong;
use crate::live::{self, Target, TraceConfig};
use crate::probe::StackMode;
use gpuprobe_cuda::Modes;
use gpuprobe_report::{GroupBy, View};
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
        let modes = Modes {
            memleak: true,
            cudatrace: true,
            bandwidth_util: true,
            activity: false,
        };
        TraceConfig {
            stacks: self.target.stacks_or(StackMode::Auto),
            view: View {
                group: Some(GroupBy::Stack),
                ..View::default()
            },
            top: Some(LISTED),
            output,
            screens: Some(screen),
            ..common::config(&self.target, self.advanced, modes, interval)
        }
    }
}
