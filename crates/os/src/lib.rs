//! Safe access to files, processes, terminals and capabilities of the host.
//!
//! For: code that opens what other users may have placed, reads `/proc`, drops capabilities or talks to users.
//! May use: `model` (text) and the system.
//! Gives: [`files`], [`regular`], [`mounts`]; [`confined`] processes; [`proc`], [`say`].

pub mod color;
pub mod confined;
pub mod files;
pub mod kernel;
mod message;
pub mod mounts;
pub mod privileges;
pub mod proc;
pub mod progress;
pub mod regular;
pub mod terminal;

pub use message::{Diversion, LogOutput, before_lines, divert, lines_said, say};
