//! Memory by call stack, for tools that look at profiles: flame graphs, folded stacks, pprof.

pub mod flamegraph;
pub mod folded;
mod layers;
mod ledger;
mod output;
pub mod pprof;

use std::borrow::Cow;
use std::rc::Rc;

use crate::fold;
use gpuprobe_model::stack::Language;
use gpuprobe_stacks::allocators::is_below_main;
use gpuprobe_stacks::cuda;
use gpuprobe_stacks::python::origin::is_interpreter;

pub use ledger::{Which, needed_locations, of_ledger};
pub use output::{Config, Outputs};

/// What the width of a frame stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Weight {
    /// What is live at the end.
    #[default]
    End,
    /// What was live when most was.
    Peak,
    /// All that was ever allocated, freed or not.
    Total,
}

impl Weight {
    /// In words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::End => "live at the end",
            Self::Peak => "live at the peak",
            Self::Total => "ever allocated",
        }
    }
}

/// Whose memory a profile is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Of {
    /// What programs have from CUDA.
    #[default]
    Cuda,
    /// What PyTorch's allocator has handed out of that.
    Tensors,
}

/// Bytes and number of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Bytes.
    pub bytes: u64,
    /// Allocations.
    pub allocations: u64,
}

impl Amount {
    /// Adds another amount.
    pub fn merge(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.allocations = self.allocations.saturating_add(other.allocations);
    }
}

/// One function of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Its name.
    pub function: Rc<str>,
    /// The path of the file that the code is in; empty if there is none.
    pub module: Rc<str>,
    /// The source file, if it is known.
    pub file: Option<Rc<str>>,
    /// The line in it.
    pub line: Option<u32>,
    /// The address in the process; 0 if it is not known.
    pub address: u64,
    /// What it is written in.
    pub language: Language,
    /// The compiler has put it into the function that comes next.
    pub inlined: bool,
}

/// A call stack of a process and what was allocated there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Name of the process.
    pub process: Rc<str>,
    /// Its id.
    pub pid: u32,
    /// Innermost first; never empty.
    pub frames: Vec<Frame>,
    /// What is live, at the end or at the peak.
    pub live: Amount,
    /// What was ever allocated.
    pub total: Amount,
}

/// Memory by call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The stacks.
    pub samples: Vec<Sample>,
    /// Live is what was live at the peak.
    pub at_peak: bool,
    /// When, nanoseconds since 1970, if that is known.
    pub time_ns: Option<i64>,
    /// What is left out, for the user; empty if nothing is.
    pub left_out: Vec<String>,
    /// Which run it is of, for the user: the command, the GPU, the date.
    pub run: Option<String>,
    /// Every frame is shown: in stacks with Python, the interpreter's own too.
    pub full_stacks: bool,
}

impl Profile {
    /// What `weight` stands for, of all stacks.
    pub fn sum(&self, weight: Weight) -> Amount {
        self.samples.iter().fold(Amount::default(), |mut sum, one| {
            sum.merge(one.amount(weight));
            sum
        })
    }
}

impl Frame {
    /// Its name in pictures and lists of functions: of Python, with the line.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self.language {
            Language::Native => Cow::Borrowed(&self.function),
            Language::Python => {
                fold::with_place(&self.function, self.file.as_deref(), self.line).into()
            }
        }
    }
}

impl Sample {
    /// The frames that people see, innermost first: without the interpreter's between and below lines
    /// of Python, unless `full`.
    fn told(&self, full: bool) -> impl DoubleEndedIterator<Item = &Frame> {
        let outermost = self
            .frames
            .iter()
            .rposition(|frame| frame.language == Language::Python);
        let all = self.frames.iter().enumerate();
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

    /// What `weight` stands for.
    pub fn amount(&self, weight: Weight) -> Amount {
        match weight {
            Weight::End | Weight::Peak => self.live,
            Weight::Total => self.total,
        }
    }
}

/// The frames as they are shown: without CUDA's own unless `full`, but with the function that was
/// called.
pub fn shown(mut frames: Vec<Frame>, called: &str, full: bool) -> Vec<Frame> {
    if !full {
        let is_own = |f: &Frame| {
            let source = f.file.as_deref();
            f.language == Language::Native && cuda::is_cuda(&f.function, &f.module, source)
        };
        frames.drain(..cuda::own_frames(&frames, is_own));
    }
    if frames.is_empty() || (!full && frames.iter().all(|f| &*f.function != called)) {
        let leaf = Frame {
            function: called.into(),
            module: "".into(),
            file: None,
            line: None,
            address: 0,
            language: Language::Native,
            inlined: false,
        };
        frames.insert(0, leaf);
    }
    frames
}
