//! Record kinds and their layouts.
//!
//! Ids that CUPTI does not know are [`UNKNOWN_ID`], independent of CUPTI's version. A field has the
//! meaning of the field of the same name in CUPTI's `cupti_activity.h`.

mod memory;
mod objects;
mod work;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{BatchWriter, Malformed};
pub use memory::*;
pub use objects::*;
pub use work::*;

/// Id of an unknown context, stream, device or graph.
pub const UNKNOWN_ID: u32 = u32::MAX;

/// `id`, or `None` for [`UNKNOWN_ID`].
#[must_use]
pub fn known(id: u32) -> Option<u32> {
    (id != UNKNOWN_ID).then_some(id)
}

/// Bits of [`Marker::flags`], `CUPTI_ACTIVITY_FLAG_MARKER_...`.
pub mod marker {
    /// A marker without duration.
    pub const INSTANTANEOUS: u32 = 1;
    /// Start of a range.
    pub const START: u32 = 2;
    /// End of a range.
    pub const END: u32 = 4;
}

/// Defines structs without padding and without invalid values.
macro_rules! layouts {
    ($($(#[$doc:meta])* pub struct $name:ident { $($fields:tt)* })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
        #[repr(C)]
        pub struct $name { $($fields)* }
    )+};
}
pub(crate) use layouts;

/// The layout of a record's fixed part.
pub trait Body: IntoBytes + Immutable {
    /// Kind in the record header.
    const KIND: u16;
}

macro_rules! kinds {
    ($($kind:ident = $number:literal),+ $(,)?) => {
        /// Fixed part of a record, by kind; the number is [`crate::RecordHeader::kind`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is documented where it is laid out")]
        pub enum WireRecord {
            $($kind($kind),)+
        }

        $(impl Body for $kind {
            const KIND: u16 = $number;
        }
        const _: () = assert!(size_of::<$kind>() % 8 == 0, "not padded");)+

        impl BatchWriter {
            /// Appends a record of any kind, see [`Self::push`].
            #[inline]
            pub fn push_record(&mut self, record: &WireRecord, text: &[u8]) -> bool {
                match record {
                    $(WireRecord::$kind(body) => self.push(body, text),)+
                }
            }
        }

        /// The fixed part of a record of this kind, and the bytes after it.
        pub(crate) fn read_fixed(kind: u16, bytes: &[u8]) -> Result<(WireRecord, &[u8]), Malformed> {
            match kind {
                $($number => {
                    let read = $kind::read_from_prefix(bytes);
                    let (fixed, rest) = read.map_err(|_short| Malformed::Body(kind))?;
                    Ok((WireRecord::$kind(fixed), rest))
                })+
                _ => Err(Malformed::Kind(kind)),
            }
        }
    };
}

kinds! {
    Text = 1,
    CallbackName = 2,
    Device = 3,
    Context = 4,
    Stream = 5,
    Api = 6,
    Kernel = 7,
    Memcpy = 8,
    Memset = 9,
    Memory = 10,
    MemoryPool = 11,
    Sync = 12,
    GraphTrace = 13,
    Overhead = 14,
    Name = 15,
    Marker = 16,
    ExternalCorrelation = 17,
}

impl WireRecord {
    /// The ids of its texts: its name, and what qualifies it (the domain of a marker, the library that allocated).
    #[inline]
    pub fn texts(&mut self) -> [Option<&mut u32>; 2] {
        match self {
            Self::Device(device) => [Some(&mut device.name), None],
            Self::Kernel(kernel) => [Some(&mut kernel.name), None],
            Self::Memory(memory) => [Some(&mut memory.name), Some(&mut memory.source)],
            Self::Name(named) => [Some(&mut named.name), None],
            Self::Marker(marker) => [Some(&mut marker.name), Some(&mut marker.domain)],
            _ => [None, None],
        }
    }
}
