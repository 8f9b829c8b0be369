//! Objects that programs make and destroy by a handle (streams, events, modules, contexts and the like), by the call
//! site that made them. They take memory that no allocation shows.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::contexts::Slot;
use super::sites::Sites;
use super::sites::series::{Series, SeriesShape, Windows};
use super::totals::Total;
use gpuprobe_cuda::HandleKind;
use gpuprobe_model::stack::CallStack;

/// A kind of handle, and its value.
pub(super) type HandleKey = (HandleKind, u64);

/// A live object, and the index of its call site.
#[derive(Clone, Copy, Debug)]
struct LiveHandle {
    site: usize,
    made: NewHandle,
}

/// A call that makes an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewHandle {
    /// Entry and return, ns.
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// Number of the call stack, and row of the function.
    pub(super) caller: (u64, u16),
    pub(super) tid: u32,
    pub(super) device: Option<u16>,
    /// Its context, if it ends with that.
    pub(super) slot: Option<Slot>,
}

/// What was made at a call site.
#[derive(Debug)]
pub struct HandleSite {
    /// Kind of the objects.
    pub kind: HandleKind,
    /// From where; `None` if that is not known.
    pub stack: Option<Rc<CallStack>>,
    /// Row of the function that was called.
    pub row: u16,
    /// Objects ever made here.
    pub created: u64,
    /// Those that are destroyed, by a call or with their context.
    pub destroyed: u64,
    series: Series,
}

impl HandleSite {
    /// Objects that are not destroyed.
    pub fn live(&self) -> u64 {
        self.created - self.destroyed
    }

    fn all(&self) -> Total {
        Total {
            bytes: 0,
            allocations: self.live(),
        }
    }
}

/// The objects of one process.
#[derive(Debug, Default)]
pub struct Handles {
    live: HashMap<HandleKey, LiveHandle>,
    sites: Vec<HandleSite>,
    /// Sites by the key of their stack and function.
    by_caller: HashMap<u64, usize>,
    windows: Windows,
    /// The last ones destroyed, with their kinds.
    gone: VecDeque<(HandleKind, LiveHandle)>,
    /// Objects destroyed that were not seen to be made.
    unknown: HashMap<HandleKind, Series>,
}

/// Units of about 64 bytes of a site, and of a live object.
const SITE_UNITS: usize = 16;
/// So many objects does a call of a library make and destroy for itself at most, beside other threads.
const MAX_GONE: usize = 16;

impl Handles {
    /// Adds the object that a call made. One that is live under its handle was made by a call within this one; else it
    /// has been destroyed, and that call has not returned yet or was not seen.
    pub(super) fn create(&mut self, key: HandleKey, new: &NewHandle, callers: &Sites) {
        self.windows.reach(new.end_ns);
        self.windows.births += 1;
        self.forget_temporary(key.0, new);
        let known = self.live.get(&key);
        if known.is_some_and(|known| known.made.end_ns >= new.start_ns) {
            return;
        }
        if let Some(old) = self.live.remove(&key) {
            self.end(&old, new.end_ns);
        }
        let (number, row) = new.caller;
        let next = self.sites.len();
        let index = self.by_caller.entry(callers.key(number, row));
        let index = *index.or_insert(next);
        if index == next {
            self.sites.push(HandleSite {
                kind: key.0,
                stack: callers.stack(number).cloned(),
                row,
                created: 0,
                destroyed: 0,
                series: Series::default(),
            });
        }
        let site = &mut self.sites[index];
        let before = site.all();
        site.created += 1;
        site.series.born(self.windows, new.end_ns, 0, before);
        let made = LiveHandle {
            site: index,
            made: *new,
        };
        self.live.insert(key, made);
    }

    /// Takes back what calls within this one made and destroyed: cufftPlan1d makes another plan by cufftCreate.
    fn forget_temporary(&mut self, kind: HandleKind, outer: &NewHandle) {
        let sites = &mut self.sites;
        self.gone.retain(|(gone, one)| {
            let is_other = *gone != kind || one.made.tid != outer.tid;
            let stays = is_other || one.made.start_ns <= outer.start_ns;
            if !stays {
                let site = &mut sites[one.site];
                site.created -= 1;
                site.destroyed -= 1;
            }
            stays
        });
    }

    /// Removes the object that was live under `key` when its end was entered at `start_ns`.
    pub(super) fn destroy(&mut self, key: HandleKey, start_ns: u64, now_ns: u64) {
        self.windows.reach(now_ns);
        match self.live.get(&key).copied() {
            // The former one of this handle, which is counted as destroyed.
            Some(newer) if newer.made.end_ns > start_ns => {}
            Some(gone) => {
                self.live.remove(&key);
                self.end(&gone, now_ns);
                self.gone.truncate(MAX_GONE - 1);
                self.gone.push_front((key.0, gone));
            }
            None => {
                let unknown = self.unknown.entry(key.0).or_default();
                unknown.count(self.windows, now_ns);
            }
        }
    }

    /// Removes the objects that end with a context.
    pub(super) fn end_with(&mut self, now_ns: u64, ends: impl Fn(Option<u16>, Slot) -> bool) {
        self.windows.reach(now_ns);
        let is_gone = |_: &HandleKey, one: &mut LiveHandle| {
            let made = &one.made;
            made.slot.is_some_and(|slot| ends(made.device, slot))
        };
        let mut gone: Vec<_> = self.live.extract_if(is_gone).map(|(_, one)| one).collect();
        // A replay has them in the same order.
        gone.sort_unstable_by_key(|one| (one.made.end_ns, one.site));
        gone.iter().for_each(|one| self.end(one, now_ns));
    }

    fn end(&mut self, gone: &LiveHandle, now_ns: u64) {
        if let Some(site) = self.sites.get_mut(gone.site) {
            site.destroyed += 1;
            let after = site.all();
            let series = &mut site.series;
            series.died(self.windows, gone.made.end_ns, 0, now_ns, after);
        }
    }

    /// The call that made the live object under this handle.
    pub(super) fn get(&self, key: HandleKey) -> Option<&NewHandle> {
        self.live.get(&key).map(|one| &one.made)
    }

    /// Number of objects of this kind that were made and not destroyed.
    pub fn live(&self, kind: HandleKind) -> u64 {
        let of_kind = self.sites.iter().filter(|site| site.kind == kind);
        of_kind.map(HandleSite::live).sum()
    }

    /// Devices whose primary contexts were made at the sites with these indices, in their order.
    pub fn primary_of(&self, sites: &[usize]) -> Vec<u16> {
        let is_here = |one: &LiveHandle| sites.contains(&one.site);
        let found = self
            .live
            .iter()
            .filter(|((kind, _), one)| *kind == HandleKind::PrimaryContext && is_here(one));
        let mut found: Vec<_> = found.filter_map(|(_, one)| one.made.device).collect();
        found.sort_unstable();
        found
    }

    /// The call sites that made objects, in the order of their first calls.
    pub fn sites(&self) -> &[HandleSite] {
        &self.sites
    }

    /// Objects made and destroyed over time at these sites of one kind, until `now_ns`.
    pub fn shape<'a>(
        &self,
        kind: HandleKind,
        sites: impl IntoIterator<Item = &'a HandleSite>,
        now_ns: u64,
    ) -> SeriesShape {
        let none = Series::default();
        let unknown = self.unknown.get(&kind).unwrap_or(&none);
        let mut shape = SeriesShape::new(self.windows, unknown, now_ns);
        for site in sites {
            shape.add(self.windows, &site.series, site.all());
        }
        shape
    }

    /// Memory in use, in units of about 64 bytes.
    pub(super) fn kept(&self) -> usize {
        self.live.len() * 2 + self.sites.len() * SITE_UNITS
    }
}

#[cfg(test)]
mod tests;
