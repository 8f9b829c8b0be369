//! Headers of batches and records.
//!
//! A batch is a [`BatchHeader`], followed by [`BatchHeader::bytes`] bytes of records. A record is a
//! [`RecordHeader`], the fixed part of its [`crate::WireRecord`], and for some kinds text. Everything is
//! little-endian and aligned to 8 bytes within the batch.
//!
//! Times are nanoseconds of CUPTI's clock; [`BatchHeader::cupti_ns`] and
//! [`BatchHeader::monotonic_ns`] are one moment on both clocks. 0 means that CUPTI has no time.

use crate::records::layouts;

/// First bytes of a batch. It changes with every change of the format.
pub const MAGIC: u64 = u64::from_le_bytes(*b"gpuact01");

/// Maximum size of a batch with its header, bytes. The BPF side copies no more.
pub const BATCH_MAX: usize = 32 << 10;

/// Maximum length of a record's text, bytes; longer text is cut at a character boundary.
pub const TEXT_MAX: usize = 4 << 10;

layouts! {
    /// Header of a batch.
    pub struct BatchHeader {
        /// Magic number, always [`MAGIC`].
        pub magic: u64,
        /// Sequence number of the batch within its process, from 0; a gap means lost batches.
        pub sequence: u64,
        /// Number of records in all previous batches, including [`crate::Text`] and
        /// [`crate::CallbackName`].
        pub records_before: u64,
        /// A moment on CUPTI's clock, nanoseconds.
        pub cupti_ns: u64,
        /// The same moment, `CLOCK_MONOTONIC` nanoseconds.
        pub monotonic_ns: u64,
        /// Number of records that CUPTI has dropped so far for lack of a buffer.
        pub dropped: u64,
        /// Number of records so far of a kind that was not requested or is unknown to this version.
        pub unknown: u64,
        /// Number of records or buffers so far that could not be parsed.
        pub malformed: u64,
        /// Process id in the PID namespace of the process.
        pub pid: u32,
        /// Version of CUPTI, from `cuptiGetVersion`.
        pub cupti_version: u32,
        /// Number of records in this batch.
        pub records: u32,
        /// Size of the records in this batch, bytes.
        pub bytes: u32,
        /// Bit set of [`flags`].
        pub flags: u32,
        /// Padding; always written as zero.
        pub reserved: u32,
    }

    /// Header of a record.
    pub struct RecordHeader {
        /// Number of a [`crate::WireRecord`].
        pub kind: u16,
        /// Size of the record with this header, bytes; a multiple of 8.
        pub bytes: u16,
        /// Length of the text after the fixed part without padding, bytes.
        pub text_bytes: u16,
        /// Padding; always written as zero.
        pub reserved: u16,
    }
}

/// Bits of the field [`BatchHeader::flags`].
pub mod flags {
    /// Times are on `CLOCK_MONOTONIC` already.
    pub const MONOTONIC: u32 = 1;
    /// The collector has shut down cleanly; this is the last batch of the process.
    pub const LAST: u32 = 2;
}
