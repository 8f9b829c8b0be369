//! What is live, and what was live at the highest point, in one map.

mod totals;

use anyhow::Result;
use hashbrown::HashMap;

use super::Selection;
use super::events::{MemoryEvent, Origin};
use gpuprobe_recording::kinds;

pub use totals::{Amount, Findings, Totals};

/// Where an allocation of a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Address.
    pub address: u64,
    /// Kind of memory.
    pub kind: u8,
}

/// An allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// When it was made, nanoseconds of the session.
    pub start_ns: i64,
    /// Bytes.
    pub bytes: u64,
    /// Device.
    pub device: i64,
    /// The call that made it.
    pub origin: Origin,
    /// The variable, for static memory.
    pub variable: Option<Box<str>>,
    /// Number of the event.
    sequence: u64,
}

/// The highest point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// When, nanoseconds of the session.
    pub time_ns: i64,
    /// How much, without memory of the host.
    pub totals: Totals,
    /// Memory of the host at that time.
    pub host: Totals,
    sequence: u64,
}

/// One allocation's share of a [`Change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes.
    pub bytes: u64,
    /// Device.
    pub device: i64,
    /// The call that made the allocation.
    pub origin: Origin,
}

/// What an event, or the end of a process, did to one address.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// When, nanoseconds from the first event. Never goes back.
    pub time_ns: i64,
    /// Global id of the process.
    pub process: i64,
    /// Kind of memory.
    pub kind: u8,
    /// What became live.
    pub allocated: Option<Part>,
    /// What is no longer live.
    pub freed: Option<Part>,
    /// No other change belongs to the same event.
    pub is_last: bool,
}

/// A process's memory after its end.
#[derive(Debug)]
struct Left {
    process: i64,
    live: HashMap<Place, Allocation>,
    /// The last event before the end.
    sequence: u64,
}

/// Follows memory events.
///
/// The live set at the highest point is never copied: it is what is live now and is not younger
/// than the peak, together with what was freed since.
#[derive(Debug)]
pub struct Tracker {
    selection: Selection,
    live: HashMap<i64, HashMap<Place, Allocation>>,
    /// Freed since the peak, and live at the peak.
    gone: Vec<(i64, Place, Allocation)>,
    /// Never freed by processes that have ended.
    left: Vec<Left>,
    sequence: u64,
    first_ns: Option<i64>,
    last_ns: i64,
    is_entered: bool,
    totals: Totals,
    host: Totals,
    peak: Peak,
    /// What was odd.
    pub findings: Findings,
}

impl Tracker {
    /// Nothing is live.
    pub fn new(selection: Selection) -> Self {
        Self {
            selection,
            live: HashMap::new(),
            gone: Vec::new(),
            left: Vec::new(),
            sequence: 0,
            first_ns: None,
            last_ns: i64::MIN,
            is_entered: false,
            totals: Totals::default(),
            host: Totals::default(),
            peak: Peak::default(),
            findings: Findings::default(),
        }
    }

    /// Whether `event` and all that follow are later than what was selected.
    pub fn is_beyond(&self, event: &MemoryEvent) -> bool {
        let since_first = |first| event.start_ns.saturating_sub(first);
        match (self.selection.to_ns, self.first_ns) {
            (Some(to), Some(first)) => since_first(first) > to,
            _ => false,
        }
    }

    /// Enters an event. None if it changes nothing that was selected.
    pub fn apply(&mut self, event: &MemoryEvent, origin: Origin) -> Option<Change> {
        let first = *self.first_ns.get_or_insert(event.start_ns);
        if !self.selection.includes(event) {
            return None;
        }
        self.last_ns = self.last_ns.max(event.start_ns);
        let time_ns = self.last_ns.saturating_sub(first);
        let is_in_range = self.selection.from_ns.is_none_or(|from| time_ns >= from);
        if is_in_range {
            if !self.is_entered {
                self.enter();
            }
            self.findings.events += 1;
            self.findings.host_events += u64::from(kinds::of_id(event.kind).is_host);
        }
        self.sequence += 1;
        let place = Place {
            address: event.address,
            kind: event.kind,
        };
        let (allocated, freed) = if event.allocates {
            let part = Part {
                bytes: event.bytes,
                device: event.device,
                origin,
            };
            (Some(part), self.allocate(place, event, origin))
        } else {
            (None, Some(self.free(place, event)?))
        };
        if is_in_range && self.totals.total.bytes > self.peak.totals.total.bytes {
            self.note_peak();
        }
        let change = Change {
            time_ns,
            process: event.process,
            kind: event.kind,
            allocated,
            freed,
            is_last: true,
        };
        is_in_range.then_some(change)
    }

    /// When the selected time begins, nanoseconds of the session; none if it begins with the first
    /// event, or there is none.
    pub fn from_ns(&self) -> Option<i64> {
        let (from, first) = self.selection.from_ns.zip(self.first_ns)?;
        Some(first.saturating_add(from))
    }

    /// No more events come. If none of what was selected was in the selected time, the highest
    /// point is what was live when it began.
    pub fn finish(&mut self) {
        let Some(from) = self.from_ns() else { return };
        if !self.is_entered && self.sequence > 0 {
            self.enter();
            self.peak.time_ns = from;
        }
    }

    /// The selected time begins: what is live now is the highest point so far.
    fn enter(&mut self) {
        self.is_entered = true;
        // What processes left that have ended by now is not part of it.
        self.sequence += 1;
        self.note_peak();
    }

    /// When the selected time ends, nanoseconds of the session; none if it does not.
    pub fn to_ns(&self) -> Option<i64> {
        let (to, first) = self.selection.to_ns.zip(self.first_ns)?;
        Some(first.saturating_add(to))
    }

    /// Whether there is a highest point: anything was selected.
    pub fn has_peak(&self) -> bool {
        self.is_entered
    }

    fn note_peak(&mut self) {
        self.peak = Peak {
            time_ns: self.last_ns,
            totals: self.totals,
            host: self.host,
            sequence: self.sequence,
        };
        self.gone.clear();
    }

    fn allocate(&mut self, place: Place, event: &MemoryEvent, origin: Origin) -> Option<Part> {
        let allocation = Allocation {
            start_ns: event.start_ns,
            bytes: event.bytes,
            device: event.device,
            origin,
            variable: event.variable.clone(),
            sequence: self.sequence,
        };
        let old = self
            .live
            .entry(event.process)
            .or_default()
            .insert(place, allocation);
        let replaced = old.map(|old| {
            self.findings.double_allocations += 1;
            self.take_away(event.process, place, old)
        });
        self.side(place).add(origin.trace, event.bytes);
        replaced
    }

    fn free(&mut self, place: Place, event: &MemoryEvent) -> Option<Part> {
        let live = self.live.get_mut(&event.process);
        let Some(old) = live.and_then(|live| live.remove(&place)) else {
            self.findings.unmatched_frees += 1;
            return None;
        };
        self.findings.size_mismatches += u64::from(old.bytes != event.bytes);
        Some(self.take_away(event.process, place, old))
    }

    fn take_away(&mut self, process: i64, place: Place, old: Allocation) -> Part {
        let part = old.part();
        self.side(place).subtract(part.origin.trace, part.bytes);
        if old.sequence <= self.peak.sequence {
            self.gone.push((process, place, old));
        }
        part
    }

    fn side(&mut self, place: Place) -> &mut Totals {
        if kinds::of_id(place.kind).is_host {
            &mut self.host
        } else {
            &mut self.totals
        }
    }

    /// A process has ended at `time_ns` of the session: what it holds was never freed, and is no
    /// longer there. Hands `changed` every change.
    ///
    /// # Errors
    /// Those of `changed`.
    pub fn end(
        &mut self,
        process: i64,
        time_ns: i64,
        mut changed: impl FnMut(&Change, &Self) -> Result<()>,
    ) -> Result<()> {
        let (Some(live), Some(first)) = (self.live.remove(&process), self.first_ns) else {
            return Ok(());
        };
        self.last_ns = self.last_ns.max(time_ns);
        let time_ns = self.last_ns.saturating_sub(first);
        let mut rest = live.len();
        for (place, allocation) in &live {
            rest -= 1;
            let part = allocation.part();
            self.side(*place).subtract(part.origin.trace, part.bytes);
            if self.is_entered || self.selection.from_ns.is_none() {
                let freed = Some(part);
                let change = Change {
                    time_ns,
                    process,
                    kind: place.kind,
                    allocated: None,
                    freed,
                    is_last: rest == 0,
                };
                changed(&change, self)?;
            }
        }
        if !live.is_empty() {
            self.left.push(Left {
                process,
                live,
                sequence: self.sequence,
            });
        }
        Ok(())
    }

    /// The first event, nanoseconds of the session.
    pub fn first_ns(&self) -> Option<i64> {
        self.first_ns
    }

    /// The last event that was looked at, nanoseconds of the session.
    pub fn last_ns(&self) -> Option<i64> {
        (self.last_ns != i64::MIN).then_some(self.last_ns)
    }

    /// The highest point; all 0 if nothing was ever live.
    pub fn peak(&self) -> &Peak {
        &self.peak
    }

    /// What is live now, without memory of the host.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// What is live now of memory of the host.
    pub fn host(&self) -> &Totals {
        &self.host
    }

    /// What was live at the highest point, with its process, in no particular order.
    pub fn at_peak(&self) -> impl Iterator<Item = (i64, &Place, &Allocation)> {
        let peak = self.peak.sequence;
        let live = self.living();
        let left = self
            .left
            .iter()
            .filter(move |left| left.sequence >= peak)
            .flat_map(Left::each);
        let gone = self
            .gone
            .iter()
            .map(|(process, place, old)| (*process, place, old));
        live.chain(left)
            .filter(move |(_, _, a)| a.sequence <= peak)
            .chain(gone)
    }

    /// What was never freed, with its process, in no particular order.
    pub fn never_freed(&self) -> impl Iterator<Item = (i64, &Place, &Allocation)> {
        self.living().chain(self.left.iter().flat_map(Left::each))
    }

    fn living(&self) -> impl Iterator<Item = (i64, &Place, &Allocation)> {
        let each = |(process, live): (&i64, _)| each(*process, live);
        self.live.iter().flat_map(each)
    }
}

impl Allocation {
    fn part(&self) -> Part {
        Part {
            bytes: self.bytes,
            device: self.device,
            origin: self.origin,
        }
    }
}

impl Left {
    fn each(&self) -> impl Iterator<Item = (i64, &Place, &Allocation)> {
        each(self.process, &self.live)
    }
}

fn each(
    process: i64,
    live: &HashMap<Place, Allocation>,
) -> impl Iterator<Item = (i64, &Place, &Allocation)> {
    live.iter()
        .map(move |(place, allocation)| (process, place, allocation))
}

#[cfg(test)]
mod tests;
