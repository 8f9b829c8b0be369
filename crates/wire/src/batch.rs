//! Parser of batches from the traced process: every length is checked, no content is trusted,
//! nothing panics.

use std::borrow::Cow;
use std::iter;

use zerocopy::FromBytes;

use crate::header::{BatchHeader, MAGIC, RecordHeader};
use crate::records::{WireRecord, read_fixed};

/// A batch with a valid header.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Header of the batch.
    pub header: BatchHeader,
    records: &'a [u8],
}

/// Reason why bytes are not a valid batch or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes are shorter than a batch header.
    Short,
    /// The bytes do not begin with [`MAGIC`].
    Magic(u64),
    /// The records are shorter than the header states.
    Truncated,
    /// The header or length of a record does not fit into the rest of the batch; parsing stops
    /// here.
    Length,
    /// Unknown record kind; parsing continues with the next record.
    Kind(u16),
    /// Record too short for its kind or text; parsing continues with the next record.
    Body(u16),
}

impl<'a> Batch<'a> {
    /// Parses the header of a batch. `bytes` may be longer than the batch, because the BPF side
    /// copies it in steps.
    ///
    /// # Errors
    /// Returns [`Malformed::Short`] or [`Malformed::Magic`] for an invalid header, or
    /// [`Malformed::Truncated`] if records are missing.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) =
            BatchHeader::read_from_prefix(bytes).map_err(|_short| Malformed::Short)?;
        if header.magic != MAGIC {
            return Err(Malformed::Magic(header.magic));
        }
        let records = rest.get(..header.bytes as usize);
        let records = records.ok_or(Malformed::Truncated)?;
        Ok(Self { header, records })
    }

    /// Records in the order of the batch; the header states their number in
    /// [`BatchHeader::records`]. They end after [`Malformed::Length`]; any other error concerns a
    /// single record.
    pub fn records(&self) -> impl Iterator<Item = Result<BatchItem<'a>, Malformed>> + use<'a> {
        let mut left = self.records;
        iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let Some((header, record, rest)) = split(left) else {
                left = &[];
                return Some(Err(Malformed::Length));
            };
            left = rest;
            Some(read_item(&header, record))
        })
    }
}

/// A record with its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchItem<'a> {
    /// Fixed part of the record.
    pub record: WireRecord,
    /// Text of a [`WireRecord::Text`] or [`WireRecord::CallbackName`]; empty for others.
    pub text: &'a [u8],
}

impl BatchItem<'_> {
    /// The text with invalid UTF-8 replaced.
    #[must_use]
    pub fn text_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.text)
    }
}

/// Splits off the header of the first record and the bytes that belong to it.
fn split(left: &[u8]) -> Option<(RecordHeader, &[u8], &[u8])> {
    let (header, rest) = RecordHeader::read_from_prefix(left).ok()?;
    let bytes = usize::from(header.bytes);
    let body = bytes.checked_sub(size_of::<RecordHeader>())?;
    (bytes % 8 == 0).then_some(())?;
    let (record, rest) = rest.split_at_checked(body)?;
    Some((header, record, rest))
}

fn read_item<'a>(header: &RecordHeader, record: &'a [u8]) -> Result<BatchItem<'a>, Malformed> {
    let (record, rest) = read_fixed(header.kind, record)?;
    let text = rest.get(..usize::from(header.text_bytes));
    let text = text.ok_or(Malformed::Body(header.kind))?;
    Ok(BatchItem { record, text })
}
