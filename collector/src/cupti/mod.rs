//! CUPTI's activity records, read as plain bytes.
//!
//! Nothing of a record is believed to be there before its length is checked, and nothing but
//! bytes is read: a text within a record is an [`Address`], which whoever has the memory follows.
//! The layouts are those of the headers of CUPTI 11.8, 12.1, 12.4, 12.8, 13.0 and 13.5, whose
//! records only ever grew at their end.

mod read;
mod version;

pub use read::{Address, Outcome, Reduced, read};
pub use version::Version;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
