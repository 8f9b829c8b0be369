//! What is traced, and how, as it is typed for reports and for recordings alike.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use nix::unistd::User;

use super::super::parse_duration;
use crate::live::{ApiChoice, Filter, HookCommand, Target, Tensors};
use crate::probe::StackMode;
use crate::probe::{AttachKind, MapEntries};
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
    /// Trace this running process; ends when it ends. Can be given again, or as PID,PID.
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        conflicts_with = "command"
    )]
    pub(super) pid: Vec<u32>,

    /// Trace the children of these processes too, living and future; ends when all have ended.
    #[arg(long)]
    pub(super) children: bool,

    /// Report processes of this name only; can be given again.
    #[arg(long, value_name = "NAME")]
    comm: Vec<String>,

    /// Report processes of this user only, a name or a number; can be given again.
    #[arg(long, value_name = "USER", value_parser = parse_user)]
    uid: Vec<u32>,

    /// Leave out processes of this name or id; can be given again.
    #[arg(long, value_name = "NAME|PID")]
    exclude: Vec<String>,

    /// Report processes in this container only: its id, or the beginning of it.
    #[arg(long, value_name = "ID")]
    container: Option<String>,

    /// Report processes in this cgroup and below only.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,

    /// Report these kinds of memory only, separated by commas.
    #[arg(long, value_enum, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<MemoryKind>,

    /// Stop tracing after this time.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) duration: Option<Duration>,

    /// Which layer's memory calls are probed. With both, the outermost call counts.
    #[arg(long, value_enum, default_value_t = ApiChoice::Auto)]
    pub(super) api: ApiChoice,

    /// Attach in this way only [default: the best that works here].
    #[arg(long, value_enum, value_name = "KIND")]
    pub(super) attach: Option<AttachKind>,

    /// On arm64, attach although kernels have a fault there that has corrupted GPU programs.
    #[arg(long)]
    pub(super) allow_arm64: bool,

    /// Read and probe files on file systems that other users serve (FUSE) or have mounted, too: one of
    /// them can have gpuprobe, and every process that forks, wait for as long as it likes.
    #[arg(long)]
    pub(super) untrusted_mounts: bool,

    /// How call stacks are taken [default: auto for --memleak with --pid or COMMAND, else off].
    #[arg(long, value_enum, value_name = "HOW")]
    stacks: Option<StackMode>,

    /// Python frames in call stacks.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = PythonFrames::Auto)]
    python: PythonFrames,

    /// What PyTorch's allocator has handed out of the memory that it has from CUDA.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Tensors::On)]
    tensors: Tensors,

    /// Have COMMAND run as root, also where sudo was called by another user.
    #[arg(long, requires = "command")]
    pub(super) as_root: bool,

    /// Give a map of the kernel side room for N entries, to see what happens when it is full; can
    /// be given again.
    #[arg(long, value_name = "MAP=N", hide = true)]
    pub(super) map_entries: Vec<MapEntries>,

    /// Run COMMAND when an allocation fails for want of GPU memory and no retry helps: words as in a
    /// shell, but without one; {pid} is the process, {file} a file that tells of it in JSON.
    ///
    /// One at a time, at most one in a second, killed after a minute; as the user who called sudo. The
    /// file is there until COMMAND ends. For pipes: 'sh -c "jq . < $1 | mail root" sh {file}'.
    #[arg(long, value_name = "COMMAND", value_parser = parse_hook)]
    pub(super) on_oom: Option<HookCommand>,

    /// Start COMMAND, trace it and its children from their first call, and end with its exit
    /// status. Under sudo it runs as the user who called that.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn parse_hook(text: &str) -> Result<HookCommand, String> {
    HookCommand::parse(text).map_err(|error| error.to_string())
}

impl TargetArgs {
    /// What is traced.
    pub(super) fn target(&self) -> Target {
        match self.pid.as_slice() {
            [] if self.command.is_empty() => Target::Everything,
            [] => Target::Command(self.command.clone()),
            pids => Target::Processes(pids.to_vec()),
        }
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

    /// Whether call stacks have frames of Python.
    pub(super) fn python(&self) -> bool {
        self.python == PythonFrames::Auto
    }

    /// Whether what allocators of frameworks hand out is traced.
    pub(super) fn tensors(&self, memleak: bool) -> Tensors {
        match memleak {
            true => self.tensors,
            false => Tensors::Off,
        }
    }

    /// Which of that is reported, or recorded.
    pub(super) fn filter(&self) -> Filter {
        Filter {
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
    use clap::Parser;

    use super::super::super::{Action as Any, Cli};
    use super::super::Action;
    use crate::live::Config;

    fn config(words: &[&str], options: &[&str]) -> Option<Config> {
        let cli = Cli::try_parse_from(words.iter().chain(options)).ok()?;
        Some(match cli.action {
            Some(Any::Live(Action::Record(arguments))) => arguments.into_config(),
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
