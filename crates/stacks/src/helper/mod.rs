//! What may block, or parses what a traced program can shape, is asked of a helper process. There are two, of one
//! program: the reader opens files and reads memory of processes, with the rights for that, and parses nothing; the
//! parser has no rights, and reads the files that it is sent.
//!
//! The parser serves two lanes: requests that tracing waits for, and slow ones. A helper that hangs or dies is
//! replaced, and what it failed at is on a list and not asked for again. [`client`] starts helpers and asks them, [`protocol`] is
//! what they say, [`crate::program`] answers.

pub(crate) mod channel;
mod client;
mod files;
pub(crate) mod memory;
mod processes;
pub(crate) mod protocol;

pub use client::HelperHost;
pub use files::{FileReader, NotNow};
pub(crate) use files::{FileVersion, OpenFile};
pub use processes::{ProcessMemory, ProcessReader};
pub(crate) use processes::{Range, Words};
pub(crate) use protocol::{DebugLinks, Request, SymbolName};
pub use protocol::{InspectedProcess, Wanted};

/// The first argument by which our executable is asked to be a helper.
pub(crate) const ARGUMENT: &str = "__helper";
/// Another by which it is told that files are read whoever serves them.
pub(crate) const ALL_ARE_TRUSTED: &str = "all";
/// Bytes of memory that are read at once.
pub(crate) const MAX_BYTES: usize = 4096;
/// The same of several ranges.
pub(crate) const MAX_RANGES_BYTES: usize = 4 << 20;

/// Which helper it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Opens files, and reads processes.
    Reader,
    /// Parses files.
    Parser,
}

impl Role {
    pub(crate) const ALL: [Self; 2] = [Self::Reader, Self::Parser];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Parser => "parser",
        }
    }
}

/// Which of its threads is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// Tracing waits for the answer.
    Quick,
    /// Nothing does: names. The reader has no such thread.
    Slow,
}
