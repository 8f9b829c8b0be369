//! Call sites: which function was called from where, and what became of what was allocated there.
//!
//! A site is a call stack and a function of the table. Calls whose stack is not known are one site
//! for each function. Sites and the stacks that they need are kept while the process is: a program
//! has as many as it has call paths to CUDA, up to [`MAX_SITES`]; what comes then is counted as
//! without a stack.

pub mod series;

use std::rc::Rc;

use hashbrown::HashMap;

use series::{Series, SeriesShape, Windows};

use super::Allocation;
use super::totals::MemorySums;
use gpuprobe_model::stack::CallStack;

/// Stacks, and sites, of one process that are told apart.
const MAX_SITES: usize = 1 << 18;
/// Numbers of stacks of one process that are remembered.
const MAX_NUMBERS: usize = 1 << 20;
/// What goes sooner, ns, has passed through: nothing was put in its place.
const PASSING_NS: u64 = 5_000_000_000;

/// A call site of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallSite {
    /// From where; `None` if that is not known.
    pub stack: Option<Rc<CallStack>>,
    /// Row of the function that was called.
    pub row: u16,
    /// Live allocations of this site.
    pub live: MemorySums,
    /// All allocations ever made here, of the kinds that are counted. Only those with an address count:
    /// an allocation of nothing is a call, but no allocation.
    pub allocated: MemorySums,
    /// Allocations no longer live: freed, gone with their context or module, or at an address that
    /// was handed out again. `allocated` less `freed` is `live`.
    pub freed: MemorySums,
    /// The most bytes that were live here at a time, of GPUs, of the host and of others together.
    pub peak_bytes: u64,
    /// The peak at which `then` was noted, which has the live sums of that time.
    noted: Option<u32>,
    then: MemorySums,
    series: Series,
}

impl CallSite {
    fn add(&mut self, new: &Allocation) {
        self.live.add(new);
        self.allocated.add(new);
        self.peak_bytes = self.peak_bytes.max(self.live.all().bytes);
    }

    /// Notes the sums at the peak before the live sum changes.
    fn note(&mut self, peak: u32) {
        if self.noted != Some(peak) {
            self.noted = Some(peak);
            self.then = self.live;
        }
    }
}

/// A stack, by its place in [`Sites::stacks`].
type StackIndex = u32;

/// The call sites of one process.
#[derive(Debug, Default)]
pub struct Sites {
    sites: Vec<CallSite>,
    /// Sites by [`caller`].
    by_caller: HashMap<u64, u32>,
    stacks: Vec<Rc<CallStack>>,
    by_contents: HashMap<Rc<CallStack>, StackIndex>,
    by_number: HashMap<u64, StackIndex>,
    /// Number of the highest point so far, over all processes.
    peak: u32,
    /// Number of the last one before the process ended.
    ended: Option<u32>,
    /// The time, `CLOCK_MONOTONIC` nanoseconds or those of a file's rows, and the windows that it has.
    now_ns: u64,
    windows: Windows,
    /// Frees of what was not seen to be allocated.
    unknown_frees: Series,
    /// Memory taken by sites and stacks, in units of about 64 bytes.
    kept: usize,
    /// No further stacks are told apart.
    pub(super) is_full: bool,
    /// Stacks that were not, for that.
    left_out: u64,
}

/// Units that a site takes, with its series, and three locations of a stack.
const SITE_UNITS: usize = 24;
const NUMBERS_A_UNIT: usize = 2;

impl Sites {
    /// Memory in use, in units of about 64 bytes.
    pub(super) fn kept(&self) -> usize {
        self.kept + self.by_number.len() / NUMBERS_A_UNIT
    }

    /// Stacks that were not told apart since this was last asked, as there is too much.
    pub(super) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    /// Sets the time and the number of the last peak for the events that follow.
    pub(super) fn after_peak(&mut self, peak: u32, now_ns: u64) {
        self.peak = peak;
        self.now_ns = self.now_ns.max(now_ns);
        self.windows.reach(self.now_ns);
    }

    /// Series of the allocations of these sites at this time, which is not before the last event.
    pub fn shape(&self, sites: &[u32], now_ns: u64) -> SeriesShape {
        let mut shape =
            SeriesShape::new(self.windows, &self.unknown_frees, now_ns.max(self.now_ns));
        for site in sites.iter().filter_map(|&number| self.get(number)) {
            shape.add(self.windows, &site.series, site.live.all());
        }
        shape
    }

    /// The same of before these sites freed what they did since their process had allocated so often; `None` unless they
    /// did.
    pub fn shape_before_teardown(&self, sites: &[u32], births: u64) -> Option<SeriesShape> {
        let sites = sites.iter().filter_map(|&number| self.get(number));
        let begins = sites.clone();
        let begins = begins.filter_map(|site| site.series.teardown_ns(births));
        let mut shape = SeriesShape::new(self.windows, &self.unknown_frees, begins.max()?);
        // What had been there before is freed then, too.
        if let Some(unknown) = shape.unknown_frees.last_mut() {
            *unknown = 0;
        }
        for site in sites {
            let (series, mut live) = site.series.before_teardown(births);
            live.merge(site.live.all());
            shape.add(self.windows, &series, live);
        }
        Some(shape)
    }

    /// Allocations of the process so far, those of its allocators included.
    pub fn births(&self) -> u64 {
        self.windows.births
    }

    /// The process, or the one that has this allocator, has allocated so often.
    pub(super) fn set_births(&mut self, births: u64) {
        self.windows.births = births;
    }

    /// Something was freed that was not seen to be allocated.
    pub(super) fn note_unknown_free(&mut self) {
        self.unknown_frees.count(self.windows, self.now_ns);
    }

    /// The same of something that had been there at this time.
    pub(super) fn note_free_of_found(&mut self, found_ns: u64) {
        if self.now_ns.saturating_sub(found_ns) >= PASSING_NS {
            self.note_unknown_free();
        }
    }

    /// Whether an allocation is older than nearly all that its site has freed.
    pub(super) fn outlives_others(&self, allocation: &Allocation) -> bool {
        let site = self.get(allocation.site);
        let usual_ns = site.and_then(|site| site.series.usual_age_ns());
        let age_ns = self.now_ns.saturating_sub(allocation.end_ns);
        usual_ns.is_none_or(|usual_ns| age_ns >= usual_ns.saturating_mul(2))
    }

    /// Sums live at `site` at the peak with this number, the last one over all processes.
    pub(super) fn at_peak(&self, site: &CallSite, peak: u32) -> MemorySums {
        match site.noted == Some(peak) {
            _ if self.ended.is_some_and(|ended| ended != peak) => MemorySums::default(),
            true => site.then,
            false => site.live,
        }
    }

    /// Nothing was allocated yet; what is live stays.
    pub(super) fn begin_again(&mut self) {
        for site in &mut self.sites {
            site.allocated = MemorySums::default();
            site.freed = MemorySums::default();
            site.peak_bytes = site.live.all().bytes;
            site.series = Series::default();
        }
        self.unknown_frees = Series::default();
        let births = std::mem::take(&mut self.windows).births;
        self.windows.births = births;
        self.windows.reach(self.now_ns);
    }

    /// All sites, by their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &CallSite> {
        self.sites.iter()
    }

    /// The site with this number.
    pub fn get(&self, number: u32) -> Option<&CallSite> {
        self.sites.get(number as usize)
    }

    /// From now on, `number` names `stack`. Two numbers may name the same.
    pub(super) fn learn(&mut self, number: u64, stack: Rc<CallStack>) {
        if self.by_number.len() >= MAX_NUMBERS {
            self.by_number.clear();
        }
        if let Some(&known) = self.by_contents.get(&stack) {
            self.by_number.insert(number, known);
            return;
        }
        let index = self.stacks.len() as StackIndex;
        if self.is_full || self.stacks.len() >= MAX_SITES {
            self.left_out += u64::from(self.is_full);
            // What the number meant before must not be taken for what it means now.
            self.by_number.remove(&number);
            return;
        }
        self.kept += 2 + stack.locations.len() / 2;
        self.stacks.push(Rc::clone(&stack));
        self.by_contents.insert(stack, index);
        self.by_number.insert(number, index);
    }

    /// Nothing more is allocated; the last peak over all processes has this number.
    pub(super) fn end(&mut self, peak: u32) {
        self.ended = Some(peak);
        self.by_caller = HashMap::new();
        self.by_contents = HashMap::new();
        self.by_number = HashMap::new();
    }

    /// The stack that `number` names.
    pub fn stack(&self, number: u64) -> Option<&Rc<CallStack>> {
        let index = *self.by_number.get(&number)?;
        self.stacks.get(index as usize)
    }

    /// Key of the site where the function of `row` was called, with the stack `number`.
    pub(super) fn key(&self, number: u64, row: u16) -> u64 {
        let known = (number != 0).then(|| self.by_number.get(&number));
        caller(known.flatten().copied(), row)
    }

    /// The number of the site where the function of `row` was called, with the stack `number`.
    pub(super) fn site(&mut self, number: u64, row: u16) -> u32 {
        let known = (number != 0).then(|| self.by_number.get(&number));
        let stack = known.flatten().copied();
        if let Some(&site) = self.by_caller.get(&caller(stack, row)) {
            return site;
        }
        let stack = stack.filter(|_| self.sites.len() < MAX_SITES && !self.is_full);
        if let Some(&site) = self.by_caller.get(&caller(stack, row)) {
            return site;
        }
        // Without a stack, there are no more than functions.
        let site = u32::try_from(self.sites.len()).unwrap_or(u32::MAX);
        self.kept += SITE_UNITS;
        self.sites.push(CallSite {
            stack: stack.and_then(|index| self.stacks.get(index as usize).cloned()),
            row,
            ..CallSite::default()
        });
        self.by_caller.insert(caller(stack, row), site);
        site
    }

    pub(super) fn add(&mut self, allocation: &Allocation) {
        if let Some(site) = self.sites.get_mut(allocation.site as usize) {
            site.note(self.peak);
            let (time_ns, bytes) = (allocation.end_ns, allocation.size_bytes);
            site.series
                .born(self.windows, time_ns, bytes, site.live.all());
            site.add(allocation);
        }
    }

    pub(super) fn subtract(&mut self, allocation: &Allocation) {
        if let Some(site) = self.sites.get_mut(allocation.site as usize) {
            site.note(self.peak);
            site.live.subtract(allocation);
            site.freed.add(allocation);
            let (born_ns, bytes) = (allocation.end_ns, allocation.size_bytes);
            let (now_ns, after) = (self.now_ns, site.live.all());
            site.series
                .died(self.windows, born_ns, bytes, now_ns, after);
        }
    }

    /// `old` is the same as `new`, which has another size or site.
    pub(super) fn replace(&mut self, old: &Allocation, new: &Allocation) {
        if let Some(site) = self.sites.get_mut(old.site as usize) {
            site.note(self.peak);
            site.live.subtract(old);
            site.allocated.subtract(old);
            site.series.forget(self.windows, old.end_ns, old.size_bytes);
        }
        if let Some(site) = self.sites.get_mut(new.site as usize) {
            site.note(self.peak);
            let before = site.live.all();
            site.series
                .born(self.windows, new.end_ns, new.size_bytes, before);
            site.add(new);
        }
    }
}

/// Key of a site: its stack, if it is known, and its function.
fn caller(stack: Option<StackIndex>, row: u16) -> u64 {
    let stack = stack.map_or(0, |index| u64::from(index) + 1);
    stack << 16 | u64::from(row)
}

#[cfg(test)]
mod tests;
