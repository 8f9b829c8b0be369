//! The words of verdicts, with their severity and advice: one table for all outputs.

use std::fmt;

const SECOND_NS: u64 = 1_000_000_000;

/// A verdict on a call site, or on other memory of a process; of call sites, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The same as [`Self::Growing`], by so much in each of many cycles of freeing most and allocating again.
    GrowingPerCycle,
    /// More and more is live.
    Growing,
    /// Some of it lives far longer than is usual at the site.
    FreedLate,
    /// Nothing can be said yet.
    TooEarly,
    /// Freed and allocated again.
    Cache,
    /// It grew, and has levelled off.
    Plateau,
    /// Allocated once and kept.
    OneOff,
    /// The process has ended with it.
    NeverFreed,
    /// More and more objects with handles: streams, contexts, modules and the like.
    HandlesLeft,
    /// More and more memory at no call site.
    OutsideGrowing,
    /// Little memory pins large segments of an allocator.
    Fragmentation,
    /// A request was refused.
    OutOfMemory,
    /// A context without launches.
    IdleContext,
    /// A context of the program.
    Context,
    /// Memory at no call site.
    Outside,
    /// Memory of other processes.
    Shared,
    /// Physical memory behind handles.
    Handles,
}

/// How grave a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It is a leak.
    Leak,
    /// It keeps memory from others.
    Warning,
    /// There is not enough evidence to say.
    Early,
    /// It is as it should be.
    Fine,
    /// Good to know.
    Note,
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// Nothing known speaks against it, for long.
    Certain,
    /// As far as can be seen.
    Likely,
    /// It has to be watched for so many nanoseconds more.
    NotEnough(u64),
}

/// Of each verdict, in the order of the enum: its name in reports, and how grave it is.
const VERDICTS: [(Verdict, &str, Severity); 17] = [
    (
        Verdict::GrowingPerCycle,
        "growing per cycle",
        Severity::Leak,
    ),
    (Verdict::Growing, "growing", Severity::Leak),
    (Verdict::FreedLate, "freed late", Severity::Warning),
    (Verdict::TooEarly, "too early", Severity::Early),
    (Verdict::Cache, "cache", Severity::Fine),
    (Verdict::Plateau, "plateau", Severity::Fine),
    (Verdict::OneOff, "one-off", Severity::Fine),
    (Verdict::NeverFreed, "never freed at exit", Severity::Note),
    (Verdict::HandlesLeft, "handles left behind", Severity::Leak),
    (
        Verdict::OutsideGrowing,
        "growing outside of call sites",
        Severity::Warning,
    ),
    (Verdict::Fragmentation, "fragmentation", Severity::Warning),
    (Verdict::OutOfMemory, "out of memory", Severity::Warning),
    (Verdict::IdleContext, "idle context", Severity::Note),
    (Verdict::Context, "context", Severity::Note),
    (
        Verdict::Outside,
        "before attach or outside CUDA",
        Severity::Note,
    ),
    (Verdict::Shared, "shared", Severity::Note),
    (Verdict::Handles, "handles", Severity::Note),
];

const _: () = {
    let mut index = 0;
    while index < VERDICTS.len() {
        assert!(VERDICTS[index].0 as usize == index);
        index += 1;
    }
};

impl Verdict {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        VERDICTS[self as usize].1
    }

    /// How grave it is with this confidence.
    pub fn severity(self, confidence: Confidence) -> Severity {
        match confidence.is_enough() {
            true => VERDICTS[self as usize].2,
            false => Severity::Early,
        }
    }

    /// Recommended action for the user; empty if there is nothing to do.
    pub fn advice(self) -> &'static str {
        match self {
            Self::GrowingPerCycle => "find what each cycle creates and does not release",
            Self::Growing => {
                "find what keeps these alive: a list, an unbounded cache, an undetached autograd graph"
            }
            Self::FreedLate => {
                "find what keeps some of these alive: a queue, an exception's traceback, a reference cycle not yet collected"
            }
            Self::HandlesLeft => {
                "destroy each when its work is done, or create one and reuse it: each takes memory that no call site shows"
            }
            Self::OutsideGrowing => {
                "find what is created at a steady pace and never destroyed: streams, contexts, modules, graphs, communicators"
            }
            Self::Fragmentation => {
                "free or move what pins the segments, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            }
            Self::OutOfMemory => {
                "see below who held the memory: free some, request less, or end other programs on the GPU"
            }
            Self::IdleContext => "end the process, or hide the GPU from it (CUDA_VISIBLE_DEVICES)",
            Self::Outside => "start the program under gpuprobe to see where this came from",
            Self::Shared => "this memory belongs to another process: free it there",
            _ => "",
        }
    }

    /// Whether it is a leak of a call site, as far as it is sure.
    pub fn is_growth(self) -> bool {
        matches!(self, Self::Growing | Self::GrowingPerCycle)
    }
}

impl Severity {
    /// The word in front of a verdict.
    pub fn word(self) -> &'static str {
        match self {
            Self::Leak => "LEAK",
            Self::Warning => "warn",
            Self::Early => Verdict::TooEarly.name(),
            Self::Fine => "ok",
            Self::Note => "note",
        }
    }
}

impl Confidence {
    /// Whether there was enough data for a verdict.
    pub fn is_enough(self) -> bool {
        !matches!(self, Self::NotEnough(_))
    }

    /// The name, without numbers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Likely => "likely",
            Self::NotEnough(_) => Verdict::TooEarly.name(),
        }
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Self::NotEnough(more_ns) = self {
            write!(f, ": {} more seconds", more_ns.div_ceil(SECOND_NS))?;
        }
        Ok(())
    }
}
