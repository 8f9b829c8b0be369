//! Growth: that more and more stays.

use crate::sites::series::{AGES, SeriesShape, least_age_ns};

/// Growth is looked at in so many parts, of which all but one must have some, and the last.
const PARTS: usize = 8;
/// Fewer allocations that stay are no series.
const LEAST_BLOCKS: u64 = 8;
/// Windows that are over, in which each has as much as the others.
const LEAST_EVEN: usize = 10;
/// Allocations stay if fewer than one in this many of the same age were freed.
const STAYS: u64 = 10;

/// That more and more stays, from a window on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Growth {
    /// As much of what was there before went meanwhile, as far as is known.
    pub(super) is_replaced: bool,
    /// Since when each second has added as much, of the same size, and nothing of it went, and in how many steps: as a
    /// loop does that keeps something in each.
    pub(super) in_step: Option<(u64, u64)>,
    pub(super) since_ns: u64,
    pub(super) end_ns: u64,
    /// Allocations that have stayed, and their bytes.
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

impl SeriesShape {
    /// The window of this time.
    pub(crate) fn index(&self, time_ns: u64) -> usize {
        let since = time_ns.saturating_sub(self.begin_ns);
        usize::try_from(since / self.width_ns.max(1)).unwrap_or(usize::MAX)
    }

    /// How many windows ended at least so long ago; all with 0.
    pub(super) fn windows_older_than(&self, age_ns: u64) -> usize {
        if age_ns == 0 {
            return self.left.len();
        }
        let until_ns = self.now_ns.saturating_sub(age_ns);
        self.index(until_ns).min(self.left.len())
    }

    /// When this window begins.
    pub(crate) fn time_of(&self, window: usize) -> u64 {
        let since = (window as u64).saturating_mul(self.width_ns);
        self.begin_ns.saturating_add(since)
    }

    fn begin_of(&self, window: usize) -> u64 {
        let begin_ns = self.time_of(window);
        match self.born_ns {
            Some((born_ns, _)) => begin_ns.max(born_ns),
            None => begin_ns,
        }
    }

    fn end_of(&self, windows: usize) -> u64 {
        self.time_of(windows).min(self.now_ns)
    }
}

/// Growth by what was allocated and stays: older than nearly everything that is freed there.
pub(super) fn of_blocks(shape: &SeriesShape) -> Option<Growth> {
    let end = (0..AGES).find_map(|bucket| {
        let freed = sum(&shape.ages[bucket..]);
        let windows = shape.windows_older_than(least_age_ns(bucket));
        let left = sum(&shape.left[..windows]);
        let stays = left >= LEAST_BLOCKS && freed.saturating_mul(STAYS) <= left;
        stays.then_some(windows)
    })?;
    let left = &shape.left[..end];
    let grows = |first: &usize| is_even(&left[*first..]);
    let is_more = |first: &usize| !is_replaced(shape, *first, sum(&left[*first..]));
    let first = starts(end).filter(grows).find(is_more);
    let first = first.or_else(|| starts(end).find(grows))?;
    let mut in_step = starts(end).filter(|first| grows(first) && is_more(first));
    let in_step = in_step.find(|&first| is_in_step(shape, first..end));
    Some(Growth {
        is_replaced: !is_more(&first),
        in_step: in_step.map(|first| (shape.begin_of(first), sum(&left[first..]))),
        since_ns: shape.begin_of(first),
        end_ns: shape.end_of(end),
        blocks: sum(&left[first..]),
        bytes: sum(&shape.left_bytes[first..end]),
    })
}

/// Whether each window has added as much. Requests that arrive at random do not: their number
/// varies by its square root.
fn is_in_step(shape: &SeriesShape, windows: std::ops::Range<usize>) -> bool {
    let span_ns = shape
        .end_of(windows.end)
        .saturating_sub(shape.begin_of(windows.start));
    let old = (0..AGES)
        .find(|&bucket| least_age_ns(bucket) >= span_ns / 8)
        .unwrap_or(AGES);
    // The first and the last are not whole.
    let end = windows.end.min(shape.left.len() - 1);
    let whole = windows.start + 1..end.max(windows.start + 1);
    let (count, added) = (whole.len() as f64, &shape.left[whole.clone()]);
    let (blocks, bytes) = (
        sum(added) as f64,
        sum(&shape.left_bytes[whole.clone()]) as f64,
    );
    let (mean, size) = (blocks / count, bytes / blocks);
    let is_of_size = |window: usize| {
        let (left, bytes) = (shape.left[window] as f64, shape.left_bytes[window] as f64);
        (bytes - left * size).abs() <= bytes / 64.0
    };
    let differences = added.iter().map(|&one| (one as f64 - mean).powi(2));
    let variance = differences.sum::<f64>() / count;
    sum(&shape.ages[old..]) == 0
        && whole.len() >= LEAST_EVEN
        && variance <= (mean / 16.0).max((mean / 50.0).powi(2))
        && whole.clone().all(is_of_size)
}

/// Whether so many frees were of what had been there before that they may be what was replaced.
fn is_replaced(shape: &SeriesShape, first: usize, blocks: u64) -> bool {
    let unknown = sum(&shape.unknown_frees[first..]);
    unknown.saturating_mul(2) >= blocks
}

/// Growth of what is freed and allocated anew, larger each time.
pub(super) fn of_bytes(shape: &SeriesShape) -> Option<Growth> {
    let (end, least) = (shape.bytes.len(), &shape.bytes);
    growth_of_least(shape, |first, rise| {
        let is_much = rise.saturating_mul(3) >= least[end - 1];
        // It is not that there is more of the same.
        let (before, now) = (shape.live[first], shape.live[end - 1]);
        let are_larger = before > 0 && now <= before + (before / 4).max(1);
        is_much && are_larger
    })
}

/// Growth of what is in no allocation, by at least so many bytes.
pub(super) fn of_rest(shape: &SeriesShape, bytes: u64) -> Option<Growth> {
    growth_of_least(shape, |_, rise| rise >= bytes)
}

/// Steady growth of the fewest bytes from the first window on from which the rise is one that counts.
fn growth_of_least(shape: &SeriesShape, counts: impl Fn(usize, u64) -> bool) -> Option<Growth> {
    let (end, least) = (shape.bytes.len(), &shape.bytes);
    let rises: Vec<u64> = least.windows(2).map(|two| two[1] - two[0]).collect();
    let grows = |first: &usize| {
        let rise = least[end - 1] - least[*first];
        counts(*first, rise) && is_steady(&rises[*first..], rise)
    };
    let first = starts(end).find(grows)?;
    Some(Growth {
        is_replaced: false,
        in_step: None,
        since_ns: shape.begin_of(first),
        end_ns: shape.now_ns,
        blocks: shape.live[end - 1],
        bytes: least[end - 1] - least[first],
    })
}

/// The windows from which on growth is looked for: those that have enough behind them.
fn starts(end: usize) -> std::ops::Range<usize> {
    0..end.saturating_sub(PARTS - 1)
}

/// Saturating sum: values that a traced program reports may not fit.
pub(super) fn sum(values: &[u64]) -> u64 {
    values.iter().copied().fold(0, u64::saturating_add)
}

/// Sums of the parts.
fn parts(values: &[u64]) -> [u64; PARTS] {
    let mut parts = [0_u64; PARTS];
    for (index, &value) in values.iter().enumerate() {
        let part = &mut parts[index * PARTS / values.len()];
        *part = part.saturating_add(value);
    }
    parts
}

/// Whether what was added is spread over the whole time, and does not become less.
pub(crate) fn is_even(added: &[u64]) -> bool {
    if sum(added) < LEAST_BLOCKS || added.first() == Some(&0) {
        return false;
    }
    let parts = parts(added);
    let filled = parts.iter().filter(|&&part| part > 0).count();
    filled >= PARTS - 1 && parts[PARTS - 1] > 0 && does_not_level(added)
}

/// Whether the last third has at least two thirds of what the others have each.
fn does_not_level(added: &[u64]) -> bool {
    let third = (added.len() / 3).max(1);
    let (before, last) = added.split_at(added.len() - third);
    let mean = |values: &[u64]| sum(values) as f64 / values.len().max(1) as f64;
    mean(last) * 3.0 >= mean(before) * 2.0
}

/// Whether rises that are `all` together are spread likewise, each part with a share.
fn is_steady(rises: &[u64], all: u64) -> bool {
    if all == 0 || rises.len() < PARTS {
        return false;
    }
    let share = (all / PARTS as u64 / 3).max(1);
    let parts = parts(rises);
    let filled = parts.iter().filter(|&&part| part >= share).count();
    filled >= PARTS - 1 && parts[PARTS - 1] >= share && does_not_level(rises)
}
