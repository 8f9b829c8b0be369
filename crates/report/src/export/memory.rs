//! Live memory over time.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;

use anyhow::Result;

use super::events::ChromeEventWriter;
use super::tracks::Tracks;
use crate::analysis::{AllocationWithCaller, Filter, LedgerChange, RowLedger, Visitor};
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
        live: HashMap::new(),
        changed: BTreeSet::new(),
        tracks,
        events,
    };
    let filter = Filter {
        host: true,
        ..Filter::default()
    };
    RowLedger::read(database, &Session::default(), &filter, &mut counters).map(|_| ())
}

struct Counters<'a, 'b, W> {
    /// Bytes by process and device; without a device for host memory.
    live: HashMap<(i64, Option<i64>), u64>,
    /// The keys that the current event has changed.
    changed: BTreeSet<(i64, Option<i64>)>,
    tracks: &'a mut Tracks<'b>,
    events: &'a mut ChromeEventWriter<W>,
}

impl<W: Write> Visitor for Counters<'_, '_, W> {
    fn change(&mut self, step: &LedgerChange<'_>, row_ledger: &RowLedger<'_>) -> Result<()> {
        let time = row_ledger
            .first_ns()
            .unwrap_or(0)
            .saturating_add(step.time_ns);
        for part in step.freed {
            let live = self.live_of(step.process, part);
            *live = live.saturating_sub(part.allocation.size_bytes);
        }
        if let Some(part) = &step.allocated {
            let live = self.live_of(step.process, part);
            *live = live.saturating_add(part.allocation.size_bytes);
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

impl<W> Counters<'_, '_, W> {
    /// The live bytes under the key of `part`, which are about to change.
    fn live_of(&mut self, process: i64, part: &AllocationWithCaller) -> &mut u64 {
        let device = part.allocation.device().map_or(0, i64::from);
        let key = (process, (!part.is_host()).then_some(device));
        self.changed.insert(key);
        self.live.entry(key).or_default()
    }
}
