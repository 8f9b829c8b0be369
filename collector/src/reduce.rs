//! CUPTI's records in, batches out.

use std::collections::HashSet;

use crate::batch::{Body, Record};
use crate::cupti::{Outcome, Reduced, Version, read};
use crate::texts::{Memory, Texts};
use crate::wire::{self, BatchHeader};
use crate::writer::Writer;

/// What records are turned into batches with, and where batches go.
pub trait Surroundings: Memory {
    /// What a function is called, into `name`; `false` if nobody knows.
    fn callback_name(&mut self, domain: u32, cbid: u32, name: &mut Vec<u8>) -> bool;
    /// A moment on CUPTI's clock and the same on `CLOCK_MONOTONIC`, nanoseconds.
    fn clocks(&mut self) -> (u64, u64);
    /// Takes a batch, complete.
    fn send(&mut self, batch: &[u8]);
}

/// Makes the batches of a process.
#[derive(Debug)]
pub struct Reducer {
    version: Version,
    flags: u32,
    pid: u32,
    writer: Writer,
    texts: Texts,
    said: HashSet<(u32, u32)>,
    scratch: Vec<u8>,
    sequence: u64,
    records_before: u64,
    lost: Lost,
}

/// What did not become a record, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// As [`BatchHeader::dropped`].
    pub dropped: u64,
    /// As [`BatchHeader::unknown`].
    pub unknown: u64,
    /// As [`BatchHeader::malformed`].
    pub malformed: u64,
}

impl Reducer {
    /// For process `pid`; `monotonic` if CUPTI's clock is `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn new(version: Version, pid: u32, monotonic: bool) -> Self {
        Self {
            version,
            flags: if monotonic { wire::flags::MONOTONIC } else { 0 },
            pid,
            writer: Writer::default(),
            texts: Texts::default(),
            said: HashSet::new(),
            scratch: Vec::new(),
            sequence: 0,
            records_before: 0,
            lost: Lost::default(),
        }
    }

    /// The records of another buffer follow.
    pub fn next_buffer(&mut self) {
        self.texts.next_buffer();
    }

    /// Adds the record at the beginning of `bytes`, which may go on behind it.
    pub fn record(&mut self, bytes: &[u8], around: &mut impl Surroundings) {
        match read(self.version, bytes) {
            Outcome::Record(reduced) => self.reduced(reduced, around),
            Outcome::Unknown(_) => self.lost.unknown += 1,
            Outcome::Short => self.lost.malformed += 1,
        }
    }

    /// A record, or the rest of a buffer, could not be found.
    pub fn malformed(&mut self) {
        self.lost.malformed += 1;
    }

    /// CUPTI dropped `records`.
    pub fn dropped(&mut self, records: u64) {
        self.lost.dropped = self.lost.dropped.saturating_add(records);
    }

    /// What did not become a record, so far.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.lost
    }

    fn reduced(&mut self, reduced: Reduced, around: &mut impl Surroundings) {
        let ids = reduced.texts.map(|address| self.text(address, around));
        if let Record::Api(api) = &reduced.record {
            self.function(api.domain, api.cbid, around);
        }
        match reduced.named(ids) {
            Record::Api(body) => self.push(&body, &[], around),
            Record::Kernel(body) => self.push(&body, &[], around),
            Record::Memcpy(body) => self.push(&body, &[], around),
            Record::Memset(body) => self.push(&body, &[], around),
            Record::Memory(body) => self.push(&body, &[], around),
            Record::MemoryPool(body) => self.push(&body, &[], around),
            Record::Sync(body) => self.push(&body, &[], around),
            Record::GraphTrace(body) => self.push(&body, &[], around),
            Record::Overhead(body) => self.push(&body, &[], around),
            Record::Device(body) => self.push(&body, &[], around),
            Record::Context(body) => self.push(&body, &[], around),
            Record::Stream(body) => self.push(&body, &[], around),
            Record::Name(body) => self.push(&body, &[], around),
            Record::Marker(body) => self.push(&body, &[], around),
            Record::ExternalCorrelation(body) => self.push(&body, &[], around),
            // CUPTI has no such records.
            Record::Text(body) => self.push(&body, &[], around),
            Record::CallbackName(body) => self.push(&body, &[], around),
        }
    }

    fn text(&mut self, address: u64, around: &mut impl Surroundings) -> u32 {
        let named = self.texts.name(address, around);
        let id = named.id;
        if let Some(text) = named.new {
            let body = wire::Text { id, reserved: 0 };
            // The text is borrowed from `self.texts`; the rest of `self` is free.
            if !self.writer.push(&body, text) {
                let text = text.to_vec();
                self.send(0, around);
                self.writer.push(&body, &text);
            }
        }
        id
    }

    fn function(&mut self, domain: u32, cbid: u32, around: &mut impl Surroundings) {
        if !self.said.insert((domain, cbid)) {
            return;
        }
        let mut name = std::mem::take(&mut self.scratch);
        if around.callback_name(domain, cbid, &mut name) {
            self.push(&wire::CallbackName { domain, cbid }, &name, around);
        }
        self.scratch = name;
    }

    fn push<T: Body>(&mut self, body: &T, text: &[u8], around: &mut impl Surroundings) {
        if !self.writer.push(body, text) {
            self.send(0, around);
            self.writer.push(body, text);
        }
    }

    /// Sends what there is.
    pub fn flush(&mut self, around: &mut impl Surroundings) {
        if !self.writer.is_empty() {
            self.send(0, around);
        }
    }

    /// Sends what there is, and that it was the last.
    pub fn end(&mut self, around: &mut impl Surroundings) {
        self.send(wire::flags::LAST, around);
    }

    fn send(&mut self, more_flags: u32, around: &mut impl Surroundings) {
        let (cupti_ns, monotonic_ns) = around.clocks();
        let batch = self.writer.finish(BatchHeader {
            sequence: self.sequence,
            records_before: self.records_before,
            cupti_ns,
            monotonic_ns,
            dropped: self.lost.dropped,
            unknown: self.lost.unknown,
            malformed: self.lost.malformed,
            pid: self.pid,
            cupti_version: self.version.number(),
            flags: self.flags | more_flags,
            ..BatchHeader::default()
        });
        around.send(batch);
        self.sequence += 1;
        self.records_before += u64::from(self.writer.records());
        self.writer.clear();
    }
}
