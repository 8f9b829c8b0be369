//! Files, processes and capabilities of a host, used safely.
//!
//! For: whatever opens a file that others may have put there, reads `/proc`, or drops capabilities.
//! May use: `model` (text), and the system.
//! Gives: [`files`] that follow no planted link, [`regular`] files of traced processes, parts of files
//! ([`bounded`]), processes of our own that are [`confined`] and what is said to them ([`channel`]),
//! whose file systems files are on ([`mounts`]), [`proc`], [`privileges`], messages on standard error
//! ([`say`]).

pub mod bounded;
pub mod budget;
pub mod channel;
pub mod confined;
pub mod files;
pub mod kernel;
pub mod memory;
mod message;
pub mod mounts;
pub mod privileges;
pub mod proc;
pub mod regular;
pub mod terminal;

pub use message::{count_line, lines_said, say};
