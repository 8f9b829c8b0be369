//! One run: attach, trace, report, end.

mod announce;
mod collector;
mod command;
mod descriptors;
mod files;
mod filter;
mod follow;
mod guard;
mod hook;
mod incidents;
mod limits;
mod looked;
mod looks;
mod name;
mod nothing;
mod output;
mod recorder;
mod release;
mod run;
mod samples;
mod screen;
mod signals;
mod sink;
mod stacks;
mod tracer;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::probe::StackMode;
use crate::probe::{AttachKind, MapEntries};
use gpuprobe_cuda::{Function, KindSet, Layer, Modes};
use gpuprobe_recording::Limits;
use gpuprobe_report::gate;
use gpuprobe_report::profile;
use gpuprobe_report::{Format, View};

pub use collector::Collect;
pub use filter::Filter;
pub use guard::guard_if_asked;
pub use hook::HookCommand;
pub use name::Name;
pub use run::run;
pub use tracer::Tracer;

/// What is traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every process, present and future.
    Everything,
    /// Running processes.
    Processes(Vec<u32>),
    /// A command to start, and its children.
    Command(Vec<OsString>),
}

/// Whose memory calls are probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ApiChoice {
    /// Both layers; the outermost call on a thread is the one recorded.
    #[default]
    Auto,
    /// libcudart only: calls are seen as the user wrote them, if the runtime is a shared library.
    Runtime,
    /// libcuda only.
    Driver,
}

impl ApiChoice {
    /// Whether `function` is probed, if its kind of call is needed at all. Memory calls are slow:
    /// by default they are probed at both layers. Launches and copies are hot: they are probed at
    /// one. Calls that tell about contexts, captures and names always are.
    pub fn includes(self, function: &Function) -> bool {
        if function.op.is_hot() {
            let layer = match self {
                Self::Runtime => Layer::Runtime,
                Self::Auto | Self::Driver => Layer::Driver,
            };
            return function.layer == layer;
        }
        match (self, function.layer) {
            (Self::Auto, _)
            | (Self::Runtime, Layer::Runtime)
            | (Self::Driver, Layer::Driver)
            | (_, Layer::Framework) => true,
            _ => !function.op.is_memory(),
        }
    }
}

/// Whether what PyTorch's allocator hands out is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Tensors {
    /// By call site, with --memleak.
    On,
    /// Likewise, and what was asked for, and for which stream, where the library has probes of its own
    /// for that: a third probe for each tensor.
    Requested,
    /// Not at all: segments only.
    Off,
}

/// What a run does.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is traced.
    pub target: Target,
    /// The children of the traced processes too.
    pub children: bool,
    /// The command keeps our rights, instead of having those of the user who called sudo.
    pub as_root: bool,
    /// Which of these are reported.
    pub filter: Filter,
    /// The kinds of memory that are reported.
    pub kinds: KindSet,
    /// What is reported.
    pub modes: Modes,
    /// What the command is made to collect of its GPU, if anything.
    pub collect: Option<Collect>,
    /// Report every single record of that.
    pub single_records: bool,
    /// On a terminal, write each report below the last instead of in its place.
    pub scroll: bool,
    /// Report every single copy.
    pub per_call: bool,
    /// Time between reports.
    pub interval: Duration,
    /// When tracing stops by itself.
    pub duration: Option<Duration>,
    /// Allocations listed per thread; `None` for all.
    pub top: Option<usize>,
    /// What of live memory is listed.
    pub view: View,
    /// How call stacks are taken.
    pub stacks: StackMode,
    /// Call stacks have frames of Python.
    pub python: bool,
    /// What allocators of frameworks hand out is traced.
    pub tensors: Tensors,
    /// Profiles that are written at the end.
    pub profiles: profile::Config,
    /// What was never freed is judged at the end.
    pub gate: Option<gate::Config>,
    /// Format of the reports.
    pub format: Format,
    /// Where reports go, `-` for standard output; `None` for standard error if there is a command,
    /// else for standard output.
    pub output: Option<PathBuf>,
    /// Whose memory calls are probed.
    pub api: ApiChoice,
    /// How to attach; `None` for the best way that works.
    pub attach: Option<AttachKind>,
    /// Maps of the kernel side that are to have another size than they are made with.
    pub map_entries: Vec<MapEntries>,
    /// Attach on arm64 too.
    pub allow_arm64: bool,
    /// Files are read and probed whoever serves them.
    pub untrusted_mounts: bool,
    /// What is run when memory is refused, if anything.
    pub on_oom: Option<HookCommand>,
    /// What is recorded, if anything.
    pub record: Option<Record>,
    /// What all of it means is said at the end, and nothing else.
    pub explains: Option<Explains>,
}

/// What is said at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explains {
    /// A leak makes the exit status [`LEAKED`](gpuprobe_report::gate::LEAKED).
    pub fails: bool,
}

impl Config {
    /// Whether launches are recorded one by one.
    pub fn records_launches(&self) -> bool {
        self.record.is_some() && self.modes.cudatrace
    }

    /// What can be had of this on a kernel without type information: to unwind a copy of a stack,
    /// one must know which return addresses on it the kernel has replaced.
    #[must_use]
    pub fn without_types(mut self) -> Self {
        if self.stacks.is_on() {
            self.stacks = StackMode::Fp;
        }
        // Nobody knows where a thread's storage is.
        self.python = false;
        self
    }
}

/// A recording that a run makes.
#[derive(Clone, Debug)]
pub struct Record {
    /// The new file.
    pub path: PathBuf,
    /// Where that name was invented, what it is made of: a command's process id is not in it yet.
    pub name: Option<Name>,
    /// It is all that is wanted: nothing is reported.
    pub only: bool,
    /// Have empty tables for what was not recorded.
    pub all_tables: bool,
    /// How much room it may take.
    pub limits: Limits,
    /// How often to ask what the GPUs' memory holds.
    pub sample_every: Option<Duration>,
}
