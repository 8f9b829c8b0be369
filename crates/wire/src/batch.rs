//! Reading a batch as it came out of the traced process: every length is checked, nothing is
//! believed, nothing panics.

use std::borrow::Cow;
use std::fmt;

use zerocopy::FromBytes;

use crate::header::{BatchHeader, MAGIC, RecordHeader};
use crate::records::{Kind, Record, read_fixed};

/// A batch whose header is in order.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Its header.
    pub header: BatchHeader,
    records: &'a [u8],
}

/// Why bytes are not a batch, or not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than a batch's header has.
    Short,
    /// It does not begin with [`MAGIC`].
    Magic(u64),
    /// The header promises more bytes of records than there are.
    Truncated {
        /// By the header.
        promised: u32,
        /// That came.
        present: usize,
    },
    /// A record's header or length does not fit into what is left; nothing after it can be read.
    Length {
        /// Where the record begins, counted from the end of the batch's header.
        offset: usize,
    },
    /// A record of a kind that this version does not have; the next one can be read.
    Kind(u16),
    /// A record too short for its kind or its text; the next one can be read.
    Body(Kind),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "it is shorter than a batch's header"),
            Self::Magic(magic) => write!(f, "it begins with {magic:#x}, not as a batch does"),
            Self::Truncated { promised, present } => {
                write!(f, "of {promised} bytes of records {present} came")
            }
            Self::Length { offset } => {
                write!(
                    f,
                    "the record at byte {offset} has a length that cannot be right"
                )
            }
            Self::Kind(kind) => write!(f, "there is no record of kind {kind}"),
            Self::Body(kind) => write!(f, "a record is too short for its kind, {kind:?}"),
        }
    }
}

impl std::error::Error for Malformed {}

impl<'a> Batch<'a> {
    /// `bytes` may be longer than the batch: what reads it out of the process reads in steps.
    ///
    /// # Errors
    /// The header is short or wrong, or records are missing at the end.
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

    /// Its records, in order. There should be [`BatchHeader::records`] of them.
    #[must_use]
    pub fn records(&self) -> Records<'a> {
        Records {
            all: self.records,
            offset: 0,
        }
    }
}

/// The records of a batch. After [`Malformed::Length`] it ends; any other error is about one
/// record only.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    all: &'a [u8],
    offset: usize,
}

/// A record of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The fixed part.
    pub record: Record,
    /// Of [`Record::Text`] and [`Record::CallbackName`]; of others it is empty.
    pub text: &'a [u8],
}

impl Item<'_> {
    /// The text; what is not UTF-8 in it is replaced.
    #[must_use]
    pub fn text_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.text)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Item<'a>, Malformed>;

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
        let Some(kind) = Kind::of(header.kind) else {
            return Some(Err(Malformed::Kind(header.kind)));
        };
        Some(read_item(kind, &header, record).ok_or(Malformed::Body(kind)))
    }
}

/// The first record's header, and what it says belongs to the record after it.
fn split(left: &[u8]) -> Option<(RecordHeader, &[u8])> {
    let (header, rest) = RecordHeader::read_from_prefix(left).ok()?;
    let bytes = usize::from(header.bytes);
    let body = bytes.checked_sub(size_of::<RecordHeader>())?;
    (bytes % 8 == 0).then_some(())?;
    Some((header, rest.get(..body)?))
}

fn read_item<'a>(kind: Kind, header: &RecordHeader, record: &'a [u8]) -> Option<Item<'a>> {
    let (fixed, rest) = record.split_at_checked(kind.fixed_bytes())?;
    Some(Item {
        record: read_fixed(kind, fixed)?,
        text: rest.get(..usize::from(header.text_bytes))?,
    })
}
