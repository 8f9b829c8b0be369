//! Headers of batches and of their records.
//!
//! A batch is a [`BatchHeader`] and then [`BatchHeader::bytes`] bytes of records, one after the
//! other. A record is a [`RecordHeader`], the fixed part that its [`crate::Kind`] has, and for some
//! kinds text. Everything is little-endian and aligned to 8 bytes within the batch.
//!
//! Times are those of CUPTI's clock, nanoseconds; [`BatchHeader::cupti_ns`] and
//! [`BatchHeader::monotonic_ns`] are one moment on both clocks. 0 means that CUPTI has no time.

use crate::records::layouts;

/// The first bytes of a batch. Changes with every change of the format.
pub const MAGIC: u64 = u64::from_le_bytes(*b"gpuact01");

/// Largest batch, header included. The kernel side copies no more.
pub const BATCH_MAX: usize = 32 << 10;

/// Longest text of a record; a longer one is cut at a character.
pub const TEXT_MAX: usize = 4 << 10;

layouts! {
    /// Begins every batch.
    pub struct BatchHeader {
        /// [`MAGIC`].
        pub magic: u64,
        /// Number of this batch within its process, from 0: a missing one was lost on the way.
        pub sequence: u64,
        /// Records of all batches before this one, [`crate::Text`] and [`crate::CallbackName`]
        /// included.
        pub records_before: u64,
        /// A moment on CUPTI's clock, nanoseconds.
        pub cupti_ns: u64,
        /// The same moment, `CLOCK_MONOTONIC` nanoseconds.
        pub monotonic_ns: u64,
        /// Records that CUPTI dropped for want of a buffer, so far.
        pub dropped: u64,
        /// Records of kinds that were not asked for or that this version does not know, so far.
        pub unknown: u64,
        /// Records or ends of buffers that could not be read, so far.
        pub malformed: u64,
        /// Process id as the process itself sees it.
        pub pid: u32,
        /// As `cuptiGetVersion` gives it.
        pub cupti_version: u32,
        /// Records in this batch.
        pub records: u32,
        /// Bytes of the records in this batch.
        pub bytes: u32,
        /// [`flags`].
        pub flags: u32,
        /// Always 0.
        pub reserved: u32,
    }

    /// Begins every record.
    pub struct RecordHeader {
        /// A [`crate::Kind`].
        pub kind: u16,
        /// Bytes of the record with this header, a multiple of 8.
        pub bytes: u16,
        /// Bytes of text after the fixed part, padding not counted.
        pub text_bytes: u16,
        /// Always 0.
        pub reserved: u16,
    }
}

/// Bits of [`BatchHeader::flags`].
pub mod flags {
    /// Times are `CLOCK_MONOTONIC` already.
    pub const MONOTONIC: u32 = 1;
    /// The collector has ended as it should; nothing of this process follows.
    pub const LAST: u32 = 2;
}
