//! How much memory was live, over time.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;

use anyhow::Result;

use super::events::Events;
use super::tracks::Tracks;
use crate::analysis::events::MEMORY;
use crate::analysis::tracker::Change;
use crate::analysis::{Selection, Tracker, Visitor, pass};
use gpuprobe_recording::{Database, ids, kinds};

/// Writes the memory of each process on each device, and page-locked memory of the host.
pub(super) fn memory<W: Write>(
    database: &Database,
    tracks: &mut Tracks<'_>,
    events: &mut Events<W>,
) -> Result<()> {
    if !database.has_table(MEMORY) {
        return Ok(());
    }
    let mut counters = Counters {
        live: HashMap::new(),
        changed: BTreeSet::new(),
        tracks,
        events,
    };
    let selection = Selection {
        host: true,
        ..Selection::default()
    };
    pass(database, &selection, &mut counters).map(|_| ())
}

struct Counters<'a, 'b, W> {
    /// Bytes by process and device; no device for memory of the host.
    live: HashMap<(i64, Option<i64>), u64>,
    /// Which of them the event that is being looked at has changed.
    changed: BTreeSet<(i64, Option<i64>)>,
    tracks: &'a mut Tracks<'b>,
    events: &'a mut Events<W>,
}

impl<W: Write> Visitor for Counters<'_, '_, W> {
    fn change(&mut self, change: &Change, tracker: &Tracker) -> Result<()> {
        let is_host = kinds::of_id(change.kind).is_host;
        let time = tracker
            .first_ns()
            .unwrap_or(0)
            .saturating_add(change.time_ns);
        for (part, is_new) in [(change.freed, false), (change.allocated, true)] {
            let Some(part) = part else { continue };
            let device = (!is_host).then_some(part.device);
            let key = (change.process, device);
            self.changed.insert(key);
            let live = self.live.entry(key).or_default();
            *live = match is_new {
                true => live.saturating_add(part.bytes),
                false => live.saturating_sub(part.bytes),
            };
        }
        if !change.is_last {
            return Ok(());
        }
        for (process, device) in std::mem::take(&mut self.changed) {
            let (name, pid) = match device {
                Some(device) => (
                    format!("memory on gpu_{device}"),
                    self.tracks.group(process, device),
                ),
                None => (
                    "page-locked memory of the host".to_owned(),
                    u64::from(ids::pid(process)),
                ),
            };
            let live = self.live.get(&(process, device)).copied().unwrap_or(0);
            self.events.counter(&name, pid, time, live)?;
        }
        Ok(())
    }
}
