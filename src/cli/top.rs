//! `gpuprobe top`, as it is typed.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::file;
use gpuprobe_analysis::NEWEST;
use gpuprobe_model::typed::parse_duration;
use gpuprobe_os::color::ColorOption;
use gpuprobe_top::{ScreenConfig, TopReplayConfig, replay};
#[cfg(feature = "live")]
use {
    super::trace::TargetArgs,
    super::wrong,
    crate::live::{self, AdvancedOptions, Target, TraceConfig},
    crate::probe::StackMode,
    clap::error::ErrorKind,
    gpuprobe_cuda::Modes,
    gpuprobe_report::{GroupBy, View},
    gpuprobe_views::ReportFormat,
};

#[derive(Debug, Args)]
#[cfg_attr(feature = "live", command(mut_arg("command", |command| command.hide(true))))]
pub(super) struct TopArgs {
    /// Play this recording instead of watching running processes.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Play a recording this many times faster than it was made: 10x.
    #[arg(
        long,
        value_name = "FACTOR",
        default_value = "1x",
        value_parser = parse_speed,
        requires = "file",
        help_heading = "Output"
    )]
    speed: f64,

    /// Time between two updates of the screen: 500ms, 2s.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        value_parser = parse_duration,
        help_heading = "Output"
    )]
    interval: Duration,

    /// Write the reports that are shown to FILE too, in JSON.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    #[command(flatten)]
    color: ColorOption,

    #[cfg(feature = "live")]
    #[command(flatten)]
    target: TargetArgs,

    #[cfg(feature = "live")]
    #[command(flatten, next_help_heading = "Advanced")]
    advanced: AdvancedOptions,
}

/// Call sites, and kernels, of a process that is not looked at.
#[cfg(feature = "live")]
const LISTED: usize = 20;

/// Whether there is a terminal for the screens.
pub(super) fn is_possible() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
    !is_dumb && io::stdin().is_terminal() && io::stdout().is_terminal()
}

impl TopArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        if !is_possible() {
            anyhow::bail!(
                "gpuprobe top needs a terminal, with TERM set and not dumb; use --memleak for reports"
            );
        }
        #[cfg(feature = "live")]
        if self.file.is_none() {
            return live::run(&self.into_config());
        }
        replay(&TopReplayConfig {
            file: file::or_newest(self.file.unwrap_or(NEWEST.into())),
            speed: self.speed,
            interval: self.interval,
            output: self.output,
            screen: ScreenConfig {
                colored: self.color.paints(true),
                is_replay: true,
            },
        })?;
        Ok(ExitCode::SUCCESS)
    }

    #[cfg(feature = "live")]
    fn into_config(self) -> TraceConfig {
        if matches!(self.target.target(), Target::Command(_)) {
            wrong(
                ErrorKind::ArgumentConflict,
                "COMMAND would write to the same terminal; start it in another one and give --pid",
            );
        }
        let modes = Modes {
            memleak: true,
            cudatrace: true,
            bandwidth_util: true,
            activity: false,
        };
        TraceConfig {
            stacks: self.target.stacks.unwrap_or(StackMode::Auto),
            view: View {
                group: Some(GroupBy::Stack),
                ..View::default()
            },
            top: Some(LISTED),
            output: self.output,
            screens: Some(ScreenConfig {
                colored: self.color.paints(true),
                is_replay: false,
            }),
            progress: None,
            format: ReportFormat::Json,
            ..self.target.config(self.advanced, modes, self.interval)
        }
    }
}

/// `10x`, `0.5x` or `10`.
fn parse_speed(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('x').unwrap_or(text).parse().ok();
    let speed = number.filter(|speed: &f64| (0.01..=1e6).contains(speed));
    speed.ok_or_else(|| format!("'{text}' is not a speed; try 10x"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds() {
        assert_eq!(parse_speed("10x"), Ok(10.0));
        assert_eq!(parse_speed("0.5"), Ok(0.5));
        for wrong in ["", "x", "0x", "-1x", "fast", "NaN"] {
            assert!(parse_speed(wrong).is_err(), "{wrong}");
        }
    }
}
