//! Target and options of a trace, for reports and for recordings alike.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use nix::unistd::User;

use super::super::{heading, parse_duration};
use crate::live::{ProcessFilter, Target, TensorMode};
use crate::probe::StackMode;
use gpuprobe_cuda::{KindSet, MemoryKind};

/// Whether call stacks have frames of Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PythonFrames {
    /// Where a process has a Python interpreter that is known.
    Auto,
    /// Not at all.
    Off,
}

#[derive(Debug, Args)]
pub(super) struct TargetArgs {
    /// Trace this running process, or these: PID,PID.
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        conflicts_with = "command",
        help_heading = heading::TARGETS
    )]
    pub(super) pid: Vec<u32>,

    /// Trace every CUDA process, also later ones; the default without --pid and COMMAND.
    #[arg(short, long, conflicts_with_all = ["pid", "command"], help_heading = heading::TARGETS)]
    all: bool,

    /// With --pid, trace child processes too.
    #[arg(long, requires = "pid", help_heading = heading::TARGETS, hide_short_help = true)]
    pub(super) children: bool,

    /// Report only processes of this name; repeatable.
    #[arg(long, value_name = "NAME", help_heading = heading::TARGETS, hide_short_help = true)]
    comm: Vec<String>,

    /// Report only processes of this user, a name or number; repeatable.
    #[arg(long, value_name = "USER", value_parser = parse_user, help_heading = heading::TARGETS, hide_short_help = true)]
    uid: Vec<u32>,

    /// Ignore processes of this name or PID; repeatable.
    #[arg(long, value_name = "NAME|PID", help_heading = heading::TARGETS, hide_short_help = true)]
    exclude: Vec<String>,

    /// Report only processes in this container: its id or a prefix.
    #[arg(long, value_name = "ID", help_heading = heading::TARGETS, hide_short_help = true)]
    container: Option<String>,

    /// Report only processes in this cgroup and below.
    #[arg(long, value_name = "PATH", help_heading = heading::TARGETS, hide_short_help = true)]
    cgroup: Option<String>,

    /// Report only these kinds of memory, separated by commas.
    #[arg(
        long,
        value_enum,
        value_name = "KIND",
        value_delimiter = ',',
        help_heading = heading::TRACE,
        hide_short_help = true
    )]
    kind: Vec<MemoryKind>,

    /// Stop tracing after this time: 30s, 5m.
    #[arg(
        short,
        long,
        value_name = "TIME",
        value_parser = parse_duration,
        help_heading = heading::TARGETS
    )]
    pub(super) duration: Option<Duration>,

    /// How call stacks are taken [default: auto for --memleak with --pid or COMMAND, else off].
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        help_heading = heading::STACKS,
        hide_short_help = true
    )]
    stacks: Option<StackMode>,

    /// Python frames in call stacks.
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        default_value_t = PythonFrames::Auto,
        hide = true
    )]
    python: PythonFrames,

    /// Trace tensors: what PyTorch's caching allocator hands out.
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        default_value_t = TensorMode::On,
        help_heading = heading::TRACE,
        hide_short_help = true
    )]
    tensors: TensorMode,

    /// Start COMMAND, trace it and its children.
    ///
    /// The exit status is its own. Under sudo it runs as the user who called sudo.
    #[arg(last = true, value_name = "COMMAND", help_heading = heading::TARGETS)]
    command: Vec<OsString>,
}

impl TargetArgs {
    /// The processes to trace.
    pub(super) fn target(&self) -> Target {
        match self.pid.as_slice() {
            [] if self.command.is_empty() => Target::Everything,
            [] => Target::Command(self.command.clone()),
            pids => Target::Processes(pids.to_vec()),
        }
    }

    /// Whether it was said which processes these are, or for how long they are traced.
    pub(super) fn is_said(&self) -> bool {
        let is_selected = self.all || self.filter() != ProcessFilter::default();
        self.target() != Target::Everything || is_selected || self.duration.is_some()
    }

    /// How call stacks are taken: by default, only where few processes pay for them.
    pub(super) fn stacks(&self, memleak: bool) -> StackMode {
        let by_default = if memleak && self.target() != Target::Everything {
            StackMode::Auto
        } else {
            StackMode::Off
        };
        self.stacks.unwrap_or(by_default)
    }

    /// How call stacks are taken; as `by_default` unless that was said.
    pub(super) fn stacks_or(&self, by_default: StackMode) -> StackMode {
        self.stacks.unwrap_or(by_default)
    }

    /// Whether call stacks have frames of Python.
    pub(super) fn python(&self) -> bool {
        self.python == PythonFrames::Auto
    }

    /// Whether what allocators of frameworks hand out is traced.
    pub(super) fn tensors(&self, memleak: bool) -> TensorMode {
        match memleak {
            true => self.tensors,
            false => TensorMode::Off,
        }
    }

    /// Which of that is reported, or recorded.
    pub(super) fn filter(&self) -> ProcessFilter {
        ProcessFilter {
            comms: self.comm.clone(),
            uids: self.uid.clone(),
            excluded: self.exclude.clone(),
            container: self.container.clone(),
            cgroup: self.cgroup.clone(),
        }
    }

    /// The kinds of memory that reports are about.
    pub(super) fn kinds(&self) -> KindSet {
        match self.kind.as_slice() {
            [] => KindSet::ALL,
            kinds => kinds.iter().copied().collect(),
        }
    }
}

/// A user id, or the id of the user who has that name.
fn parse_user(text: &str) -> Result<u32, String> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    match User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(format!("there is no user '{text}'")),
        Err(error) => Err(format!("cannot look up the user '{text}': {error}")),
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
            assert_eq!((report.api, report.attach), (record.api, record.attach));
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
