//! Parser of CUPTI's activity records.
//!
//! The length of a record is checked before any field is read, and only bytes are read: a text in a
//! record is an [`Address`] for the caller to read. The layouts are those of the headers of CUPTI
//! 11.8, 12.1, 12.4, 12.8, 13.0 and 13.5, whose records were only ever extended at their end.

mod read;
mod version;

pub use read::{Address, ReadResult, Reduced, read};
pub use version::CuptiVersion;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
