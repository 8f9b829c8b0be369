//! Filling a batch with records.

use zerocopy::IntoBytes;

use crate::batch::Body;
use crate::wire::{BATCH_MAX, BatchHeader, MAGIC, RecordHeader, TEXT_MAX};

const HEADER_BYTES: usize = size_of::<BatchHeader>();

/// A batch in the making. Its memory is taken once.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    records: u32,
}

impl Default for Writer {
    fn default() -> Self {
        let mut bytes = Vec::with_capacity(BATCH_MAX);
        bytes.resize(HEADER_BYTES, 0);
        Self { bytes, records: 0 }
    }
}

impl Writer {
    /// Whether there is nothing in it yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Records in it.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Bytes that a record with a text takes.
    #[must_use]
    pub fn record_bytes<T: Body>(text: &[u8]) -> usize {
        (size_of::<RecordHeader>() + size_of::<T>() + cut(text).len()).next_multiple_of(8)
    }

    /// Bytes that are left for records.
    #[must_use]
    pub fn left(&self) -> usize {
        BATCH_MAX - self.bytes.len()
    }

    /// Adds a record; a text that is too long is cut at a character. `false` if there is no room
    /// for it, and nothing was added.
    pub fn push<T: Body>(&mut self, body: &T, text: &[u8]) -> bool {
        let bytes = Self::record_bytes::<T>(text);
        if bytes > self.left() {
            return false;
        }
        let text = cut(text);
        // Both are far below 64 KiB: TEXT_MAX and the largest body.
        let header = RecordHeader {
            kind: T::KIND as u16,
            bytes: u16::try_from(bytes).unwrap_or(u16::MAX),
            text_bytes: u16::try_from(text.len()).unwrap_or(u16::MAX),
            reserved: 0,
        };
        let end = self.bytes.len() + bytes;
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(body.as_bytes());
        self.bytes.extend_from_slice(text);
        self.bytes.resize(end, 0);
        self.records += 1;
        true
    }

    /// The batch, with `header` completed by what is known here: magic, records and bytes. Its
    /// memory is written, header and records, so that all of it is resident.
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

    /// Makes it empty again.
    pub fn clear(&mut self) {
        self.bytes.truncate(HEADER_BYTES);
        self.records = 0;
    }
}

/// At most [`TEXT_MAX`] bytes of `text`; no character is cut in two.
pub(crate) fn cut(text: &[u8]) -> &[u8] {
    if text.len() <= TEXT_MAX {
        return text;
    }
    let is_start = |&end: &usize| text[end] & 0xc0 != 0x80;
    // A character has at most four bytes; what is not UTF-8 is cut where it is.
    let end = (TEXT_MAX - 3..=TEXT_MAX).rev().find(is_start);
    &text[..end.unwrap_or(TEXT_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Kernel, Text};

    #[test]
    fn a_full_batch_takes_no_more() {
        let mut writer = Writer::default();
        let mut pushed = 0;
        while writer.push(&Kernel::default(), b"") {
            pushed += 1;
        }
        assert!(writer.left() < Writer::record_bytes::<Kernel>(b""));
        assert_eq!(writer.records(), pushed);
        assert!(pushed > 100);
        assert!(writer.finish(BatchHeader::default()).len() <= BATCH_MAX);
        writer.clear();
        assert!(writer.is_empty());
        assert!(writer.push(&Kernel::default(), b""));
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let long = "é".repeat(TEXT_MAX);
        assert_eq!(cut(long.as_bytes()).len(), TEXT_MAX);
        let odd = format!("x{long}");
        assert_eq!(cut(odd.as_bytes()).len(), TEXT_MAX - 1);
        assert_eq!(cut(&[0x80; TEXT_MAX + 1]).len(), TEXT_MAX);
        let mut writer = Writer::default();
        assert!(writer.push(&Text::default(), odd.as_bytes()));
    }

    #[test]
    fn memory_is_taken_once() {
        let mut writer = Writer::default();
        let before = writer.bytes.capacity();
        while writer.push(&Text::default(), &[b'x'; TEXT_MAX]) {}
        assert_eq!(writer.bytes.capacity(), before);
    }
}
