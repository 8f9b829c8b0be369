//! Conversion of CUPTI's records to batches.

use std::collections::HashSet;

use gpuprobe_wire::{BatchHeader, BatchWriter, CallbackName, Text, WireRecord, flags};

use crate::cupti::{Address, CuptiVersion, ReadResult, Reduced, read};
use crate::texts::TextIds;

/// Access to the process of the records, and the output for batches.
pub trait Surroundings {
    /// Reads a text, see [`TextIds::name`].
    fn read_text(&mut self, address: Address, text: &mut Vec<u8>) -> bool;
    /// Appends the name of a function to `name`; returns `false` if it has none.
    fn callback_name(&mut self, domain: u32, cbid: u32, name: &mut Vec<u8>) -> bool;
    /// A moment on CUPTI's clock and on `CLOCK_MONOTONIC`, nanoseconds.
    fn clocks(&mut self) -> (u64, u64);
    /// Sends a complete batch.
    fn send(&mut self, batch: &[u8]);
}

/// Maximum number of named functions.
const MAX_FUNCTIONS: usize = 16 << 10;

/// Builds the batches of a process.
#[derive(Debug)]
pub struct Reducer {
    version: CuptiVersion,
    /// Header of the next batch.
    header: BatchHeader,
    writer: BatchWriter,
    texts: TextIds,
    said: HashSet<(u32, u32)>,
    scratch: Vec<u8>,
    /// Loss counters in the last batch.
    lost_sent: [u64; 3],
}

impl Reducer {
    /// Creates a reducer for process `pid`; `monotonic` if CUPTI's clock is `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn new(version: CuptiVersion, pid: u32, monotonic: bool) -> Self {
        Self {
            version,
            header: BatchHeader {
                pid,
                cupti_version: version.number(),
                flags: if monotonic { flags::MONOTONIC } else { 0 },
                ..BatchHeader::default()
            },
            writer: BatchWriter::default(),
            texts: TextIds::default(),
            said: HashSet::new(),
            scratch: Vec::new(),
            lost_sent: [0; 3],
        }
    }

    /// Starts a new buffer: addresses of texts become invalid.
    pub fn next_buffer(&mut self) {
        self.texts.next_buffer();
    }

    /// Adds the record at the beginning of `bytes`; further bytes are ignored.
    pub fn record(&mut self, bytes: &[u8], around: &mut impl Surroundings) {
        match read(self.version, bytes) {
            ReadResult::Record(reduced) => self.reduced(reduced, around),
            ReadResult::Unknown(_) => self.header.unknown += 1,
            ReadResult::Short => self.header.malformed += 1,
        }
    }

    /// Counts a record, or the rest of a buffer, that could not be parsed.
    pub fn malformed(&mut self) {
        self.header.malformed += 1;
    }

    /// Counts `records` dropped by CUPTI.
    pub fn dropped(&mut self, records: u64) {
        self.header.dropped = self.header.dropped.saturating_add(records);
    }

    /// Counters of CUPTI's records that are in no batch.
    fn lost(&self) -> [u64; 3] {
        let header = &self.header;
        [header.dropped, header.unknown, header.malformed]
    }

    fn reduced(&mut self, reduced: Reduced, around: &mut impl Surroundings) {
        let ids = reduced.texts.map(|address| self.text(address, around));
        if let WireRecord::Api(api) = &reduced.record {
            self.function(api.domain, api.cbid, around);
        }
        let record = reduced.named(ids);
        self.push(around, |writer| writer.push_record(&record, &[]));
    }

    fn text(&mut self, address: u64, around: &mut impl Surroundings) -> u32 {
        let read = |text: &mut Vec<u8>| around.read_text(address, text);
        let (id, new) = self.texts.name(address, read);
        if let Some(text) = new {
            let body = Text { id, reserved: 0 };
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
        // CUDA has about two thousand functions; more come from invalid records.
        if self.said.len() >= MAX_FUNCTIONS || !self.said.insert((domain, cbid)) {
            return;
        }
        let mut name = std::mem::take(&mut self.scratch);
        if around.callback_name(domain, cbid, &mut name) {
            let body = CallbackName { domain, cbid };
            self.push(around, |writer| writer.push(&body, &name));
        }
        self.scratch = name;
    }

    fn push(&mut self, around: &mut impl Surroundings, write: impl Fn(&mut BatchWriter) -> bool) {
        if !write(&mut self.writer) {
            self.send(0, around);
            write(&mut self.writer);
        }
    }

    /// Sends the current batch if it has records or new loss counters.
    pub fn flush(&mut self, around: &mut impl Surroundings) {
        if !self.writer.is_empty() || self.lost() != self.lost_sent {
            self.send(0, around);
        }
    }

    /// Sends the current batch, marked as the last.
    pub fn end(&mut self, around: &mut impl Surroundings) {
        self.send(flags::LAST, around);
    }

    fn send(&mut self, more_flags: u32, around: &mut impl Surroundings) {
        let header = &mut self.header;
        (header.cupti_ns, header.monotonic_ns) = around.clocks();
        header.flags |= more_flags;
        around.send(self.writer.finish(*header));
        header.sequence += 1;
        header.records_before += u64::from(self.writer.records());
        self.lost_sent = self.lost();
        self.writer.clear();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::texts::tests::Fake;
    use gpuprobe_wire::settings::cupti_kind;
    use gpuprobe_wire::{Batch, TEXT_MAX};

    #[derive(Default)]
    struct TextSource {
        memory: Fake,
        sent: Vec<Vec<u8>>,
    }

    impl Surroundings for TextSource {
        fn read_text(&mut self, address: u64, text: &mut Vec<u8>) -> bool {
            self.memory.read_text(address, text)
        }

        fn callback_name(&mut self, domain: u32, cbid: u32, name: &mut Vec<u8>) -> bool {
            name.clear();
            name.extend_from_slice(format!("f{domain}_{cbid}").as_bytes());
            cbid != 9
        }

        fn clocks(&mut self) -> (u64, u64) {
            (1_000, 5)
        }

        fn send(&mut self, batch: &[u8]) {
            self.sent.push(batch.to_vec());
        }
    }

    impl TextSource {
        fn records(&self) -> Vec<WireRecord> {
            let batches = self.sent.iter().map(|bytes| Batch::parse(bytes).unwrap());
            let items = batches.flat_map(|batch| batch.records().collect::<Vec<_>>());
            items.map(|item| item.unwrap().record).collect()
        }
    }

    fn reducer() -> Reducer {
        Reducer::new(CuptiVersion::new(26).unwrap(), 42, false)
    }

    fn kernel(name: u64) -> Vec<u8> {
        let mut bytes = vec![0; 208];
        bytes[..4].copy_from_slice(&cupti_kind::CONCURRENT_KERNEL.to_le_bytes());
        bytes[104..112].copy_from_slice(&name.to_le_bytes());
        bytes
    }

    fn call(cbid: u32) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        bytes[..4].copy_from_slice(&cupti_kind::RUNTIME.to_le_bytes());
        bytes[4..8].copy_from_slice(&cbid.to_le_bytes());
        bytes
    }

    #[test]
    fn a_name_is_sent_once_before_its_records() {
        let mut around = TextSource::default();
        around.memory.0.insert(64, b"add".to_vec());
        let mut reducer = reducer();
        reducer.record(&kernel(64), &mut around);
        reducer.record(&kernel(64), &mut around);
        reducer.next_buffer();
        reducer.record(&kernel(64), &mut around);
        reducer.record(&kernel(0), &mut around);
        reducer.flush(&mut around);
        let records = around.records();
        let names: Vec<_> = records[1..]
            .iter()
            .map(|record| match record {
                WireRecord::Kernel(kernel) => kernel.name,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(matches!(records[0], WireRecord::Text(text) if text.id == 1));
        assert_eq!(names, [1, 1, 1, 0]);
    }

    #[test]
    fn a_function_is_named_once_if_it_has_a_name() {
        let mut around = TextSource::default();
        let mut reducer = reducer();
        for cbid in [20, 20, 9, 9, 22] {
            reducer.record(&call(cbid), &mut around);
        }
        reducer.flush(&mut around);
        let named = around
            .records()
            .into_iter()
            .filter_map(|record| match record {
                WireRecord::CallbackName(name) => Some((name.domain, name.cbid)),
                _ => None,
            });
        assert_eq!(named.collect::<Vec<_>>(), [(2, 20), (2, 22)]);
    }

    #[test]
    fn batches_are_numbered_and_say_what_came_before() {
        let mut around = TextSource::default();
        let mut reducer = reducer();
        for _ in 0..1000 {
            reducer.record(&kernel(0), &mut around);
        }
        reducer.end(&mut around);
        let headers: Vec<_> = around
            .sent
            .iter()
            .map(|bytes| Batch::parse(bytes).unwrap().header)
            .collect();
        assert!(headers.len() > 5);
        let mut before = 0;
        for (number, header) in (0u64..).zip(&headers) {
            assert_eq!((header.sequence, header.records_before), (number, before));
            assert_eq!((header.pid, header.cupti_version), (42, 26));
            assert_eq!((header.cupti_ns, header.monotonic_ns), (1_000, 5));
            before += u64::from(header.records);
        }
        assert_eq!(before, 1000);
        let (last, others) = headers.split_last().unwrap();
        assert_eq!(last.flags, flags::LAST);
        assert!(others.iter().all(|header| header.flags == 0));
    }

    #[test]
    fn losses_are_sent_without_records() {
        let mut around = TextSource::default();
        let mut reducer = reducer();
        reducer.flush(&mut around);
        assert!(around.sent.is_empty());
        reducer.dropped(7);
        reducer.malformed();
        reducer.record(&57u32.to_le_bytes(), &mut around);
        reducer.record(&kernel(0)[..100], &mut around);
        reducer.record(&[], &mut around);
        reducer.flush(&mut around);
        reducer.flush(&mut around);
        assert_eq!(around.sent.len(), 1);
        let header = Batch::parse(&around.sent[0]).unwrap().header;
        assert_eq!(header.dropped, 7);
        assert_eq!((header.unknown, header.malformed), (1, 3));
        assert_eq!(header.records, 0);
    }

    #[test]
    fn texts_that_fill_batches_lose_nothing() {
        let mut around = TextSource::default();
        let mut reducer = reducer();
        for number in 0..100 {
            let text = format!("{number:0TEXT_MAX$}");
            around.memory.0.insert(number, text.into_bytes());
        }
        for number in 1..100 {
            reducer.record(&kernel(number), &mut around);
        }
        reducer.flush(&mut around);
        let mut known = HashSet::new();
        let mut kernels = 0;
        for record in around.records() {
            match record {
                WireRecord::Text(text) => assert!(known.insert(text.id)),
                WireRecord::Kernel(kernel) => {
                    assert!(known.contains(&kernel.name));
                    kernels += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((known.len(), kernels), (99, 99));
    }
}
