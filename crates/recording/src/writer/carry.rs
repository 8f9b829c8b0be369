//! Log entries that are carried over to the next file of a recording, without which the following
//! entries would have another meaning.
//!
//! For each process: its identity, the calls of live allocations, tensors, call stacks, contexts,
//! streams and names; not freed memory, launches or copies.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::batch::{LOG_BYTES, LogBatch, LogStep};
use crate::log::{self, LogEntry, LogNote};
use gpuprobe_cuda::Op;
use gpuprobe_engine::{Change, MemoryBlock};
use gpuprobe_model::event::{Call, Event, RecordDecoder, Tensor};

/// Maximum size of carried entries, bytes: two million allocations.
const MAX_BYTES: usize = 256 << 20;
/// Maximum number of entries per process whose end is not observed, such as created contexts and
/// mapped memory.
const MAX_OTHERS: usize = 1 << 16;

/// Subject of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum NameOwner {
    Process,
    Thread(u32),
}

/// Key of an allocation of a process: address, start time and row.
type BlockKey = (u64, u64, u16);

fn key_of(block: &MemoryBlock) -> BlockKey {
    let allocation = &block.allocation;
    (allocation.address, allocation.end_ns, allocation.row)
}

/// Carried entries of a process.
#[derive(Debug, Default)]
struct CarriedProcess {
    /// Entries by their order in the log.
    entries: BTreeMap<u64, CarriedEntry>,
    /// Entries of each allocation.
    blocks: HashMap<BlockKey, Vec<u64>>,
    /// Entries of reserved address ranges.
    reserved: HashMap<u64, u64>,
    tensors: HashMap<u64, u64>,
    /// Last event of each device's tensors, which contains the totals.
    sums: HashMap<Option<u16>, u64>,
    /// Process and thread names.
    tasks: HashMap<NameOwner, u64>,
    others: Vec<u64>,
}

/// A carried record with the answers that precede it.
#[derive(Debug)]
struct CarriedEntry {
    bytes: Vec<u8>,
    /// Changes of the record, except frees, whose allocations are not in the file.
    changes: Vec<Change>,
    /// Number of its live allocations, tensors and totals.
    uses: u32,
}

/// Entries carried from one file to the next.
#[derive(Debug, Default)]
pub(super) struct Carry {
    processes: HashMap<u32, CarriedProcess>,
    /// Paths of modules, and losses so far.
    modules: Vec<u8>,
    lost: Vec<u8>,
    /// Answers to the next record.
    answers: Vec<u8>,
    next: u64,
    bytes: usize,
    /// Number of entries dropped because of the limit.
    pub(super) dropped: u64,
}

impl Carry {
    /// Approximate memory of the entries, with what leads to them, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        4 * self.bytes
    }

    /// Updates the carried entries with a batch that is about to be written.
    pub(super) fn take(&mut self, batch: &LogBatch) {
        let mut steps = batch.steps.iter();
        let mut changes = &batch.changes[..];
        for entry in log::entries(&batch.log) {
            match entry {
                LogEntry::Record(bytes) => {
                    let event = steps.find_map(|step| match step {
                        LogStep::Event(event, count) => Some((event, *count)),
                        LogStep::Note(_) | LogStep::Counted(_) => None,
                    });
                    let Some((event, count)) = event else { return };
                    let (own, rest) = changes.split_at(count.min(changes.len()));
                    changes = rest;
                    let mut kept = std::mem::take(&mut self.answers);
                    log::append_record(&mut kept, bytes);
                    self.event(event, own, kept);
                }
                LogEntry::Note(note) => self.note(&note),
                LogEntry::Count(..) => {}
            }
        }
    }

    fn note(&mut self, note: &LogNote) {
        match note {
            LogNote::Stack(pid, ..) | LogNote::Frames(pid, ..) => {
                let mut bytes = Vec::new();
                log::append_note(&mut bytes, note);
                self.keep(*pid, bytes, &[], 1);
            }
            LogNote::Module(..) => log::append_note(&mut self.modules, note),
            LogNote::Lost(_) => {
                self.lost.clear();
                log::append_note(&mut self.lost, note);
            }
            LogNote::Vanished(pid) => self.end(*pid),
            answer if answer.is_answer() => log::append_note(&mut self.answers, answer),
            _ => {}
        }
    }

    fn event(&mut self, event: &Event, changes: &[Change], bytes: Vec<u8>) {
        match event {
            Event::Call(call) => self.call(call, changes, bytes),
            Event::Tensor(tensor) => self.tensor(tensor, bytes),
            Event::Process(task) => self.task(task.pid, NameOwner::Process, bytes),
            Event::Thread(task) => self.task(task.pid, NameOwner::Thread(task.tid), bytes),
            Event::Exec(task) => {
                self.end(task.pid);
                self.keep(task.pid, bytes, &[], 1);
            }
            Event::ThreadExit(task) => self.end_thread(task.pid, task.tid),
            Event::Exit(task) => self.end(task.pid),
            Event::Kernel(kernel) => {
                let number = self.keep(kernel.pid, bytes, changes, 1);
                self.keep_other(kernel.pid, number);
            }
            Event::Request(_)
            | Event::OutOfMemory(_)
            | Event::Launch(_)
            | Event::Copy(_)
            | Event::Activity(_) => {}
        }
    }

    fn call(&mut self, call: &Call, changes: &[Change], bytes: Vec<u8>) {
        // Allocations after the call: a resized allocation is freed and allocated again.
        let about = changes.iter().filter_map(|change| match change {
            Change::Allocated(block) | Change::Held(block) => Some(key_of(block)),
            _ => None,
        });
        let about: HashSet<_> = about.collect();
        for change in changes {
            if let Change::Freed(block) | Change::Superseded(block) = change
                && !about.contains(&key_of(block))
            {
                self.free(call.pid, block);
            }
        }
        let op = call.function.op;
        if op == Op::Unreserve {
            let process = self.processes.get_mut(&call.pid);
            let reserved = process.and_then(|process| process.reserved.remove(&call.address));
            reserved.inspect(|number| self.release(call.pid, *number));
        }
        let is_over = match op {
            Op::Free | Op::Unreserve | Op::HandleRelease | Op::Map | Op::MapHandle | Op::Unmap => {
                true
            }
            op => op.is_hot() || op.is_device_query(),
        };
        if (is_over && about.is_empty()) || call.result != 0 {
            return;
        }
        let uses = u32::try_from(about.len()).unwrap_or(u32::MAX);
        let number = self.keep(call.pid, bytes, changes, uses.max(1));
        let process = self.processes.entry(call.pid).or_default();
        for key in &about {
            process.blocks.entry(*key).or_default().push(number);
        }
        if !about.is_empty() {
            return;
        }
        if op == Op::Reserve {
            let before = process.reserved.insert(call.address, number);
            before.inspect(|before| self.release(call.pid, *before));
        } else {
            self.keep_other(call.pid, number);
        }
    }

    /// Stores entries of a process and returns their number.
    fn keep(&mut self, pid: u32, bytes: Vec<u8>, changes: &[Change], uses: u32) -> u64 {
        self.next += 1;
        if self.bytes + bytes.len() > MAX_BYTES {
            self.dropped += 1;
            return self.next;
        }
        self.bytes += bytes.len();
        let is_resized = |block: &MemoryBlock| {
            let becomes = |change: &Change| matches!(change, Change::Allocated(new) if key_of(new) == key_of(block));
            changes.iter().any(becomes)
        };
        let is_kept = |change: &&Change| match change {
            Change::Allocated(_) | Change::Named(..) | Change::Pool(_) => true,
            Change::Freed(block) => is_resized(block),
            _ => false,
        };
        let kept = CarriedEntry {
            bytes,
            changes: changes.iter().filter(is_kept).cloned().collect(),
            uses,
        };
        let process = self.processes.entry(pid).or_default();
        process.entries.insert(self.next, kept);
        self.next
    }

    /// Drops one use of an entry.
    fn release(&mut self, pid: u32, number: u64) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if let Some(kept) = process.entries.get_mut(&number) {
            kept.uses -= 1;
            if kept.uses == 0 {
                self.bytes -= kept.bytes.len();
                process.entries.remove(&number);
            }
        }
    }

    /// Stores an entry whose end is not observed; the oldest is dropped at the limit.
    fn keep_other(&mut self, pid: u32, number: u64) {
        let process = self.processes.entry(pid).or_default();
        process.others.push(number);
        if process.others.len() > MAX_OTHERS {
            let old: Vec<_> = process.others.drain(..MAX_OTHERS / 2).collect();
            self.dropped += old.len() as u64;
            old.into_iter().for_each(|old| self.release(pid, old));
        }
    }

    fn free(&mut self, pid: u32, block: &MemoryBlock) {
        let process = self.processes.get_mut(&pid);
        let entries = process.and_then(|process| process.blocks.remove(&key_of(block)));
        for number in entries.into_iter().flatten() {
            self.release(pid, number);
        }
    }

    fn tensor(&mut self, tensor: &Tensor, bytes: Vec<u8>) {
        // It is a live tensor, or the current totals, or both.
        let number = self.keep(tensor.pid, bytes, &[], 1 + u32::from(!tensor.is_free));
        let process = self.processes.entry(tensor.pid).or_default();
        let before = match tensor.is_free {
            true => process.tensors.remove(&tensor.address),
            false => process.tensors.insert(tensor.address, number),
        };
        let sums = process.sums.insert(tensor.device, number);
        for over in before.into_iter().chain(sums) {
            self.release(tensor.pid, over);
        }
    }

    /// Stores the identity or current name; it takes the place of the first one, before the
    /// process's calls.
    fn task(&mut self, pid: u32, who: NameOwner, bytes: Vec<u8>) {
        let process = self.processes.entry(pid).or_default();
        let known = process.tasks.get(&who);
        if let Some(kept) = known.and_then(|number| process.entries.get_mut(number)) {
            self.bytes = self.bytes + bytes.len() - kept.bytes.len();
            kept.bytes = bytes;
            return;
        }
        let number = self.keep(pid, bytes, &[], 1);
        let process = self.processes.entry(pid).or_default();
        process.tasks.insert(who, number);
    }

    fn end_thread(&mut self, pid: u32, tid: u32) {
        // The thread's allocations belong to the process and are listed by thread while they are
        // live.
        let process = self.processes.get_mut(&pid);
        if let Some(process) = process.filter(|process| process.blocks.is_empty())
            && let Some(number) = process.tasks.remove(&NameOwner::Thread(tid))
        {
            self.release(pid, number);
        }
    }

    fn end(&mut self, pid: u32) {
        if let Some(process) = self.processes.remove(&pid) {
            let bytes = process.entries.values().map(|kept| kept.bytes.len());
            self.bytes -= bytes.sum::<usize>();
        }
    }

    /// All carried entries as the beginning of a new file; `dropped` is the number of records
    /// missing so far.
    pub(super) fn batches(&self, dropped: u64) -> Vec<LogBatch> {
        let mut batches = CarriedBatches::default();
        batches.add(&self.modules, &[]);
        batches.add(&self.lost, &[]);
        let all = self.processes.values();
        let mut all: Vec<_> = all.flat_map(|process| &process.entries).collect();
        all.sort_unstable_by_key(|(number, _)| **number);
        for (_, kept) in all {
            batches.add(&kept.bytes, &kept.changes);
        }
        let dropped = dropped + self.dropped;
        if dropped > 0 {
            let mut bytes = Vec::new();
            log::append_note(&mut bytes, &LogNote::Dropped(dropped));
            batches.add(&bytes, &[]);
        }
        batches.whole.push(batches.last);
        batches.whole
    }
}

/// Batches under construction.
#[derive(Default)]
struct CarriedBatches {
    whole: Vec<LogBatch>,
    last: LogBatch,
    decoder: RecordDecoder,
}

impl CarriedBatches {
    /// Adds log entries, at most one of which is a record.
    fn add(&mut self, entries: &[u8], changes: &[Change]) {
        for entry in log::entries(entries) {
            match entry {
                LogEntry::Record(bytes) => {
                    if let Ok(event) = self.decoder.decode(bytes) {
                        self.last.event(event, &mut changes.to_vec());
                    }
                }
                LogEntry::Note(note) => self.last.steps.push(LogStep::Note(Box::new(note))),
                LogEntry::Count(..) => {}
            }
        }
        self.last.log.extend(entries);
        if self.last.log.len() >= LOG_BYTES {
            self.whole.push(std::mem::take(&mut self.last));
        }
    }
}
