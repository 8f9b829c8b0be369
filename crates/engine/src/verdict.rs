//! Whether a call site leaks: rules that a user can follow, on the series of windows of [`SeriesShape`].
//!
//! `docs/explain.md` has them in words, with their thresholds. A rule that is not sure says so: to call
//! something a leak that is none is the worst fault here.

mod growth;
#[cfg(test)]
mod tests;
mod vocabulary;

use crate::sites::series::{SeriesShape, usual_age_ns};

pub(crate) use growth::is_even;
use growth::{Growth, sum};
pub use vocabulary::{Confidence, Severity, Verdict};

/// Growth for less than this, ns, is not called growth yet: programs warm up.
pub const LEAST_GROWTH_NS: u64 = 57_000_000_000;
/// The same of growth in step, by as much in each second.
pub const LEAST_IN_STEP_NS: u64 = 13_000_000_000;
/// Fewer steps may fill a cache of a usual size.
const LEAST_STEPS: u64 = 100;
/// Growth for longer than this, ns, is certain.
pub const CERTAIN_NS: u64 = 300_000_000_000;
/// A site that has not grown for this long, ns, has levelled off; one that was done within a second or two, or that has
/// freed and allocated again many times, is known sooner.
pub const LEVEL_NS: u64 = 20_000_000_000;
const SOON_NS: u64 = 10_000_000_000;
/// Allocations that were all made within this time, ns, of the first are a one-off.
const AT_ONCE_NS: u64 = 5_000_000_000;
/// Frees after which a site has a usual lifetime, and how many times older is late.
const KNOWN_FREES: u64 = 20;
const LATE: u64 = 8;
/// How many times as long as something took it is watched.
const KNOWN_TIMES: u64 = 4;
/// A series of most freed and allocated again is one from so many on.
const KNOWN_CYCLES: u32 = 4;

/// A verdict on a site, and the numbers that led to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The behaviour of the site.
    pub verdict: Verdict,
    /// How sure that is.
    pub confidence: Confidence,
    /// Since when, on the clock of the events, ns.
    pub since_ns: u64,
    /// For how long, ns.
    pub span_ns: u64,
    /// Of what this says: allocations that stay, and their bytes.
    pub blocks: u64,
    /// Bytes of the [`Self::blocks`].
    pub bytes: u64,
    /// By how much it grows, bytes a second, if it does.
    pub bytes_per_second: Option<f64>,
    /// All frees that were seen at the site.
    pub frees: u64,
    /// Age at which 99 in 100 of the freed allocations were freed at most, ns; `None` if none was.
    pub usual_age_ns: Option<u64>,
    /// How often most of it was freed and allocated again.
    pub cycles: u32,
    /// Nothing that stays was allocated for so long, ns.
    pub quiet_ns: u64,
    /// The process has ended.
    pub has_ended: bool,
    /// How long before that it freed what this is about, ns, if it did.
    pub teardown_ns: Option<u64>,
}

impl Judgement {
    /// The verdict in all outputs: `too early` without enough evidence, and of a process that has ended, `never freed at
    /// exit` for what does not leak.
    pub fn shown(&self) -> Verdict {
        let is_sure = self.confidence.is_enough();
        match self.verdict {
            verdict if verdict.is_growth() && is_sure => verdict,
            verdict if self.has_ended && !verdict.is_growth() => Verdict::NeverFreed,
            verdict if is_sure => verdict,
            _ => Verdict::TooEarly,
        }
    }

    /// How sure [`Self::shown`] is: that something was never freed is.
    pub fn sureness(&self) -> Confidence {
        match self.shown() {
            Verdict::NeverFreed => Confidence::Certain,
            _ => self.confidence,
        }
    }

    /// How grave it is.
    pub fn severity(&self) -> Severity {
        self.shown().severity(self.sureness())
    }

    /// Whether it may be called a leak.
    pub fn is_leak(&self) -> bool {
        self.severity() == Severity::Leak
    }
}

/// Judges a site; `None` if nothing is live there.
pub fn judge(shape: &SeriesShape) -> Option<Judgement> {
    let blocks = sum(&shape.left);
    if blocks == 0 {
        return None;
    }
    let growth = growth::of_blocks(shape).or_else(|| growth::of_bytes(shape));
    Some(match growth {
        Some(growth) => growing(shape, &growth),
        None => steady(shape, blocks),
    })
}

/// Judges the sites of a process that has ended by what they held before it freed that as it ended, by a shape of that
/// time; `None` if that is no leak, or it went on for long.
pub fn judge_teardown(shape: &SeriesShape, ended_ns: u64) -> Option<Judgement> {
    let teardown_ns = ended_ns.saturating_sub(shape.now_ns);
    let judged = Judgement {
        has_ended: true,
        teardown_ns: Some(teardown_ns),
        ..judge(shape)?
    };
    (judged.is_leak() && teardown_ns <= LEVEL_NS).then_some(judged)
}

/// Judges memory outside of call sites; `None` unless it grows.
pub fn judge_outside(shape: &SeriesShape) -> Option<Judgement> {
    let growth = growth::of_rest(shape, crate::outside::LEAST_GROWTH)?;
    Some(growing(shape, &growth))
}

fn growing(shape: &SeriesShape, growth: &Growth) -> Judgement {
    let span_ns = growth.end_ns.saturating_sub(growth.since_ns);
    // To the window: what happened within one is not told apart.
    let watched_ns = span_ns.saturating_add(shape.width_ns);
    let more_ns = LEAST_GROWTH_NS.saturating_sub(watched_ns);
    let more_ns = growth.in_step.map_or(more_ns, |(since_ns, steps)| {
        let span_ns = shape.now_ns.saturating_sub(since_ns);
        let lacking = LEAST_STEPS.saturating_sub(steps);
        let until_ns = (span_ns / steps.max(1)).saturating_mul(lacking);
        more_ns.min(until_ns.max(LEAST_IN_STEP_NS.saturating_sub(span_ns)))
    });
    let confidence = if more_ns > 0 {
        Confidence::NotEnough(more_ns)
    } else if growth.is_replaced {
        Confidence::NotEnough(span_ns)
    } else if span_ns >= CERTAIN_NS {
        Confidence::Certain
    } else {
        Confidence::Likely
    };
    Judgement {
        verdict: match is_by_cycles(shape, growth) {
            true => Verdict::GrowingPerCycle,
            false => Verdict::Growing,
        },
        confidence,
        since_ns: growth.since_ns,
        span_ns,
        blocks: growth.blocks,
        bytes: growth.bytes,
        bytes_per_second: Some(growth.bytes as f64 * 1e9 / span_ns.max(1) as f64),
        ..facts(shape)
    }
}

/// Whether it grows by one and more in each cycle, and goes through cycles still.
fn is_by_cycles(shape: &SeriesShape, growth: &Growth) -> bool {
    let (cycles, last_ns) = shape.cycles;
    let began_ns = shape
        .born_ns
        .map_or(shape.begin_ns, |(first_ns, _)| first_ns);
    let each_ns = last_ns.saturating_sub(began_ns) / u64::from(cycles.max(1));
    cycles >= KNOWN_CYCLES
        && growth.blocks >= u64::from(cycles)
        && shape.now_ns.saturating_sub(last_ns) <= each_ns.saturating_mul(2)
}

/// The judgement of a site that does not grow.
fn steady(shape: &SeriesShape, blocks: u64) -> Judgement {
    let (first_ns, last_ns) = shape.born_ns.unwrap_or((shape.begin_ns, shape.begin_ns));
    let all = Judgement {
        since_ns: first_ns,
        span_ns: shape.now_ns.saturating_sub(first_ns),
        blocks,
        bytes: sum(&shape.left_bytes),
        ..facts(shape)
    };
    if let Some((blocks, bytes)) = late(shape, all.usual_age_ns) {
        return Judgement {
            verdict: Verdict::FreedLate,
            confidence: Confidence::Likely,
            blocks,
            bytes,
            ..all
        };
    }
    let verdict = if all.frees > 0 && all.frees.saturating_mul(4) >= blocks {
        Verdict::Cache
    } else if last_ns.saturating_sub(first_ns) <= AT_ONCE_NS {
        Verdict::OneOff
    } else {
        Verdict::Plateau
    };
    // Several times as long as what is known took.
    let (seen_ns, known_ns) = match verdict {
        Verdict::Cache if all.frees >= KNOWN_FREES => {
            (all.span_ns, all.usual_age_ns.unwrap_or(LEVEL_NS))
        }
        Verdict::Cache => (all.span_ns, LEVEL_NS),
        _ => (all.quiet_ns, last_ns.saturating_sub(first_ns)),
    };
    let level_ns = known_ns
        .saturating_mul(KNOWN_TIMES)
        .clamp(SOON_NS, LEVEL_NS);
    let confidence = match level_ns.saturating_sub(seen_ns) {
        0 => Confidence::Likely,
        more_ns => Confidence::NotEnough(more_ns),
    };
    Judgement {
        verdict,
        confidence,
        ..all
    }
}

/// Allocations, and their bytes, that are far older than nearly all that were freed.
fn late(shape: &SeriesShape, usual_age_ns: Option<u64>) -> Option<(u64, u64)> {
    if sum(&shape.ages) < KNOWN_FREES {
        return None;
    }
    let late_ns = usual_age_ns?.saturating_mul(LATE).max(LEVEL_NS);
    let old = shape.windows_older_than(late_ns);
    let (blocks, bytes) = (sum(&shape.left[..old]), sum(&shape.left_bytes[..old]));
    // What was there at first and stays is no straggler.
    let began_ns = shape.born_ns?.0;
    let first = shape.index(began_ns.saturating_add(AT_ONCE_NS));
    let is_later = shape.left[..old]
        .iter()
        .skip(first.saturating_add(1))
        .any(|&left| left > 0);
    (blocks > 0 && is_later).then_some((blocks, bytes))
}

/// The part of the judgement that does not depend on the verdict.
fn facts(shape: &SeriesShape) -> Judgement {
    let frees = sum(&shape.ages);
    let last = shape.left.iter().rposition(|&left| left > 0).unwrap_or(0);
    let last_ns = shape.time_of(last + 1);
    let born_ns = shape.born_ns.map_or(last_ns, |(_, born_ns)| born_ns);
    Judgement {
        verdict: Verdict::Plateau,
        confidence: Confidence::Likely,
        since_ns: shape.begin_ns,
        span_ns: 0,
        blocks: 0,
        bytes: 0,
        bytes_per_second: None,
        frees,
        usual_age_ns: usual_age_ns(&shape.ages),
        cycles: shape.cycles.0,
        quiet_ns: shape.now_ns.saturating_sub(last_ns.min(born_ns)),
        has_ended: false,
        teardown_ns: None,
    }
}
