//! Growth in step with launches: as many allocations stay as a kernel was launched.

use super::growth::{self, sum};
use crate::sites::series::SeriesShape;

/// Fewer steps tell nothing: what is unrelated may have kept pace by chance. With several launches or
/// allocations a step, chance has as many times more.
const LEAST_STEPS: f64 = 100.0;
/// A step has no more launches of one kernel, and keeps no more allocations.
const MOST_A_STEP: f64 = 4.0;
/// Steps by which launches and allocations may differ: one at each end.
const APART: f64 = 2.0;
/// Fewer windows tell nothing.
const LEAST_WINDOWS: usize = 6;

/// Allocations that stay for so many launches of a kernel; one of the two is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepGrowth {
    /// Launches in a step.
    pub launches: u64,
    /// Allocations that stay of each step.
    pub stay: u64,
    /// Steps that were seen.
    pub steps: u64,
}

/// The step by which a site grows, where the kernel with the launches `launched` until a time (`None`
/// where that is not known), sampled each `spacing_ns`, is launched in each. `None` if the site does not
/// grow, or not in step with it.
pub fn steps(
    shape: &SeriesShape,
    spacing_ns: u64,
    launched: impl Fn(u64) -> Option<f64>,
) -> Option<StepGrowth> {
    let grown = growth::of_blocks(shape)?;
    // The first window has what was before the growth, too; the last may not be over.
    let first = shape.index(grown.since_ns).saturating_add(1);
    let last = shape.index(grown.end_ns).min(shape.left.len());
    let left = shape.left.get(first..last)?;
    if left.len() < LEAST_WINDOWS {
        return None;
    }
    let (begin_ns, end_ns) = (shape.time_of(first), shape.time_of(last));
    let begun = launched(begin_ns)?;
    let launches = launched(end_ns)? - begun;
    let blocks = sum(left) as f64;
    let (stay, a_step) = match blocks >= launches {
        true => ((blocks / launches).round(), 1.0),
        false => (1.0, (launches / blocks).round()),
    };
    let steps = launches / a_step;
    let most = stay.max(a_step);
    let is_known = most <= MOST_A_STEP && steps >= LEAST_STEPS * most;
    if !is_known {
        return None;
    }
    // When it was launched between two samples is not known, but likely evenly.
    let between = steps * spacing_ns as f64 / end_ns.saturating_sub(begin_ns).max(1) as f64;
    let apart = APART + between.sqrt();
    let mut sum = 0.0;
    for (window, &left) in (first + 1..).zip(left) {
        sum += left as f64;
        let launches = launched(shape.time_of(window))? - begun;
        if (launches / a_step - sum / stay).abs() > apart {
            return None;
        }
    }
    Some(StepGrowth {
        launches: a_step as u64,
        stay: stay as u64,
        steps: steps as u64,
    })
}
