//! How what is live at a call site came about: a bounded series of windows of time.
//!
//! A window has what was allocated in it and is still live, which falls as that is freed: so an old
//! window tells what stays, however much comes and goes meanwhile. All sites of a process have the same
//! windows, and as time goes on two become one. Work for an event is constant.

use crate::totals::Total;

/// The width of a window at first, ns.
const UNIT_NS: u64 = 250_000_000;
/// There are never more windows; at least half as many, once that much time has passed.
pub const MAX_WINDOWS: usize = 24;
/// So wide that no more are needed.
const MAX_SHIFT: u8 = 35;
/// Buckets of ages: up to 1 ms, then each twice as old as the one before; the last has no end.
pub const AGES: usize = 24;
const MILLISECOND_NS: u64 = 1_000_000;
/// Frees with a longer pause between them, ns, are not one teardown.
const PAUSE_NS: u64 = 5_000_000_000;

/// The windows of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Windows {
    /// When the first begins; `None` if nothing has happened yet.
    begin_ns: Option<u64>,
    /// How often their width was doubled.
    shift: u8,
    /// Allocations of the process so far, those of its allocators included.
    pub(crate) births: u64,
}

impl Windows {
    fn width_ns(self) -> u64 {
        UNIT_NS << self.shift
    }

    /// The window of this time, which is not after the latest that was reached.
    fn index(self, time_ns: u64) -> u8 {
        let since = time_ns.saturating_sub(self.begin_ns.unwrap_or(time_ns));
        let index = (since / UNIT_NS) >> self.shift;
        index.min(MAX_WINDOWS as u64 - 1) as u8
    }

    /// It is this late.
    pub(crate) fn reach(&mut self, now_ns: u64) {
        let since = now_ns.saturating_sub(*self.begin_ns.get_or_insert(now_ns));
        let units = since / UNIT_NS;
        while units >> self.shift >= MAX_WINDOWS as u64 && self.shift < MAX_SHIFT {
            self.shift += 1;
        }
    }
}

/// Allocations and frees of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    index: u8,
    /// Allocations that were made in it and are live, and their bytes.
    left: u32,
    left_bytes: u64,
    /// The fewest allocations that were live in it, and the fewest bytes.
    live: u32,
    bytes: u64,
}

impl Window {
    /// Without anything.
    fn new(index: u8) -> Self {
        Self {
            index,
            left: 0,
            left_bytes: 0,
            live: u32::MAX,
            bytes: u64::MAX,
        }
    }

    /// So much is live.
    fn hold(&mut self, all: Total) {
        let live = u32::try_from(all.allocations).unwrap_or(u32::MAX);
        self.live = self.live.min(live);
        self.bytes = self.bytes.min(all.bytes);
    }

    /// Allocations that were made in it are no longer live.
    fn lose(&mut self, count: u32, bytes: u64) {
        self.left = self.left.saturating_sub(count);
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
    }
}

/// The series of a call site.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Series {
    shift: u8,
    windows: Vec<Window>,
    /// How old what was freed was.
    ages: Option<Box<[u32; AGES]>>,
    /// When something was first and last allocated.
    born_ns: Option<(u64, u64)>,
    cycle: Cycle,
    tail: Option<Box<Tail>>,
}

/// Frees without an allocation of the process since: if it ends then, its teardown. They count later.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tail {
    /// [`Windows::births`] of their time.
    births: u64,
    begin_ns: u64,
    last_ns: u64,
    ages: [u32; AGES],
    /// Windows with what each loses, and the fewest that were live.
    died: Series,
}

/// A site that holds more and less by turns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cycle {
    /// Allocations that were left in the end by the last cycle.
    base: u64,
    /// The most since then, and the fewest after that.
    high: u64,
    low: u64,
    /// Cycles so far, and when the last was over.
    count: u32,
    last_ns: u64,
}

impl Cycle {
    /// So many allocations are live now. A cycle is over when at least half of what had come is gone, and
    /// half of that has come again.
    fn note(&mut self, live: u64, now_ns: u64) {
        let (came, went) = (self.high.saturating_sub(self.base), self.high - self.low);
        let came_again = live.saturating_sub(self.low);
        if went >= 2 && went >= came / 2 && came_again > went / 2 {
            self.count = self.count.saturating_add(1);
            self.last_ns = now_ns;
            (self.base, self.high, self.low) = (self.low, live, live);
        } else if live > self.high {
            (self.high, self.low) = (live, live);
        } else {
            self.low = self.low.min(live);
        }
    }
}

impl Series {
    /// So many bytes were allocated at this time, where so much was live.
    pub(crate) fn born(&mut self, all: Windows, time_ns: u64, bytes: u64, before: Total) {
        let window = self.at(all, time_ns);
        window.left = window.left.saturating_add(1);
        window.left_bytes = window.left_bytes.saturating_add(bytes);
        window.hold(before);
        let (first, last) = self.born_ns.unwrap_or((time_ns, time_ns));
        self.born_ns = Some((first.min(time_ns), last.max(time_ns)));
        self.cycle.note(before.allocations + 1, time_ns);
    }

    /// What was allocated at `born_ns` was freed at `now_ns`, which leaves so much.
    pub(crate) fn died(
        &mut self,
        all: Windows,
        born_ns: u64,
        bytes: u64,
        now_ns: u64,
        after: Total,
    ) {
        let is_over = |tail: &Tail| {
            tail.births != all.births || now_ns.saturating_sub(tail.last_ns) > PAUSE_NS
        };
        if self.tail.as_deref().is_none_or(is_over) {
            self.settle();
            let tail = self.tail.get_or_insert_default();
            (tail.births, tail.begin_ns) = (all.births, now_ns);
        }
        let tail = &mut **self.tail.get_or_insert_default();
        tail.last_ns = now_ns;
        let window = tail.died.at(all, now_ns);
        window.hold(after);
        let window = match all.index(born_ns) == window.index {
            true => window,
            false => tail.died.at(all, born_ns),
        };
        window.left = window.left.saturating_add(1);
        window.left_bytes = window.left_bytes.saturating_add(bytes);
        let age = &mut tail.ages[bucket(now_ns.saturating_sub(born_ns))];
        *age = age.saturating_add(1);
        self.cycle.note(after.allocations, now_ns);
    }

    /// Makes the frees of the tail count.
    fn settle(&mut self) {
        let Some(mut tail) = self.tail.take() else {
            return;
        };
        if tail.died.shift != self.shift {
            self.widen(tail.died.shift);
            tail.died.widen(self.shift);
        }
        for died in &mut tail.died.windows {
            let window = self.window(died.index);
            window.lose(died.left, died.left_bytes);
            window.live = window.live.min(died.live);
            window.bytes = window.bytes.min(died.bytes);
            *died = Window::new(died.index);
        }
        // The next free is likely to be in the last one, too.
        let last = tail.died.windows.len().saturating_sub(1);
        if last > 0 {
            tail.died.windows.drain(..last);
        }
        let ages = self.ages.get_or_insert_default();
        for (age, count) in ages.iter_mut().zip(&mut tail.ages) {
            *age = age.saturating_add(std::mem::take(count));
        }
        self.tail = Some(tail);
    }

    /// The age at which nearly all of what was freed was freed at most; `None` if nothing was.
    pub(crate) fn usual_age_ns(&self) -> Option<u64> {
        let settled = self.ages.iter().map(|ages| &**ages);
        let mut sums = [0; AGES];
        for ages in settled.chain(self.tail.iter().map(|tail| &tail.ages)) {
            for (sum, count) in sums.iter_mut().zip(ages) {
                *sum += u64::from(*count);
            }
        }
        usual_age_ns(&sums)
    }

    /// When the frees began after which the process has still allocated so often.
    pub(crate) fn teardown_ns(&self, births: u64) -> Option<u64> {
        let tail = self.tail.as_ref().filter(|tail| tail.births == births);
        tail.map(|tail| tail.begin_ns)
    }

    /// What it was before these frees, and what they freed.
    pub(crate) fn before_teardown(&self, births: u64) -> (Self, Total) {
        let (mut series, mut freed) = (self.clone(), Total::default());
        if let Some(tail) = series.tail.take_if(|tail| tail.births == births) {
            for window in &tail.died.windows {
                freed.allocations += u64::from(window.left);
                freed.bytes = freed.bytes.saturating_add(window.left_bytes);
            }
        }
        (series, freed)
    }

    /// So much is live now.
    pub(crate) fn hold(&mut self, all: Windows, now_ns: u64, live: Total) {
        self.at(all, now_ns).hold(live);
    }

    /// Counts something that happens now.
    pub(crate) fn count(&mut self, all: Windows, now_ns: u64) {
        let window = self.at(all, now_ns);
        window.left = window.left.saturating_add(1);
    }

    /// An allocation is taken for another from now on.
    pub(crate) fn forget(&mut self, all: Windows, born_ns: u64, bytes: u64) {
        self.at(all, born_ns).lose(1, bytes);
    }

    /// The window of this time.
    fn at(&mut self, all: Windows, time_ns: u64) -> &mut Window {
        if self.shift < all.shift {
            self.widen(all.shift);
        }
        self.window(all.index(time_ns))
    }

    /// The window with this index, which may be new.
    fn window(&mut self, index: u8) -> &mut Window {
        let place = match self.windows.last() {
            Some(last) if last.index == index => self.windows.len() - 1,
            _ => self.place(index),
        };
        &mut self.windows[place]
    }

    /// The place of the window with this index, which may be new.
    #[cold]
    fn place(&mut self, index: u8) -> usize {
        let before = self.windows.iter().rposition(|w| w.index < index);
        let place = before.map_or(0, |before| before + 1);
        if self.windows.get(place).is_none_or(|w| w.index != index) {
            self.windows.insert(place, Window::new(index));
        }
        place
    }

    /// Windows have this width now.
    fn widen(&mut self, shift: u8) {
        let by = shift.saturating_sub(self.shift).min(7);
        if by == 0 {
            return;
        }
        self.shift = shift;
        for window in &mut self.windows {
            window.index >>= by;
        }
        self.windows.dedup_by(|later, first| {
            let are_one = later.index == first.index;
            if are_one {
                first.left = first.left.saturating_add(later.left);
                first.left_bytes = first.left_bytes.saturating_add(later.left_bytes);
                first.live = first.live.min(later.live);
                first.bytes = first.bytes.min(later.bytes);
            }
            are_one
        });
    }
}

/// The bucket of an age.
fn bucket(age_ns: u64) -> usize {
    let age_ms = age_ns / MILLISECOND_NS;
    (u64::BITS - age_ms.leading_zeros()).min(AGES as u32 - 1) as usize
}

/// The age, ns, at which 99 in 100 of what has these ages were freed at most; `None` if nothing was.
pub(crate) fn usual_age_ns(ages: &[u64; AGES]) -> Option<u64> {
    let frees: u64 = ages.iter().sum();
    let mut left = frees - frees / 100;
    let usual = ages.iter().position(|&count| {
        left = left.saturating_sub(count);
        left == 0
    });
    let bucket = usual.filter(|_| frees > 0)?;
    Some(least_age_ns((bucket + 1).min(AGES - 1)))
}

/// The age that all of a bucket have at least, ns.
pub fn least_age_ns(bucket: usize) -> u64 {
    match bucket {
        0 => 0,
        _ => MILLISECOND_NS << (bucket - 1),
    }
}

/// Allocations and frees at one call site or several, by windows of one width.
#[derive(Clone, Debug, Default)]
pub struct SeriesShape {
    /// The width of a window, ns.
    pub width_ns: u64,
    /// When the first began.
    pub begin_ns: u64,
    /// When the last ends, or would: it is not over.
    pub now_ns: u64,
    /// Allocations that were made in each and are live.
    pub left: Vec<u64>,
    /// Bytes of the same allocations.
    pub left_bytes: Vec<u64>,
    /// The fewest allocations that were live in each or are in a later one.
    pub live: Vec<u64>,
    /// The fewest bytes, likewise.
    pub bytes: Vec<u64>,
    /// Frees by how old the memory was: see [`least_age_ns`].
    pub ages: [u64; AGES],
    /// When something was first and last allocated; `None` if nothing was.
    pub born_ns: Option<(u64, u64)>,
    /// How often most was freed and allocated again, and when last.
    pub cycles: (u32, u64),
    /// Frees in each window, anywhere in the process, of what had been allocated before it was traced.
    pub unknown_frees: Vec<u64>,
}

impl SeriesShape {
    /// Of nothing yet.
    pub(crate) fn new(mut all: Windows, unknown_frees: &Series, now_ns: u64) -> Self {
        all.reach(now_ns);
        let length = usize::from(all.index(now_ns)) + 1;
        let mut shape = Self {
            width_ns: all.width_ns(),
            begin_ns: all.begin_ns.unwrap_or(now_ns),
            now_ns,
            left: vec![0; length],
            left_bytes: vec![0; length],
            live: vec![0; length],
            bytes: vec![0; length],
            unknown_frees: vec![0; length],
            ..Self::default()
        };
        let mut unknown = unknown_frees.clone();
        unknown.widen(all.shift);
        for window in &unknown.windows {
            if let Some(count) = shape.unknown_frees.get_mut(usize::from(window.index)) {
                *count = count.saturating_add(u64::from(window.left));
            }
        }
        shape
    }

    /// Adds what happened at a site where so much is live.
    pub(crate) fn add(&mut self, mut all: Windows, series: &Series, now: Total) {
        all.reach(self.now_ns);
        let mut series = series.clone();
        series.settle();
        series.widen(all.shift);
        let mut windows = series.windows.iter().rev().peekable();
        let (mut live, mut bytes) = (now.allocations, now.bytes);
        for index in (0..self.left.len()).rev() {
            if let Some(window) = windows.next_if(|w| usize::from(w.index) == index) {
                self.left[index] = self.left[index].saturating_add(u64::from(window.left));
                self.left_bytes[index] = self.left_bytes[index].saturating_add(window.left_bytes);
                live = live.min(u64::from(window.live));
                bytes = bytes.min(window.bytes);
            }
            self.live[index] = self.live[index].saturating_add(live);
            self.bytes[index] = self.bytes[index].saturating_add(bytes);
        }
        let ages = series.ages.iter().flat_map(|ages| ages.iter());
        for (sum, count) in self.ages.iter_mut().zip(ages) {
            *sum = sum.saturating_add(u64::from(*count));
        }
        self.born_ns = match (self.born_ns, series.born_ns) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self.cycles = self.cycles.max((series.cycle.count, series.cycle.last_ns));
    }
}

#[cfg(test)]
mod tests;
