//! Bytes from a traced process or from CUPTI: for the fuzz targets and for the tests that replay their findings.
//! Errors are expected; panics and endless loops are not.

// A fuzz target uses one of these functions.
#![allow(dead_code)]

use gpuprobe_collector::cupti::CuptiVersion;
use gpuprobe_collector::reduce::{Reducer, Surroundings};
use gpuprobe_wire::{Batch, BatchHeader, MAGIC};
use zerocopy::IntoBytes;

/// Fake surroundings: texts depend on their address only, and sent batches must be valid.
#[derive(Debug, Default)]
struct FuzzTexts {
    sent: u64,
}

impl Surroundings for FuzzTexts {
    fn read_text(&mut self, address: u64, text: &mut Vec<u8>) -> bool {
        text.clear();
        text.resize((address % 8192) as usize, address as u8);
        !address.is_multiple_of(3)
    }

    fn callback_name(&mut self, _domain: u32, cbid: u32, name: &mut Vec<u8>) -> bool {
        self.read_text(cbid.into(), name)
    }

    fn clocks(&mut self) -> (u64, u64) {
        (0, 0)
    }

    fn send(&mut self, batch: &[u8]) {
        let batch = Batch::parse(batch).expect("what is sent can be read");
        let records = batch
            .records()
            .map(|record| record.expect("so can its records"));
        assert_eq!(records.count(), batch.header.records as usize);
        self.sent += u64::from(batch.header.records);
    }
}

/// Converts CUPTI records of any version to batches. `bytes` are CUPTI's version (four bytes),
/// followed by records, each prefixed with its length (two bytes). Returns the number of records
/// sent.
///
/// # Panics
/// If a resulting batch is invalid.
pub(crate) fn reduce(bytes: &[u8]) -> u64 {
    let mut around = FuzzTexts::default();
    let Some((version, mut rest)) = bytes.split_first_chunk() else {
        return 0;
    };
    let Some(version) = CuptiVersion::new(u32::from_le_bytes(*version)) else {
        return 0;
    };
    let mut reducer = Reducer::new(version, 1, false);
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (record, after) = after.split_at(length);
        reducer.record(record, &mut around);
        rest = after;
    }
    reducer.end(&mut around);
    around.sent
}

/// Parses `bytes` as a batch, and as the records of a batch with a valid header, because most
/// inputs fail at the header. Returns the number of records.
pub(crate) fn parse(bytes: &[u8]) -> usize {
    let header = BatchHeader {
        magic: MAGIC,
        bytes: bytes.len() as u32,
        ..BatchHeader::default()
    };
    let whole = [header.as_bytes(), bytes].concat();
    let mut read = 0;
    for bytes in [bytes, &whole] {
        let Ok(batch) = Batch::parse(bytes) else {
            continue;
        };
        for item in batch.records().flatten() {
            let _ = item.text_lossy();
            read += 1;
        }
    }
    read
}
