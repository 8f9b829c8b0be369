//! Reading a batch as it came out of the traced process: every length is checked, nothing is
//! believed, nothing panics.

use std::borrow::Cow;
use std::fmt;

use zerocopy::FromBytes;

use crate::wire::{self, BatchHeader, Kind, RecordHeader};

/// A batch whose header is in order.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// What it says of itself.
    pub header: BatchHeader,
    records: &'a [u8],
}

/// Why bytes are not a batch, or not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than a batch's header has.
    Short,
    /// It does not begin with [`wire::MAGIC`].
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
        if header.magic != wire::MAGIC {
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

macro_rules! kinds {
    ($($kind:ident),+ $(,)?) => {
        /// The fixed part of a record, by its kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is documented where it is laid out")]
        pub enum Record {
            $($kind(wire::$kind),)+
        }

        impl Record {
            /// Which it is.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)+
                }
            }
        }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// The kind that a record's header names by `number`.
            #[must_use]
            pub fn of(number: u16) -> Option<Self> {
                match number {
                    $(number if number == Self::$kind as u16 => Some(Self::$kind),)+
                    _ => None,
                }
            }

            /// Bytes of the fixed part.
            #[must_use]
            pub fn fixed_bytes(self) -> usize {
                match self {
                    $(Self::$kind => size_of::<wire::$kind>(),)+
                }
            }
        }

        $(impl Body for wire::$kind {
            const KIND: Kind = Kind::$kind;
        })+

        fn read_fixed(kind: Kind, fixed: &[u8]) -> Option<Record> {
            match kind {
                $(Kind::$kind => {
                    wire::$kind::read_from_bytes(fixed).ok().map(Record::$kind)
                })+
            }
        }
    };
}

kinds!(
    Text,
    CallbackName,
    Device,
    Context,
    Stream,
    Api,
    Kernel,
    Memcpy,
    Memset,
    Memory,
    MemoryPool,
    Sync,
    GraphTrace,
    Overhead,
    Name,
    Marker,
    ExternalCorrelation,
);

/// The fixed part of a record, as it is laid out.
pub trait Body: zerocopy::IntoBytes + zerocopy::Immutable {
    /// What stands in its header.
    const KIND: Kind;
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::writer::Writer;
    use zerocopy::IntoBytes;

    fn written() -> Vec<u8> {
        let mut writer = Writer::default();
        assert!(writer.push(
            &wire::Text {
                id: 1,
                ..Default::default()
            },
            b"_Z3addPfS_i"
        ));
        let kernel = wire::Kernel {
            name: 1,
            start_ns: 5,
            end_ns: 9,
            ..Default::default()
        };
        assert!(writer.push(&kernel, b""));
        writer.finish(BatchHeader::default()).to_vec()
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = written();
        let batch = Batch::parse(&bytes).unwrap();
        assert_eq!(batch.header.records, 2);
        let items: Vec<_> = batch.records().map(Result::unwrap).collect();
        assert_eq!(items[0].text_lossy(), "_Z3addPfS_i");
        assert!(matches!(items[0].record, Record::Text(text) if text.id == 1));
        assert!(matches!(items[1].record, Record::Kernel(kernel) if kernel.end_ns == 9));
        assert_eq!(items.len(), 2);
    }

    #[test]
    fn every_kind_has_its_number_and_its_size() {
        for &kind in Kind::ALL {
            assert_eq!(Kind::of(kind as u16), Some(kind));
            assert_eq!(kind.fixed_bytes() % 8, 0, "{kind:?} is not padded");
        }
        assert_eq!(Kind::of(0), None);
        assert_eq!(Kind::of(18), None);
    }

    #[test]
    fn no_batch_at_all() {
        assert_eq!(Batch::parse(b"short").unwrap_err(), Malformed::Short);
        let mut bytes = written();
        bytes[0] ^= 1;
        assert!(matches!(Batch::parse(&bytes), Err(Malformed::Magic(_))));
    }

    #[test]
    fn a_batch_cut_short() {
        let bytes = written();
        let cut = &bytes[..bytes.len() - 8];
        let Err(Malformed::Truncated { promised, present }) = Batch::parse(cut) else {
            panic!("a cut batch was taken");
        };
        assert_eq!(promised as usize, present + 8);
    }

    #[test]
    fn a_wrong_length_ends_it_and_a_wrong_kind_does_not() {
        let header = size_of::<BatchHeader>();
        let mut bytes = written();
        bytes[header] = 99;
        let read: Vec<_> = Batch::parse(&bytes).unwrap().records().collect();
        assert_eq!(read[0], Err(Malformed::Kind(99)));
        assert!(matches!(&read[1], Ok(item) if item.record.kind() == Kind::Kernel));

        for length in [0u16, 4, 7, 12, 0xfff8] {
            let mut bytes = written();
            bytes[header + 2..header + 4].copy_from_slice(length.as_bytes());
            let read: Vec<_> = Batch::parse(&bytes).unwrap().records().collect();
            assert_eq!(read, [Err(Malformed::Length { offset: 0 })], "{length}");
        }

        // Only its header, so that the rest of it is read as records of no kind that there is.
        let mut bytes = written();
        bytes[header + 2..header + 4].copy_from_slice(8u16.as_bytes());
        let first = Batch::parse(&bytes).unwrap().records().next();
        assert_eq!(first, Some(Err(Malformed::Body(Kind::Text))));
    }
}
