//! What may block, or parses what a traced program can shape, is asked of a helper process. There are two, of one
//! program: the reader opens files and reads memory of processes, with the rights for that, and parses nothing; the
//! parser has no rights, and reads the files that it is sent.
//!
//! Each serves two lanes: requests that tracing waits for, and slow ones. One that hangs or dies is replaced, and
//! what it failed at is on a list and not asked for again. [`client`] starts helpers and asks them, [`main`] is the
//! program, [`protocol`] what they say.

mod client;
mod denylist;
mod files;
mod main;
mod processes;
mod protocol;
#[cfg(any(test, fuzzing))]
pub mod untrusted;

pub use client::HelperHost;
pub(crate) use denylist::FileVersion;
pub(crate) use files::NumberedFile;
pub use files::{FileReader, NotNow};
pub use main::serve_if_asked;
#[doc(hidden)]
pub use main::try_all;
pub use processes::{Opener, ProcessMemory, ProcessReader};
pub use protocol::{InspectedProcess, SymbolName, Wanted};
pub(crate) use protocol::{Request, WantedNames};

/// The first argument by which our executable is asked to be a helper.
const ARGUMENT: &str = "__helper";
/// Another by which it is told that files are read whoever serves them.
const ALL_ARE_TRUSTED: &str = "all";

/// Which helper it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Opens files, and reads processes.
    Reader,
    /// Parses files.
    Parser,
}

impl Role {
    const ALL: [Self; 2] = [Self::Reader, Self::Parser];

    fn name(self) -> &'static str {
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
    /// Nothing does: names, and paths in folders of others.
    Slow,
}
