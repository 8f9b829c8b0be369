//! Record kinds and their layouts.
//!
//! Ids that CUPTI does not know are [`UNKNOWN_ID`], independent of CUPTI's version. A field has the
//! meaning of the field of the same name in CUPTI's `cupti_activity.h`.

mod memory;
mod objects;
mod work;

use zerocopy::{FromBytes, Immutable, IntoBytes};

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
    const KIND: RecordKind;
}

macro_rules! kinds {
    ($d:tt $($kind:ident = $number:literal),+ $(,)?) => {
        /// Kind of a record; the number is [`crate::RecordHeader::kind`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each is documented where it is laid out")]
        #[repr(u16)]
        pub enum RecordKind {
            $($kind = $number,)+
        }

        /// Fixed part of a record, by kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is documented where it is laid out")]
        pub enum WireRecord {
            $($kind($kind),)+
        }

        impl RecordKind {
            /// All record kinds, by number.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// The kind with this number; `None` if unknown.
            #[must_use]
            pub fn of(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$kind),)+
                    _ => None,
                }
            }
        }

        $(impl Body for $kind {
            const KIND: RecordKind = RecordKind::$kind;
        }
        const _: () = assert!(size_of::<$kind>() % 8 == 0, "not padded");)+

        /// Evaluates an expression with a record's body, compiled once per kind, so that its size
        /// is a constant.
        macro_rules! with_body {
            ($d record:expr, $d body:ident => $d value:expr) => {
                match $d record {
                    $($crate::WireRecord::$kind($d body) => $d value,)+
                }
            };
        }
        pub(crate) use with_body;

        /// The fixed part of a record of this kind, and the bytes after it.
        pub(crate) fn read_fixed(kind: RecordKind, bytes: &[u8]) -> Option<(WireRecord, &[u8])> {
            match kind {
                $(RecordKind::$kind => {
                    let (fixed, rest) = $kind::read_from_prefix(bytes).ok()?;
                    Some((WireRecord::$kind(fixed), rest))
                })+
            }
        }
    };
}

kinds! { $
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
