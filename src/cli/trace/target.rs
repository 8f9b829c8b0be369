//! Target and options of a trace, for reports and for recordings alike.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::super::progress;
use crate::live::{AdvancedOptions, ProcessFilter, Target, TensorMode, TraceConfig};
use crate::probe::StackMode;
use gpuprobe_cuda::{KindSet, MemoryKind, Modes};
use gpuprobe_model::typed::parse_duration_or_zero;

#[derive(Debug, Args)]
#[command(next_help_heading = "Targets")]
pub(in crate::cli) struct TargetArgs {
    /// Trace this running process, or these: PID,PID.
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        value_parser = parse_pid,
        conflicts_with = "command"
    )]
    pub(in crate::cli) pid: Vec<u32>,

    /// Trace every CUDA process, as without --pid and COMMAND.
    #[arg(short, long, conflicts_with_all = ["pid", "command"])]
    all: bool,

    /// With --pid, trace child processes too.
    #[arg(long, requires = "pid")]
    children: bool,

    #[command(flatten)]
    filter: ProcessFilter,

    /// Report only these kinds of memory, separated by commas.
    #[arg(
        long,
        value_enum,
        value_name = "KIND",
        value_delimiter = ',',
        help_heading = "What to trace"
    )]
    kind: Vec<MemoryKind>,

    /// Stop tracing after this time: 30s, 5m.
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration_or_zero)]
    pub(in crate::cli) duration: Option<Duration>,

    /// How call stacks are taken [default: auto for --memleak and --bandwidth-util, else off].
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Call stacks")]
    pub(in crate::cli) stacks: Option<StackMode>,

    /// Python frames in call stacks: where a process has a Python interpreter that is known, or not at all.
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = ["auto", "off"], hide = true)]
    python: String,

    /// Trace tensors of PyTorch, JAX and others [default: on with --pid or COMMAND, else census].
    #[arg(long, value_enum, value_name = "HOW", help_heading = "What to trace")]
    pub(super) tensors: Option<TensorMode>,

    /// Start COMMAND, trace it and its children.
    ///
    /// The exit status is its own. Under sudo it runs as the user who called sudo.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn parse_pid(text: &str) -> Result<u32, String> {
    let wrong = |_| {
        format!(
            "'{text}' is not a process id; several are PID,PID, as `pgrep -d, NAME` prints them"
        )
    };
    text.trim().parse().map_err(wrong)
}

impl TargetArgs {
    /// The processes to trace.
    pub(in crate::cli) fn target(&self) -> Target {
        match self.pid.as_slice() {
            [] if self.command.is_empty() => Target::Everything,
            [] => Target::Command(self.command.clone()),
            pids => Target::Processes(pids.to_vec()),
        }
    }

    /// Whether it was said which processes these are, or for how long they are traced.
    pub(super) fn is_said(&self) -> bool {
        let is_selected = self.all || !self.filter.is_empty();
        self.target() != Target::Everything || is_selected || self.duration.is_some()
    }

    /// The configuration of a trace without text, a recording, or a screen. `interval` is the time between two
    /// reports, or between two readings of the kernel's counts.
    pub(in crate::cli) fn config(
        self,
        advanced: AdvancedOptions,
        modes: Modes,
        interval: Duration,
    ) -> TraceConfig {
        // Launches are too frequent to pay for stacks that nobody asked for.
        let by_default = match modes.memleak || modes.bandwidth_util {
            true => StackMode::Auto,
            false => StackMode::Off,
        };
        TraceConfig {
            stacks: self.stacks.unwrap_or(by_default),
            python: self.python == "auto",
            tensors: match (modes.memleak, self.target()) {
                (false, _) => TensorMode::Off,
                (true, Target::Everything) => self.tensors.unwrap_or(TensorMode::Census),
                (true, _) => self.tensors.unwrap_or_default(),
            },
            target: self.target(),
            children: self.children,
            filter: self.filter,
            kinds: match self.kind.is_empty() {
                true => KindSet::ALL,
                false => self.kind.into_iter().collect(),
            },
            modes,
            interval,
            duration: self.duration,
            advanced,
            progress: Some(progress::on_stderr()),
            ..TraceConfig::default()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::{Parser, ValueEnum};

    use super::super::super::{Action as Any, Cli};
    use super::super::TraceCommandAction;
    use super::MemoryKind;
    use crate::live::TraceConfig;

    fn config(words: &[&str], options: &[&str]) -> Option<TraceConfig> {
        let cli = Cli::try_parse_from(words.iter().chain(options)).ok()?;
        Some(match cli.action {
            Some(Any::Live(TraceCommandAction::Record(arguments))) => arguments.into_config(),
            _ => cli.trace.into_config(),
        })
    }

    #[test]
    fn recordings_select_as_reports_do() {
        for options in [
            "--pid 7 --children --kind vmm,async --api driver --attach perf",
            "--comm a --comm b --uid 1000 --exclude c --container d --cgroup /e --duration 3s",
            "-- app --pid 7",
        ] {
            let options: Vec<_> = options.split(' ').collect();
            let report = config(&["gpuprobe", "--memleak"], &options).unwrap();
            let record = config(&["gpuprobe", "record", "-o", "f"], &options).unwrap();
            assert_eq!(report.target, record.target);
            assert_eq!(report.children, record.children);
            assert_eq!(report.filter, record.filter);
            assert_eq!(report.kinds, record.kinds);
            assert_eq!(report.duration, record.duration);
            let hidden = |config: &TraceConfig| (config.advanced.api, config.advanced.attach);
            assert_eq!(hidden(&report), hidden(&record));
        }
        for wrong in [["--children", "--comm"], ["--pid", "x"], ["--kind", "odd"]] {
            assert!(config(&["gpuprobe", "record", "-o", "f"], &wrong).is_none());
        }
    }

    #[test]
    fn kinds_are_selected_by_their_names() {
        for &kind in MemoryKind::value_variants() {
            let found = config(&["gpuprobe", "--memleak"], &["--kind", kind.name()]);
            assert_eq!(found.unwrap().kinds, [kind].into_iter().collect(), "{kind}");
        }
    }

    #[test]
    fn users_have_names_or_numbers() {
        for (word, uids) in [
            ("root", Some(vec![0])),
            ("1000", Some(vec![1000])),
            ("no such", None),
        ] {
            let found = config(&["gpuprobe", "--memleak"], &["--uid", word]);
            assert_eq!(found.map(|config| config.filter.uids), uids, "{word}");
        }
    }

    #[test]
    fn only_recordings_of_launches_need_each_of_them() {
        let records = |words: &[&str]| config(words, &[]).unwrap().records_launches();
        assert!(records(&["gpuprobe", "record", "-o", "f", "--cudatrace"]));
        assert!(records(&["gpuprobe", "--cudatrace", "--record", "f"]));
        assert!(!records(&["gpuprobe", "record", "-o", "f"]));
        assert!(!records(&["gpuprobe", "--memleak", "--record", "f"]));
        assert!(!records(&["gpuprobe", "--cudatrace", "--memleak"]));
    }
}
