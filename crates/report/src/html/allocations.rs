//! The largest allocations of a run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::document::{AllocationData, AllocationsData};
use crate::analysis::{AllocationWithCaller, RowLedger};
use gpuprobe_cuda::AddressSpace;
use gpuprobe_engine::Process;

/// Number of allocations that are kept.
const MAX_ALLOCATIONS: usize = 10_000;

/// Size, and the order in which they were made; the last one of the smallest goes first.
type Rank = (u64, Reverse<u64>);

/// Process, address space and address of a live allocation.
type Place = (u32, AddressSpace, u64);

/// Keeps the largest allocations.
#[derive(Debug, Default)]
pub(super) struct Largest {
    /// Number of all allocations.
    all: u64,
    rows: BTreeMap<Rank, KeptRow>,
    live: HashMap<Place, Rank>,
}

#[derive(Debug)]
struct KeptRow {
    place: Place,
    tid: u32,
    stack: usize,
    time_ns: i64,
    /// When it ended, and whether its process ended then.
    gone: Option<(i64, bool)>,
}

impl Largest {
    /// Adds an allocation by the call stack of this number.
    pub(super) fn add(
        &mut self,
        pid: u32,
        part: &AllocationWithCaller,
        time_ns: i64,
        stack: usize,
        row_ledger: &RowLedger<'_>,
    ) {
        let rank = (part.allocation.size_bytes, Reverse(self.all));
        self.all += 1;
        let is_full = self.rows.len() >= MAX_ALLOCATIONS;
        if is_full
            && self
                .rows
                .first_key_value()
                .is_some_and(|(least, _)| rank < *least)
        {
            return;
        }
        if is_full && let Some((_, least)) = self.rows.pop_first() {
            self.live.remove(&least.place);
        }
        let place = place_of(pid, part);
        let process = row_ledger.ledger.process_of(pid);
        let thread = process.and_then(|process| {
            process
                .threads()
                .get(Process::thread_index(&part.allocation))
        });
        self.live.insert(place, rank);
        self.rows.insert(
            rank,
            KeptRow {
                place,
                tid: thread.map_or(0, |thread| thread.tid),
                stack,
                time_ns,
                gone: None,
            },
        );
    }

    /// Notes that an allocation is no longer live.
    pub(super) fn gone(
        &mut self,
        pid: u32,
        part: &AllocationWithCaller,
        time_ns: i64,
        is_end: bool,
    ) {
        let rank = self.live.remove(&place_of(pid, part));
        if let Some(row) = rank.and_then(|rank| self.rows.get_mut(&rank)) {
            row.gone = Some((time_ns, is_end));
        }
    }

    /// Largest first; `stacks` has the numbers of the document's stacks.
    pub(super) fn into_document(self, stacks: &[usize]) -> AllocationsData {
        let rows = self.rows.into_iter().rev().map(|((bytes, _), row)| {
            AllocationData(
                format!("{:#x}", row.place.2),
                bytes,
                row.time_ns,
                row.gone.map(|(time_ns, _)| time_ns),
                match row.gone {
                    None => 0,
                    Some((_, false)) => 1,
                    Some((_, true)) => 2,
                },
                stacks.get(row.stack).copied().unwrap_or(0),
                row.tid,
            )
        });
        AllocationsData {
            all: self.all,
            rows: rows.collect(),
        }
    }
}

fn place_of(pid: u32, part: &AllocationWithCaller) -> Place {
    (pid, part.allocation.space(), part.allocation.address)
}
