//! Writer of a batch, record by record.

use zerocopy::IntoBytes;

use crate::header::{BATCH_MAX, BatchHeader, MAGIC, RecordHeader, TEXT_MAX};
use crate::records::Body;

const HEADER_BYTES: usize = size_of::<BatchHeader>();

/// A batch under construction. Its buffer is allocated once.
#[derive(Debug)]
pub struct BatchWriter {
    pub(crate) bytes: Vec<u8>,
    records: u32,
}

impl Default for BatchWriter {
    fn default() -> Self {
        let mut bytes = Vec::with_capacity(BATCH_MAX);
        bytes.resize(HEADER_BYTES, 0);
        Self { bytes, records: 0 }
    }
}

impl BatchWriter {
    /// Whether the batch has no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Number of records in the batch.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Appends a record; text that is too long is cut at a character boundary. Returns `false` and
    /// appends nothing if the batch is full.
    pub fn push<T: Body>(&mut self, body: &T, text: &[u8]) -> bool {
        let (fixed, text) = (body.as_bytes(), cut(text));
        let bytes = (size_of::<RecordHeader>() + fixed.len() + text.len()).next_multiple_of(8);
        if bytes > BATCH_MAX - self.bytes.len() {
            return false;
        }
        // Both are far below 64 KiB: TEXT_MAX and the largest body.
        let header = RecordHeader {
            kind: T::KIND,
            bytes: u16::try_from(bytes).unwrap_or(u16::MAX),
            text_bytes: u16::try_from(text.len()).unwrap_or(u16::MAX),
            reserved: 0,
        };
        let end = self.bytes.len() + bytes;
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(fixed);
        self.bytes.extend_from_slice(text);
        self.bytes.resize(end, 0);
        self.records += 1;
        true
    }

    /// Completes `header` with magic, records and bytes, and returns the batch. All pages of the
    /// batch have been written, so they are resident for the BPF side.
    pub fn finish(&mut self, header: BatchHeader) -> &[u8] {
        let header = BatchHeader {
            magic: MAGIC,
            records: self.records,
            bytes: u32::try_from(self.bytes.len() - HEADER_BYTES).unwrap_or(u32::MAX),
            ..header
        };
        self.bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        &self.bytes
    }

    /// Removes all records from the batch.
    pub fn clear(&mut self) {
        self.bytes.truncate(HEADER_BYTES);
        self.records = 0;
    }
}

/// At most [`TEXT_MAX`] bytes of `text`, cut at a character boundary.
#[inline]
#[must_use]
pub fn cut(text: &[u8]) -> &[u8] {
    if text.len() <= TEXT_MAX {
        return text;
    }
    let is_start = |&end: &usize| text[end] & 0xc0 != 0x80;
    // A UTF-8 character has at most four bytes; other bytes are cut at the limit.
    let end = (TEXT_MAX - 3..=TEXT_MAX).rev().find(is_start);
    &text[..end.unwrap_or(TEXT_MAX)]
}
