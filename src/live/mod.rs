//! A live tracing session: attach, trace, report, detach.

mod advanced;
mod announce;
mod collector;
mod command;
mod descriptors;
pub mod discovery;
mod empty_run;
mod filter;
mod guard;
mod hook;
mod incidents;
mod limits;
mod name;
mod output;
mod own_use;
mod recorder;
mod run;
mod samples;
mod screen;
mod signals;
mod sink;
mod stacks;
mod top;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::probe::StackMode;
use clap::Args;
use discovery::Tracer;
use gpuprobe_cuda::{Function, KindSet, Layer, Modes};
use gpuprobe_model::typed::parse_size;
use gpuprobe_os::color::ColorOption;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_report::View;
use gpuprobe_report::gate;
use gpuprobe_views::ReportFormat;
use gpuprobe_views::profile::ProfileConfig;

use gpuprobe_top::ScreenConfig;

pub use crate::serve::ServeConfig;
pub use advanced::AdvancedOptions;
pub use collector::CollectorSettings;
pub use filter::ProcessFilter;
pub use guard::guard_if_asked;
pub use hook::OnOom;
pub use name::recording_path;
pub use run::run;

/// The processes to trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// Every process, present and future: host-wide.
    #[default]
    Everything,
    /// Running processes, by their ids.
    Processes(Vec<u32>),
    /// A command to start, and its children.
    Command(Vec<OsString>),
}

/// The API layer whose memory calls are probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ApiChoice {
    /// Both layers; of nested calls, the outermost of a thread is recorded.
    #[default]
    Auto,
    /// libcudart only: the calls as the user wrote them, if the runtime is a shared library.
    Runtime,
    /// libcuda only: the calls that reach the driver.
    Driver,
}

impl ApiChoice {
    /// Whether `function` is probed, provided its kind of call is needed. Memory calls are slow
    /// and by default probed at both layers; launches and copies are hot and probed at one layer.
    /// Calls about contexts, captures and names are probed in every mode.
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

/// Tracing of PyTorch's caching allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TensorMode {
    /// Every tensor and its call site.
    #[default]
    On,
    /// Every tensor, read from memory for each report; the call sites of some, at 2 % of a thread's time at most.
    Census,
    /// Also the requested size and the stream of each tensor, where the library has static probes
    /// for these: a third probe hit per tensor.
    Requested,
    /// No tensors: only the segments that the allocator gets from CUDA.
    Off,
}

/// Settings of a live session.
#[derive(Clone, Default)]
pub struct TraceConfig {
    /// The processes to trace.
    pub target: Target,
    /// Children of the traced processes are traced too.
    pub children: bool,
    /// Filter on the reported processes.
    pub filter: ProcessFilter,
    /// Reported kinds of memory.
    pub kinds: KindSet,
    /// The sections of the report, which determine the probes.
    pub modes: Modes,
    /// Settings of the CUPTI collector in the command; `None` without `--activity`.
    pub collect: Option<CollectorSettings>,
    /// Each GPU record is reported on a line of its own.
    pub single_records: bool,
    /// Each copy is reported on a line of its own.
    pub per_call: bool,
    /// Time between two reports.
    pub interval: Duration,
    /// Tracing stops after this time; `None` for no limit.
    pub duration: Option<Duration>,
    /// Maximum number of allocations listed per thread; `None` for all.
    pub top: Option<usize>,
    /// Filters and sorting of the listed live memory.
    pub view: View,
    /// Unwinding of call stacks.
    pub stacks: StackMode,
    /// Call stacks include Python frames.
    pub python: bool,
    /// Tracing of framework allocators.
    pub tensors: TensorMode,
    /// Profiles written at the end.
    pub profiles: ProfileConfig,
    /// Leak check at the end; `None` without one.
    pub gate: Option<gate::GateConfig>,
    /// Format of the reports.
    pub format: ReportFormat,
    /// Destination of the reports, `-` for standard output. `None`: standard error with a command,
    /// else standard output.
    pub output: Option<PathBuf>,
    /// When text has colours.
    pub color: ColorOption,
    /// What is rarely needed.
    pub advanced: AdvancedOptions,
    /// The recording to write.
    pub record: Option<RecordConfig>,
    /// Shows how many functions are named at the end.
    pub progress: Option<SharedProgress>,
    /// At the end, only the explanation is printed.
    pub explains: bool,
    /// The session ends as soon as the explanation would hardly change.
    pub until_settled: bool,
    /// Instead of reports, documents are served.
    pub serve: Option<ServeConfig>,
    /// The screens of `gpuprobe top`; `None` without them.
    pub screens: Option<ScreenConfig>,
}

impl TraceConfig {
    /// Whether each launch is recorded.
    pub fn records_launches(&self) -> bool {
        self.record.is_some() && self.modes.cudatrace
    }

    /// Whether no calls are traced, only what they make GPUs do.
    pub(crate) fn traces_only_gpus(&self) -> bool {
        let only_gpus = Modes {
            activity: true,
            ..Modes::default()
        };
        self.modes == only_gpus
    }
}

/// Settings of the recording.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Recording")]
pub struct RecordConfig {
    /// Record into the new file FILE too, for `gpuprobe report`.
    ///
    /// With --cudatrace, that has every single launch.
    #[arg(id = "record", long = "record", value_name = "FILE", required = false)]
    pub path: PathBuf,

    /// Stop recording at this file size: 512M, 4G.
    ///
    /// Tracing with reports continues.
    #[arg(
        id = "max_file_size",
        long = "max-file-size",
        value_name = "SIZE",
        value_parser = parse_size,
        requires = "record"
    )]
    pub max_bytes: Option<u64>,
    /// Only the recording is written: no reports.
    #[arg(skip)]
    pub only: bool,
    /// Interval of NVML samples of the memory used on each GPU; `None` for no samples.
    #[arg(skip)]
    pub sample_every: Option<Duration>,
}
