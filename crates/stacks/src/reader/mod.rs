//! Whatever a traced program can shape is read by a process of its own, which can do nothing else and
//! may die or hang: ELF files, their unwind tables, symbols and debugging information, perf maps.
//!
//! [`FileReader`] asks it; what it answers is checked as anything else that comes from outside. Where it
//! does not answer in time, or dies, it is replaced, and this version of the file is not read any more. Paths in folders of
//! others are opened by one more process, by way of [`Opener`], which reads nothing, and memory of processes
//! is read by another, by way of [`ProcessReader`]. What runs in these processes is in [`crate::serve`].

pub(crate) mod client;
mod denylist;
mod link;
mod opener;
mod processes;
mod protocol;

use std::time::Duration;

pub(crate) use client::NumberedFile;
pub use client::{FileReader, NotNow};
pub(crate) use denylist::FileVersion;
pub use link::ReaderHost;
pub use opener::{Opener, Wanted};
pub use processes::{InspectedProcess, ProcessMemory, ProcessReader};
pub(crate) use processes::{MAX_BYTES, ProcessRequest};
pub use protocol::SymbolName;
pub(crate) use protocol::{ReaderRequest, SentFunction, WantedNames};

/// The first argument by which our executable is asked to be one of these processes.
pub(crate) const ARGUMENT: &str = "__reader";
/// Another by which it is told that files are read whoever serves them.
pub(crate) const ALL_ARE_TRUSTED: &str = "all";

/// The task of a reader process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderKind {
    /// Finds functions, and rules to unwind: whoever asks waits.
    Functions,
    /// Names functions, which may take seconds.
    Names,
    /// Opens files.
    Opener,
    /// Reads memory of processes.
    Processes,
}

/// Limits on the time of an answer.
#[derive(Clone, Copy, Debug)]
struct Timeout {
    /// Of the processor.
    busy: Duration,
    /// By the clock, while it waits for something else than the processor.
    waiting: Duration,
    /// By the clock.
    elapsed: Duration,
}

/// Of an answer that tracing waits for: a ring holds the calls of half a second, and reports are due.
const QUICK: Timeout = Timeout {
    busy: Duration::from_millis(200),
    waiting: Duration::from_millis(300),
    elapsed: Duration::from_millis(700),
};
/// Of names, which nothing waits for: debugging information of a gigabyte takes seconds.
const SLOW: Timeout = Timeout {
    busy: Duration::from_secs(10),
    waiting: Duration::from_secs(30),
    elapsed: Duration::from_secs(30),
};

/// Limits on the time and memory of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReaderLimits {
    timeout: Timeout,
    /// Bytes of memory, without the files that are mapped.
    pub(crate) data_bytes: u64,
}

impl ReaderKind {
    pub(crate) const ALL: [Self; 4] = [Self::Functions, Self::Names, Self::Opener, Self::Processes];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Functions => "functions",
            Self::Names => "names",
            Self::Opener => "opener",
            Self::Processes => "processes",
        }
    }

    pub(crate) fn limits(self) -> ReaderLimits {
        let (timeout, mib) = match self {
            Self::Functions => (QUICK, 64),
            Self::Names => (SLOW, 96),
            Self::Opener | Self::Processes => (QUICK, 4),
        };
        ReaderLimits {
            timeout,
            data_bytes: mib << 20,
        }
    }
}
