//! Memory by call stack: the samples of profiles, from the ledger.

use std::rc::Rc;

use crate::memleak::{Holder, frames_of};
use crate::public::hide_in_site;
use crate::{function_name, requested};
use gpuprobe_engine::Ledger;
use gpuprobe_engine::totals::{MemorySums, Total};
use gpuprobe_model::container::pod_uid_in;
use gpuprobe_model::stack::{Frame, Language, Location, NoSymbols, Symbolize};
use gpuprobe_model::text::size;
use gpuprobe_stacks::allocators::is_below_main;
use gpuprobe_stacks::cuda;
use gpuprobe_stacks::python::origin::is_interpreter;

/// Quantity shown as the width of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Weight {
    /// Memory live at the end.
    #[default]
    End,
    /// Memory live at the peak.
    Peak,
    /// All memory ever allocated, freed or not.
    Total,
}

impl Weight {
    /// That of `live` memory, or of all ever `allocated`.
    pub fn of<T>(self, live: T, allocated: T) -> T {
        match self {
            Self::End | Self::Peak => live,
            Self::Total => allocated,
        }
    }

    /// Description in words, for titles.
    pub fn describe(self) -> &'static str {
        match self {
            Self::End => "live at the end",
            Self::Peak => "live at the peak",
            Self::Total => "ever allocated",
        }
    }
}

/// Memory that a profile is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ProfiledMemory {
    /// Memory that programs have from CUDA.
    #[default]
    Cuda,
    /// Tensors that PyTorch's allocator has placed in it.
    Tensors,
}

/// Selects the memory of a profile.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[command(next_help_heading = "Call stacks")]
pub struct ProfileScope {
    /// Memory in --folded, --flamegraph and --pprof.
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        default_value_t,
        requires = "profiles"
    )]
    pub weight: Weight,
    /// Allocator whose memory is in these files.
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        default_value_t,
        requires = "profiles"
    )]
    pub of: ProfiledMemory,
    /// Include host memory, too.
    #[arg(skip)]
    pub host: bool,
    /// Include CUDA's own frames and the interpreter's, too.
    #[arg(skip)]
    pub full_stacks: bool,
    /// Only this process.
    #[arg(skip)]
    pub pid: Option<u32>,
    /// For whoever may read it over a network: live processes only, with labels and without addresses.
    #[arg(skip)]
    pub is_public: bool,
}

/// A call stack of a process, and the memory allocated with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSample {
    /// Name (comm) of the process.
    pub process: Rc<str>,
    /// Process id (tgid) of the process.
    pub pid: u32,
    /// Further labels of the process.
    pub labels: Rc<[(&'static str, String)]>,
    /// Frames, innermost first; never empty.
    pub frames: Vec<Frame>,
    /// Live memory, at the end or at the peak.
    pub live: Total,
    /// Memory ever allocated, freed or not.
    pub total: Total,
}

impl StackSample {
    /// The amount that `weight` selects.
    pub fn amount(&self, weight: Weight) -> Total {
        weight.of(self.live, self.total)
    }
}

/// Memory by call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// One sample per call stack and process.
    pub samples: Vec<StackSample>,
    /// Whether pictures show all frames.
    pub full_stacks: bool,
    /// The selected memory: all that its frames show.
    pub weight: Weight,
    /// Its sum over all stacks.
    pub sum: Total,
    /// Time of the profile, nanoseconds since 1970, if known.
    pub time_ns: Option<i64>,
    /// Memory that is not in the profile, for the user; empty if there is none.
    pub left_out: Vec<String>,
    /// Description of the run for the user: the command, the GPU, the date.
    pub run: Option<String>,
}

/// Memory by call site, of all processes, including ended ones: live, and ever allocated. The
/// latter lacks processes that the ledger has dropped: they ended long ago and freed everything.
/// `time_ns` is the time of the profile, nanoseconds since 1970.
pub fn of_ledger(
    ledger: &Ledger,
    symbols: &dyn Symbolize,
    scope: ProfileScope,
    time_ns: Option<i64>,
) -> Profile {
    let ended = ledger.ended(true).filter(|_| !scope.is_public);
    let all = ledger.live_processes().chain(ended);
    let is_peak = scope.weight == Weight::Peak;
    let amount = |sums: &MemorySums| {
        let mut amount = sums.gpu;
        if scope.host {
            amount.merge(sums.host);
        }
        amount
    };
    let (mut sum, mut besides) = (Total::default(), MemorySums::default());
    let mut samples = Vec::new();
    for process in all.filter(|process| scope.pid.is_none_or(|pid| pid == process.pid)) {
        let pid = process.pid;
        let name = process.comm.clone();
        let name: Rc<str> = name.unwrap_or_else(|| format!("pid {pid}")).into();
        let labels = scope.is_public.then(|| labels(ledger, pid));
        let labels: Rc<[_]> = labels.unwrap_or_default().into();
        let is_of_tensors = scope.of == ProfiledMemory::Tensors;
        let holders = Holder::all(process);
        let holders = holders.filter(|holder| holder.allocator.is_some() == is_of_tensors);
        let sites = holders.flat_map(|one| one.sites().sites.iter().map(move |site| (one, site)));
        for (holder, site) in sites {
            let live = match holder.allocator {
                _ if !is_peak => site.live,
                Some(allocator) => allocator.at_peak(site),
                None => ledger.at_peak(process, site),
            };
            besides.merge(scope.weight.of(live, site.allocated));
            let (total, live) = (amount(&site.allocated), amount(&live));
            if total.allocations == 0 && live.allocations == 0 {
                continue;
            }
            let (frames, _) = frames_of(pid, site.stack.as_deref(), symbols);
            let called = function_name(site.row, symbols);
            let mut frames = shown(frames, &called, scope.full_stacks);
            if scope.is_public {
                hide_in_site(&mut String::new(), &mut frames);
            }
            sum.merge(scope.weight.of(live, total));
            samples.push(StackSample {
                process: name.clone(),
                pid,
                labels: labels.clone(),
                frames,
                live,
                total,
            });
        }
    }
    // Live processes are in no particular order.
    samples.sort_by_key(|sample| sample.pid);
    if scope.host {
        besides.host = Total::default();
    }
    let left_out = [
        (besides.host, "of the host"),
        (besides.imported, "of others"),
    ];
    let left_out = left_out.iter().filter(|(total, _)| total.allocations > 0);
    Profile {
        samples,
        full_stacks: scope.full_stacks,
        weight: scope.weight,
        sum,
        time_ns,
        left_out: left_out
            .map(|(total, whose)| format!("{} {whose}", size(total.bytes)))
            .collect(),
        run: None,
    }
}

/// Labels of a live process: its name, its container and pod, and its GPU if it uses one only.
pub fn labels(ledger: &Ledger, pid: u32) -> Vec<(&'static str, String)> {
    let Some(process) = ledger.process_of(pid) else {
        return Vec::new();
    };
    let identity = &process.identity;
    let gpu = match process.devices()[..] {
        [(Some(index), _)] => identity.device(index).physical_index.or(Some(index.into())),
        _ => None,
    };
    let labels = [
        ("comm", process.comm.clone()),
        ("container_id", identity.container.clone()),
        ("pod_uid", identity.cgroup.as_deref().and_then(pod_uid_in)),
        ("gpu", gpu.map(|gpu| gpu.to_string())),
    ];
    let known = labels.map(|(name, value)| Some((name, value?)));
    known.into_iter().flatten().collect()
}

/// The locations that [`of_ledger`] resolves, each once: process, location, and whether it is the
/// first of its stack.
pub fn needed_locations(ledger: &Ledger, scope: ProfileScope) -> Vec<(u32, Location, bool)> {
    requested(&NoSymbols, |symbols| {
        of_ledger(ledger, symbols, scope, None);
    })
}

/// A function of which only the name is known.
pub fn named_frame(function: &str) -> Frame {
    Frame {
        function: function.to_owned(),
        ..Frame::default()
    }
}

/// The frames to be shown in pictures and lists, innermost first: without the interpreter's between and below Python
/// lines, unless `full`.
pub fn visible(frames: &[Frame], full: bool) -> impl DoubleEndedIterator<Item = &Frame> {
    let is_python = |frame: &Frame| frame.language == Language::Python;
    let outermost = frames.iter().rposition(is_python).filter(|_| !full);
    let shown = frames.iter().enumerate().filter(move |(index, frame)| {
        let is_start = |outermost| *index > outermost && is_below_main(&frame.function);
        is_python(frame)
            || outermost.is_none_or(|outermost| {
                !is_start(outermost) && !is_interpreter(&frame.function, &frame.module)
            })
    });
    shown.map(|(_, frame)| frame)
}

/// The frames to be shown: without CUDA's own unless `full`, but with the function that was called.
pub fn shown(mut frames: Vec<Frame>, called: &str, full: bool) -> Vec<Frame> {
    if !full {
        frames.drain(..cuda::own_frames(&frames, cuda::is_own));
    }
    if frames.is_empty() || (!full && frames.iter().all(|f| f.function != called)) {
        frames.insert(0, named_frame(called));
    }
    frames
}
