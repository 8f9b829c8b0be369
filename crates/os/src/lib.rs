//! Safe access to files, processes and capabilities of the host.
//!
//! For: code that opens files which other users may have placed, reads `/proc`, or drops
//! capabilities. Depends on: `model` (text) and the system. Provides: [`files`] (creation that
//! follows no planted link), [`regular`] (files of traced processes), [`bounded`] reads,
//! [`confined`] processes and their [`channel`], [`mounts`] (trust in file systems), [`proc`],
//! [`privileges`], [`terminal`]s and their [`color`]s, the interface for [`progress`], and messages on standard
//! error ([`say`]).

pub mod bounded;
pub mod budget;
pub mod channel;
pub mod color;
pub mod confined;
pub mod files;
pub mod kernel;
pub mod memory;
mod message;
pub mod mounts;
pub mod own_memory;
pub mod privileges;
pub mod proc;
pub mod progress;
pub mod regular;
pub mod terminal;

pub use message::{Diversion, LogOutput, before_lines, count_line, divert, lines_said, say};
