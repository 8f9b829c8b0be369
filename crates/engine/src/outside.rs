//! Memory of a process that no call site holds, over time: what NVML reports less what the ledger knows.

use super::sites::series::{Series, SeriesShape, Windows};
use super::totals::Total;

/// Growth of so much is news, bytes.
pub const LEAST_GROWTH: u64 = 16 << 20;
/// Objects made within this time are made at once, ns: there is no pace to keep.
const AT_ONCE_NS: u64 = 5_000_000_000;
/// Parts of the time in which objects are made, in each of which memory has to grow.
const PARTS: usize = 4;

/// The memory of one process outside of its call sites.
#[derive(Debug, Default)]
pub struct Outside {
    windows: Windows,
    series: Series,
    /// The last figure, bytes.
    last: Option<u64>,
}

impl Outside {
    /// It has so many bytes now.
    pub(super) fn note(&mut self, now_ns: u64, bytes: u64) {
        self.windows.reach(now_ns);
        self.last = Some(bytes);
        self.series.hold(self.windows, now_ns, all(bytes));
    }

    /// The fewest bytes in each window and later, until `now_ns`; `None` without figures.
    pub fn shape(&self, now_ns: u64) -> Option<SeriesShape> {
        let mut shape = SeriesShape::new(self.windows, &Series::default(), now_ns);
        shape.add(self.windows, &self.series, all(self.last?));
        Some(shape)
    }
}

fn all(bytes: u64) -> Total {
    Total {
        bytes,
        allocations: 1,
    }
}

/// Growth beside objects that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BesideGrowth {
    /// By how much, bytes.
    pub bytes: u64,
    /// Since when, on the clock of the events, ns.
    pub since_ns: u64,
    /// For how long, ns.
    pub span_ns: u64,
}

/// Growth beside objects that stay, if it kept pace with them: it grew all the while that they were made, and little
/// after. Before, there may have been a warm-up.
pub fn grown_beside(outside: &SeriesShape, objects: &SeriesShape) -> Option<BesideGrowth> {
    let made = &objects.left;
    let first = made.iter().position(|&left| left > 0)?;
    let last = made.iter().rposition(|&left| left > 0)?;
    let (first_ns, last_ns) = (objects.time_of(first), objects.time_of(last + 1));
    if last_ns.saturating_sub(first_ns) < AT_ONCE_NS
        || !super::verdict::is_even(&made[first..=last])
    {
        return None;
    }
    let end = outside.bytes.len().checked_sub(1)?;
    let (from, to) = (
        outside.index(first_ns).min(end),
        outside.index(last_ns).min(end),
    );
    let at = |part: usize| outside.bytes[from + (to - from) * part / PARTS];
    let grown = at(PARTS) - at(0);
    let is_steady = (0..PARTS).all(|part| (at(part + 1) - at(part)) >= grown / (3 * PARTS as u64));
    let is_most = grown.saturating_mul(2) >= outside.bytes[end] - outside.bytes[from];
    (to - from >= PARTS && grown >= LEAST_GROWTH && is_steady && is_most).then_some(BesideGrowth {
        bytes: grown,
        since_ns: first_ns,
        span_ns: last_ns.saturating_sub(first_ns),
    })
}

#[cfg(test)]
mod tests;
