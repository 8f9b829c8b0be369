//! Memory by call stack, for profile viewers: flame graphs, folded stacks, pprof.

pub mod flamegraph;
pub mod folded;
mod layers;
mod ledger;
mod output;
pub mod pprof;

use std::borrow::Cow;
use std::rc::Rc;

use crate::fold;
use gpuprobe_model::Total;
use gpuprobe_model::stack::{Frame, Language};
use gpuprobe_stacks::allocators::is_below_main;
use gpuprobe_stacks::cuda;
use gpuprobe_stacks::python::origin::is_interpreter;

pub use ledger::{ProfileWeight, needed_locations, of_ledger, of_living};
pub use output::{Outputs, ProfileConfig};

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
    pub(crate) fn of<T>(self, live: T, allocated: T) -> T {
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

/// A call stack of a process, and the memory allocated with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSample {
    /// Name (comm) of the process.
    pub process: Rc<str>,
    /// Process id (tgid) of the process.
    pub pid: u32,
    /// Frames, innermost first; never empty.
    pub frames: Vec<Frame>,
    /// Live memory, at the end or at the peak.
    pub live: Total,
    /// Memory ever allocated, freed or not.
    pub total: Total,
}

/// Memory by call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// One sample per call stack and process.
    pub samples: Vec<StackSample>,
    /// Whether `live` is the memory live at the peak.
    pub at_peak: bool,
    /// Time of the profile, nanoseconds since 1970, if known.
    pub time_ns: Option<i64>,
    /// Memory that is not in the profile, for the user; empty if there is none.
    pub left_out: Vec<String>,
    /// Description of the run for the user: the command, the GPU, the date.
    pub run: Option<String>,
    /// Whether every frame is shown, including the interpreter's in Python stacks.
    pub full_stacks: bool,
}

impl Profile {
    /// Sum of `weight` over all stacks.
    pub fn sum(&self, weight: Weight) -> Total {
        self.samples.iter().fold(Total::default(), |mut sum, one| {
            sum.merge(one.amount(weight));
            sum
        })
    }
}

/// Name of a function in pictures and lists; of Python, with the line.
fn frame_text(frame: &Frame) -> Cow<'_, str> {
    if frame.language.is_python() {
        fold::with_place(&frame.function, frame.file.as_deref(), frame.line).into()
    } else {
        Cow::Borrowed(&frame.function)
    }
}

/// A function of which only the name is known.
fn named_frame(function: &str) -> Frame {
    Frame {
        function: function.to_owned(),
        module: String::new(),
        file: None,
        line: None,
        source: None,
        address: 0,
        language: Language::Native,
        inlined: false,
    }
}

/// The frames to be shown, innermost first: without the interpreter's between and below Python
/// lines, unless `full`.
pub(crate) fn visible(frames: &[Frame], full: bool) -> impl DoubleEndedIterator<Item = &Frame> {
    let outermost = frames
        .iter()
        .rposition(|frame| frame.language == Language::Python);
    let all = frames.iter().enumerate();
    all.filter(move |(index, frame)| {
        let Some(outermost) = outermost.filter(|_| !full) else {
            return true;
        };
        let is_native = frame.language == Language::Native;
        let is_start = *index > outermost && is_below_main(&frame.function);
        !(is_native && (is_start || is_interpreter(&frame.function, &frame.module)))
    })
    .map(|(_, frame)| frame)
}

impl StackSample {
    /// The frames to be shown; see [`visible`].
    fn visible(&self, full: bool) -> impl DoubleEndedIterator<Item = &Frame> {
        visible(&self.frames, full)
    }

    /// The amount that `weight` selects.
    pub fn amount(&self, weight: Weight) -> Total {
        weight.of(self.live, self.total)
    }
}

/// The frames to be shown: without CUDA's own unless `full`, but with the function that was called.
pub fn shown(mut frames: Vec<Frame>, called: &str, full: bool) -> Vec<Frame> {
    if !full {
        let is_own = |f: &Frame| {
            let source = f.file.as_deref();
            f.language == Language::Native && cuda::is_cuda(&f.function, &f.module, source)
        };
        frames.drain(..cuda::own_frames(&frames, is_own));
    }
    if frames.is_empty() || (!full && frames.iter().all(|f| f.function != called)) {
        frames.insert(0, named_frame(called));
    }
    frames
}
