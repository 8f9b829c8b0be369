//! Parser of batches from the traced process: every length is checked, no content is trusted,
//! nothing panics.

use std::borrow::Cow;
use std::fmt;

use zerocopy::FromBytes;

use crate::header::{BatchHeader, MAGIC, RecordHeader};
use crate::records::{RecordKind, WireRecord, read_fixed};

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
    Truncated {
        /// Bytes of records according to the header.
        promised: u32,
        /// Bytes of records that are present.
        present: usize,
    },
    /// The header or length of a record does not fit into the rest of the batch; parsing stops
    /// here.
    Length {
        /// Offset of the record from the end of the batch header, bytes.
        offset: usize,
    },
    /// Unknown record kind; parsing continues with the next record.
    Kind(u16),
    /// Record too short for its kind or text; parsing continues with the next record.
    Body(RecordKind),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "shorter than a batch header"),
            Self::Magic(magic) => write!(
                f,
                "begins with {magic:#x}, not with the magic number of a batch"
            ),
            Self::Truncated { promised, present } => {
                write!(f, "{present} of {promised} bytes of records are present")
            }
            Self::Length { offset } => {
                write!(f, "invalid length of the record at byte {offset}")
            }
            Self::Kind(kind) => write!(f, "unknown record kind {kind}"),
            Self::Body(kind) => write!(f, "record too short for its kind, {kind:?}"),
        }
    }
}

impl std::error::Error for Malformed {}

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
        let records = usize::try_from(header.bytes)
            .ok()
            .and_then(|length| rest.get(..length))
            .ok_or(Malformed::Truncated {
                promised: header.bytes,
                present: rest.len(),
            })?;
        Ok(Self { header, records })
    }

    /// Records in the order of the batch; the header states their number in
    /// [`BatchHeader::records`].
    #[must_use]
    pub fn records(&self) -> Records<'a> {
        Records {
            all: self.records,
            offset: 0,
        }
    }
}

/// Iterator over the records of a batch. It ends after [`Malformed::Length`]; any other error
/// concerns a single record.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    all: &'a [u8],
    offset: usize,
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

impl<'a> Iterator for Records<'a> {
    type Item = Result<BatchItem<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let left = self
            .all
            .get(self.offset..)
            .filter(|left| !left.is_empty())?;
        let offset = self.offset;
        let Some((header, record)) = split(left) else {
            self.offset = self.all.len();
            return Some(Err(Malformed::Length { offset }));
        };
        self.offset += usize::from(header.bytes);
        let Some(kind) = RecordKind::of(header.kind) else {
            return Some(Err(Malformed::Kind(header.kind)));
        };
        Some(read_item(kind, &header, record).ok_or(Malformed::Body(kind)))
    }
}

/// Splits off the header of the first record and the bytes that belong to it.
fn split(left: &[u8]) -> Option<(RecordHeader, &[u8])> {
    let (header, rest) = RecordHeader::read_from_prefix(left).ok()?;
    let bytes = usize::from(header.bytes);
    let body = bytes.checked_sub(size_of::<RecordHeader>())?;
    (bytes % 8 == 0).then_some(())?;
    Some((header, rest.get(..body)?))
}

fn read_item<'a>(
    kind: RecordKind,
    header: &RecordHeader,
    record: &'a [u8],
) -> Option<BatchItem<'a>> {
    let (fixed, rest) = record.split_at_checked(kind.fixed_bytes())?;
    Some(BatchItem {
        record: read_fixed(kind, fixed)?,
        text: rest.get(..usize::from(header.text_bytes))?,
    })
}
