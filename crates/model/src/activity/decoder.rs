//! Decoding of batches into activities.
//!
//! The traced process can write anything into its batches: every table here is bounded, and
//! malformed data is counted.

use std::collections::VecDeque;

use gpuprobe_wire::{Batch as Wire, BatchItem};
use hashbrown::HashMap;

use super::clock::CuptiClock;
use super::names::TextTable;
use super::{Activity, ActivityBatch, ActivityRecord, map_times};
use crate::abi::RawBatch;
use gpuprobe_wire::{BatchHeader, flags};

/// Maximum number of exited processes whose state is kept: their last batches may arrive after the
/// exit.
const MAX_ENDED: usize = 64;

/// Activity records lost so far, over all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Records missing between batches, except the records that the BPF side has counted as
    /// dropped.
    pub missing: u64,
    /// Records that CUPTI dropped.
    pub dropped: u64,
    /// CUPTI records of a kind that the collector does not know.
    pub unknown: u64,
    /// CUPTI records or buffers that the collector could not parse.
    pub malformed: u64,
    /// Malformed batches and records.
    pub undecodable: u64,
}

/// Decodes the batches of all processes. The batches of a process must come in their order.
#[derive(Debug, Default)]
pub struct BatchDecoder {
    /// State by [`RawBatch::process`]. The BPF side bounds the number of live processes.
    processes: HashMap<u32, DecodedProcess>,
    ended: VecDeque<u32>,
    losses: Losses,
}

/// State of a process that later batches refer to.
#[derive(Debug, Default)]
struct DecodedProcess {
    clock: CuptiClock,
    names: TextTable,
    /// Number of records in all batches so far, lost records included.
    records: u64,
    /// Part of [`RawBatch::lost`] that is included in `records`.
    lost: u64,
    dropped: u64,
    unknown: u64,
    malformed: u64,
}

impl BatchDecoder {
    /// Decodes one batch of a process.
    pub fn decode(&mut self, raw: &RawBatch, bytes: &[u8]) -> ActivityBatch {
        let mut batch = ActivityBatch {
            pid: raw.tgid,
            process: raw.process,
            cupti_version: 0,
            is_last: false,
            activities: Vec::new(),
        };
        let wire = match Wire::parse(bytes) {
            Ok(wire) => wire,
            Err(error) => {
                tracing::debug!("malformed batch of process {}: {error:?}", raw.tgid);
                self.losses.undecodable += 1;
                return batch;
            }
        };
        batch.cupti_version = wire.header.cupti_version;
        batch.is_last = wire.header.flags & flags::LAST != 0;
        let process = self.processes.entry(raw.process).or_default();
        process.account(&wire.header, raw.lost, &mut self.losses);
        let is_monotonic = wire.header.flags & flags::MONOTONIC != 0;
        if !is_monotonic {
            process
                .clock
                .read(wire.header.cupti_ns, wire.header.monotonic_ns);
        }
        batch
            .activities
            .reserve(wire.header.records.min(MAX_RECORDS) as usize);
        for item in wire.records() {
            match item {
                Ok(item) => {
                    let activity = process.activity(raw.tgid, &item);
                    batch.activities.extend(activity.map(|mut activity| {
                        if !is_monotonic {
                            let clock = &process.clock;
                            map_times(&mut activity.record, |ns| clock.to_monotonic(ns));
                        }
                        activity
                    }));
                }
                Err(error) => {
                    tracing::debug!("malformed record of process {}: {error:?}", raw.tgid);
                    self.losses.undecodable += 1;
                }
            }
        }
        batch
    }

    /// All losses so far.
    pub fn losses(&self) -> Losses {
        self.losses
    }

    /// Marks a process as exited; a few of its batches may still arrive.
    pub fn end(&mut self, process: u32) {
        if !self.processes.contains_key(&process) {
            return;
        }
        self.ended.push_back(process);
        if self.ended.len() > MAX_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.processes.remove(&oldest);
        }
    }
}

/// Upper limit of the records in one batch.
const MAX_RECORDS: u32 = 2048;

impl DecodedProcess {
    /// Updates the loss counters from the header's totals.
    fn account(&mut self, header: &BatchHeader, lost: u64, losses: &mut Losses) {
        // Records lost since then in the kernel are counted there.
        let counted = lost.saturating_sub(self.lost);
        let gap = header.records_before.saturating_sub(self.records);
        losses.missing = losses.missing.saturating_add(gap.saturating_sub(counted));
        self.lost = self.lost.max(lost);
        let records = header
            .records_before
            .saturating_add(u64::from(header.records));
        self.records = self.records.max(records);
        let grown = |sum: &mut u64, before: &mut u64, now: u64| {
            *sum = sum.saturating_add(now.saturating_sub(*before));
            *before = now.max(*before);
        };
        grown(&mut losses.dropped, &mut self.dropped, header.dropped);
        grown(&mut losses.unknown, &mut self.unknown, header.unknown);
        grown(&mut losses.malformed, &mut self.malformed, header.malformed);
    }

    /// Converts a record to an activity; `None` for a record that only updates state.
    fn activity(&mut self, pid: u32, item: &BatchItem<'_>) -> Option<Activity> {
        let (names, mut record) = (&mut self.names, item.record);
        let called = match record {
            ActivityRecord::Text(said) => {
                names.add_text(said.id, item);
                return None;
            }
            ActivityRecord::CallbackName(said) => {
                names.add_call(said.domain, said.cbid, item);
                return None;
            }
            ActivityRecord::Api(api) => names.call(api.domain, api.cbid),
            _ => None,
        };
        let [name, qualifier] = record.texts().map(|id| names.text(*id?));
        Some(Activity {
            pid,
            record,
            name: name.or(called),
            qualifier,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
