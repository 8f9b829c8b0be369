//! Live memory over time.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;

use anyhow::Result;

use super::events::ChromeEventWriter;
use super::tracks::Tracks;
use crate::analysis::{AllocationAt, Filter, MemoryChange, Played, first_ns};
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::{Database, Session, ids};

/// Writes the memory of each process on each device, and pinned host memory.
pub(super) fn memory<W: Write>(
    database: &Database,
    tracks: &mut Tracks<'_>,
    events: &mut ChromeEventWriter<W>,
) -> Result<()> {
    if !database.has_table(MEMORY) {
        return Ok(());
    }
    let mut counters = Counters {
        first_ns: first_ns(database)?.unwrap_or(0),
        live: HashMap::new(),
        changed: BTreeSet::new(),
        tracks,
        events,
    };
    let filter = Filter {
        host: true,
        ..Filter::default()
    };
    let session = Session::read(database)?;
    Played::read(database, &session, &filter, &mut |change| {
        counters.change(change)
    })
    .map(drop)
}

struct Counters<'a, 'b, W> {
    /// Session time of the first memory event.
    first_ns: i64,
    /// Bytes by process and device; without a device for host memory.
    live: HashMap<(i64, Option<i64>), u64>,
    /// The keys that the current event has changed.
    changed: BTreeSet<(i64, Option<i64>)>,
    tracks: &'a mut Tracks<'b>,
    events: &'a mut ChromeEventWriter<W>,
}

impl<W: Write> Counters<'_, '_, W> {
    fn change(&mut self, change: &MemoryChange<'_>) -> Result<()> {
        let time = self.first_ns.saturating_add(change.time_ns);
        let process = ids::global_pid(change.process.pid);
        for allocation in change.freed {
            let live = self.live_of(process, change.at(allocation));
            *live = live.saturating_sub(allocation.size_bytes);
        }
        if let Some(allocation) = &change.allocated {
            let live = self.live_of(process, change.at(allocation));
            *live = live.saturating_add(allocation.size_bytes);
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

    /// The live bytes under the key of `part`, which are about to change.
    fn live_of(&mut self, process: i64, part: AllocationAt<'_>) -> &mut u64 {
        let device = part.allocation.device().map_or(0, i64::from);
        let key = (process, (!part.is_host()).then_some(device));
        self.changed.insert(key);
        self.live.entry(key).or_default()
    }
}
