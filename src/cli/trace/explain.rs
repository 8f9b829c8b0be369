//! Options of `gpuprobe explain` for a live trace.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use clap::error::ErrorKind;

use super::super::progress;
use super::advanced::AdvancedArgs;
use super::common;
use super::target::TargetArgs;
use super::wrong;
use crate::live::{self, Explains, Target, TraceConfig};
use gpuprobe_cuda::Modes;
use gpuprobe_os::color::ColorChoice;
use gpuprobe_views::ReportFormat;

/// How long is watched by default: a verdict of growth needs nearly that.
const WATCHED: Duration = Duration::from_secs(60);
/// Reports are only written at the end.
const NEVER: Duration = Duration::from_secs(3600);

#[derive(Debug, Args)]
pub(in crate::cli) struct Explained {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    advanced: AdvancedArgs,
}

impl Explained {
    pub(in crate::cli) fn run(
        self,
        is_json: bool,
        output: (Option<PathBuf>, ColorChoice),
        fails: bool,
    ) -> Result<ExitCode> {
        live::run(&self.into_config(is_json, output, fails))
    }

    /// The process that is looked at in a file.
    pub(in crate::cli) fn pid_of_file(&self) -> Option<u32> {
        match (self.target.pid.as_slice(), self.target.target()) {
            ([pid], _) => Some(*pid),
            (_, Target::Everything) => None,
            _ => wrong(
                ErrorKind::ArgumentConflict,
                "with FILE, nothing is started, and one --pid is looked at",
            ),
        }
    }

    fn into_config(
        self,
        is_json: bool,
        (output, color): (Option<PathBuf>, ColorChoice),
        fails: bool,
    ) -> TraceConfig {
        let is_command = matches!(self.target.target(), Target::Command(_));
        let watched = (!is_command).then_some(WATCHED);
        let modes = Modes {
            memleak: true,
            // Launches tell whose contexts are idle.
            cudatrace: true,
            ..Modes::default()
        };
        TraceConfig {
            duration: self.target.duration.or(watched),
            format: match is_json {
                true => ReportFormat::Json,
                false => ReportFormat::Text,
            },
            output,
            color,
            progress: progress::on_stderr(),
            explains: Some(Explains { fails }),
            ..common::config(&self.target, self.advanced, modes, NEVER)
        }
    }
}
