//! Options of `gpuprobe explain` for a live trace.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use clap::error::ErrorKind;

use super::super::progress;
use super::advanced::AdvancedArgs;
use super::target::TargetArgs;
use super::wrong;
use crate::live::{self, Explains, Target, TraceConfig};
use gpuprobe_cuda::Modes;
use gpuprobe_os::color::ColorChoice;
use gpuprobe_report::{ReportFormat, View, profile};

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
        let (target, advanced) = (self.target, self.advanced);
        let is_command = matches!(target.target(), Target::Command(_));
        TraceConfig {
            collect: None,
            single_records: false,
            stacks: target.stacks(true),
            python: target.python(),
            tensors: target.tensors(true),
            view: View::default(),
            profiles: profile::ProfileConfig::default(),
            gate: None,
            target: target.target(),
            modes: Modes {
                memleak: true,
                // Launches tell whose contexts are idle, and what stays of each step.
                cudatrace: true,
                ..Modes::default()
            },
            children: target.children,
            as_root: advanced.as_root,
            filter: target.filter(),
            kinds: target.kinds(),
            per_call: false,
            scroll: true,
            interval: NEVER,
            duration: target.duration.or((!is_command).then_some(WATCHED)),
            top: None,
            format: match is_json {
                true => ReportFormat::Json,
                false => ReportFormat::Text,
            },
            output,
            color,
            api: advanced.api,
            attach: advanced.attach,
            map_entries: advanced.map_entries,
            memory_limit_mib: advanced.memory_limit,
            allow_arm64: advanced.allow_arm64,
            allow_nop5: advanced.allow_nop5,
            untrusted_mounts: advanced.untrusted_mounts,
            on_oom: advanced.on_oom,
            record: None,
            progress: progress::on_stderr(),
            explains: Some(Explains { fails }),
            serve: None,
            #[cfg(feature = "top")]
            screens: None,
        }
    }
}
