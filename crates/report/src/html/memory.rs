//! Memory from CUDA by call stack and bin of time.

use std::collections::HashMap;

use anyhow::Result;

use super::allocations::Largest;
use super::bins::Bins;
use crate::analysis::{AllocationWithCaller, LedgerChange, RowLedger, Visitor};
use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_model::stack::Symbolize;
use gpuprobe_recording::ids;

/// Bytes and number of allocations, with a sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) bytes: i64,
    pub(super) count: i64,
}

impl Amount {
    fn one(bytes: u64) -> Self {
        Self {
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            count: 1,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            count: self.count.saturating_add(other.count),
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            count: self.count.saturating_sub(other.count),
        }
    }
}

/// Changes of the memory of a call stack within a bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BinChange {
    pub(super) bin: usize,
    pub(super) allocated: Amount,
    pub(super) freed: Amount,
    /// Live when the process ended.
    pub(super) held: Amount,
    /// Change of the live memory from the beginning of the bin to its highest total.
    pub(super) at_peak: Amount,
}

impl BinChange {
    /// Change of the live memory.
    pub(super) fn net(&self) -> Amount {
        self.allocated.minus(self.freed).minus(self.held)
    }

    /// Merges the change of the next bin; `is_later` if that has the highest total of both.
    fn followed_by(self, next: Self, is_later: bool) -> Self {
        let at_peak = match is_later {
            true => self.net().plus(next.at_peak),
            false => self.at_peak,
        };
        Self {
            bin: self.bin,
            allocated: self.allocated.plus(next.allocated),
            freed: self.freed.plus(next.freed),
            held: self.held.plus(next.held),
            at_peak,
        }
    }

    /// The nine numbers in the document.
    pub(super) fn numbers(&self) -> [i64; 9] {
        [
            i64::try_from(self.bin).unwrap_or(i64::MAX),
            self.allocated.bytes,
            self.allocated.count,
            self.freed.bytes,
            self.freed.count,
            self.held.bytes,
            self.held.count,
            self.at_peak.bytes,
            self.at_peak.count,
        ]
    }
}

/// Key of a call stack in the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StackKey {
    pub(super) pid: u32,
    /// Number of the caller in the callers of the file.
    pub(super) caller: u32,
    pub(super) kind: MemoryKind,
    pub(super) is_host: bool,
}

/// The memory of a call stack.
#[derive(Debug)]
pub(super) struct StackChanges {
    pub(super) key: StackKey,
    pub(super) changes: Vec<BinChange>,
    /// Changes in the bin that is being read.
    open: Option<BinChange>,
    /// Change of the live memory since the highest total of that bin.
    since_peak: Amount,
}

impl StackChanges {
    pub(super) fn allocated(&self) -> i64 {
        let bytes = self.changes.iter().map(|change| change.allocated.bytes);
        bytes.fold(0, i64::saturating_add)
    }

    /// Live memory at the highest total of a bin.
    pub(super) fn at_peak_of(&self, bin: usize) -> Amount {
        let mut live = Amount::default();
        for change in self.changes.iter().take_while(|change| change.bin <= bin) {
            live = match change.bin == bin {
                true => live.plus(change.at_peak),
                false => live.plus(change.net()),
            };
        }
        live
    }
}

/// Collects changes by call stack.
pub(super) struct MemoryByBin {
    pub(super) bins: Bins,
    pub(super) stacks: Vec<StackChanges>,
    pub(super) largest: Largest,
    /// Time and bytes of the highest total of each bin that has been read.
    pub(super) peaks: Vec<(i64, u64)>,
    numbers: HashMap<StackKey, usize>,
    /// Bytes of GPU memory that are live.
    live_bytes: u64,
    peak: (i64, u64),
    /// Stacks with changes in the bin that is being read, and since its highest total.
    touched: Vec<usize>,
    touched_since: Vec<usize>,
}

impl MemoryByBin {
    pub(super) fn new(bins: Bins) -> Self {
        let peak = (bins.span(0).0, 0);
        Self {
            bins,
            stacks: Vec::new(),
            largest: Largest::default(),
            peaks: Vec::new(),
            numbers: HashMap::new(),
            live_bytes: 0,
            peak,
            touched: Vec::new(),
            touched_since: Vec::new(),
        }
    }

    /// Time and bytes of the highest total, and its bin.
    pub(super) fn highest(&self) -> Option<(usize, (i64, u64))> {
        let mut highest: Option<(usize, (i64, u64))> = None;
        for (bin, &peak) in self.peaks.iter().enumerate() {
            if highest.is_none_or(|(_, before)| peak.1 > before.1) {
                highest = Some((bin, peak));
            }
        }
        highest
    }

    /// Number of changes over all stacks.
    pub(super) fn len(&self) -> usize {
        self.stacks.iter().map(|stack| stack.changes.len()).sum()
    }

    /// Closes the remaining bins.
    pub(super) fn finish(&mut self) {
        while self.peaks.len() < self.bins.count() {
            self.close();
        }
    }

    /// Merges neighbouring bins.
    pub(super) fn halve(&mut self) {
        self.bins.halve();
        let is_later: Vec<bool> = self.peaks.chunks(2).map(later_is_higher).collect();
        let merged = self.peaks.chunks(2).zip(&is_later);
        self.peaks = merged
            .filter_map(|(pair, later)| pair.get(usize::from(*later)).copied())
            .collect();
        for stack in &mut self.stacks {
            halve_changes(&mut stack.changes, &is_later);
        }
    }

    fn close(&mut self) {
        let bin = self.peaks.len();
        for number in self.touched.drain(..) {
            let stack = &mut self.stacks[number];
            if let Some(mut change) = stack.open.take() {
                change.bin = bin;
                change.at_peak = change.net().minus(stack.since_peak);
                stack.changes.push(change);
            }
        }
        self.forget_since();
        self.peaks.push(self.peak);
        let end_ns = self.bins.span(bin).1;
        self.peak = (end_ns, self.live_bytes);
    }

    fn forget_since(&mut self) {
        for number in self.touched_since.drain(..) {
            self.stacks[number].since_peak = Amount::default();
        }
    }

    fn number(
        &mut self,
        pid: u32,
        part: &AllocationWithCaller,
        row_ledger: &RowLedger<'_>,
    ) -> usize {
        let key = StackKey {
            pid,
            caller: own_caller(part.caller, row_ledger),
            kind: part.allocation.kind(),
            is_host: part.is_host(),
        };
        let stacks = &mut self.stacks;
        *self.numbers.entry(key).or_insert_with(|| {
            stacks.push(StackChanges {
                key,
                changes: Vec::new(),
                open: None,
                since_peak: Amount::default(),
            });
            stacks.len() - 1
        })
    }

    fn open(&mut self, number: usize) -> &mut BinChange {
        let stack = &mut self.stacks[number];
        if stack.open.is_none() {
            self.touched.push(number);
        }
        stack.open.get_or_insert_default()
    }

    fn note_since(&mut self, number: usize, amount: Amount) {
        let since = &mut self.stacks[number].since_peak;
        *since = since.plus(amount);
        self.touched_since.push(number);
    }
}

/// Whether the second of two bins has the higher total.
fn later_is_higher(pair: &[(i64, u64)]) -> bool {
    matches!(pair, [before, after] if after.1 > before.1)
}

/// Merges the changes of neighbouring bins; `is_later` says of each pair whether the second has the higher total.
fn halve_changes(changes: &mut Vec<BinChange>, is_later: &[bool]) {
    let mut halved: Vec<BinChange> = Vec::with_capacity(changes.len());
    for change in changes.drain(..) {
        let bin = change.bin / 2;
        let is_second = change.bin % 2 == 1;
        let later = is_later.get(bin).copied().unwrap_or(false);
        match halved.last_mut() {
            Some(before) if before.bin == bin => *before = before.followed_by(change, later),
            _ => {
                let mut alone = BinChange { bin, ..change };
                if is_second && !later {
                    alone.at_peak = Amount::default();
                } else if !is_second && later {
                    alone.at_peak = change.net();
                }
                halved.push(alone);
            }
        }
    }
    *changes = halved;
}

impl Visitor for MemoryByBin {
    fn change(&mut self, step: &LedgerChange<'_>, row_ledger: &RowLedger<'_>) -> Result<()> {
        while self.peaks.len() + 1 < self.bins.count()
            && step.time_ns >= self.bins.span(self.peaks.len()).1
        {
            self.close();
        }
        let pid = ids::pid(step.process);
        let mut moved = Vec::with_capacity(2);
        for part in step.freed {
            let number = self.number(pid, part, row_ledger);
            let amount = Amount::one(part.allocation.size_bytes);
            let change = self.open(number);
            match step.is_end {
                true => change.held = change.held.plus(amount),
                false => change.freed = change.freed.plus(amount),
            }
            moved.push((number, Amount::default().minus(amount)));
            self.live_bytes = self.live_bytes.saturating_sub(gpu_bytes(part));
            self.largest.gone(pid, part, step.time_ns, step.is_end);
        }
        if let Some(part) = &step.allocated {
            let number = self.number(pid, part, row_ledger);
            let amount = Amount::one(part.allocation.size_bytes);
            let change = self.open(number);
            change.allocated = change.allocated.plus(amount);
            moved.push((number, amount));
            self.live_bytes = self.live_bytes.saturating_add(gpu_bytes(part));
            self.largest
                .add(pid, part, step.time_ns, number, row_ledger);
        }
        if self.live_bytes > self.peak.1 {
            self.peak = (step.event_ns, self.live_bytes);
            self.forget_since();
        } else {
            for (number, amount) in moved {
                self.note_since(number, amount);
            }
        }
        Ok(())
    }

    fn can_restart(&self) -> bool {
        true
    }

    fn restart(&mut self) -> Result<()> {
        *self = Self::new(self.bins.clone());
        Ok(())
    }
}

/// Number of the first caller with the same contents.
pub(super) fn own_caller(caller: u32, row_ledger: &RowLedger<'_>) -> u32 {
    match row_ledger.callers.called(caller) {
        Some(_) => row_ledger.callers.caller_id(caller),
        None => caller,
    }
}

/// Bytes that count as GPU memory of the process itself.
fn gpu_bytes(part: &AllocationWithCaller) -> u64 {
    match part.allocation.belongs() {
        Belongs::Gpu => part.allocation.size_bytes,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(bytes: i64) -> Amount {
        Amount { bytes, count: 1 }
    }

    #[test]
    fn merged_bins_keep_the_memory_at_the_higher_peak() {
        let change = |bin, allocated, freed, at_peak| BinChange {
            bin,
            allocated: amount(allocated),
            freed: amount(freed),
            at_peak: Amount {
                bytes: at_peak,
                count: 0,
            },
            ..BinChange::default()
        };
        let both = vec![change(0, 10, 4, 10), change(1, 7, 0, 7)];
        for (later, at_peak) in [(false, 10), (true, 6 + 7)] {
            let mut merged = both.clone();
            halve_changes(&mut merged, &[later]);
            assert_eq!(merged.len(), 1);
            assert_eq!(merged[0].at_peak.bytes, at_peak);
            assert_eq!(merged[0].net().bytes, 13);
        }
        // With changes in one of the two only.
        for (bin, later, at_peak) in [(2, false, 10), (2, true, 6), (3, false, 0), (3, true, 10)] {
            let mut alone = vec![change(bin, 10, 4, 10)];
            halve_changes(&mut alone, &[false, later]);
            assert_eq!(
                (alone[0].bin, alone[0].at_peak.bytes),
                (1, at_peak),
                "{bin} {later}"
            );
        }
    }
}
