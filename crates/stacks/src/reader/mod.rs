//! Whatever a traced program can shape is read by a process of its own, which can do nothing else and
//! may die or hang: ELF files, their unwind tables, symbols and debugging information, perf maps.
//!
//! `Reader` asks it; what it answers is checked as anything else that comes from outside. Where it
//! does not answer in time, or dies, it is replaced, and the file is not read any more. `serve` is
//! what runs in that process; tests and fuzz targets run it on a thread. Paths in folders of others
//! are opened by one more process, the `Opener`, which reads nothing, and memory of processes is read by
//! another, the `ProcessReader`.

mod blame;
mod client;
mod elf_file;
mod link;
mod opener;
mod patience;
mod processes;
mod protocol;
mod serve;
mod symbols;

use std::process::ExitCode;
use std::time::Duration;

use gpuprobe_os::channel::Channel;
use gpuprobe_os::{confined, kernel, mounts, privileges};

pub(crate) use blame::FileVersion;
pub(crate) use client::NumberedFile;
#[doc(hidden)]
pub use client::try_answer;
pub use client::{FileReader, NotNow};
pub use elf_file::ElfFile;
pub use link::ReaderHost;
pub use opener::{Opener, Wanted};
pub use processes::{InspectedProcess, ProcessMemory, ProcessReader};
pub use protocol::{FunctionRules, SymbolName, UnwindRow};
pub(crate) use protocol::{MAX_ROWS, ReaderRequest, WantedNames};
#[doc(hidden)]
pub use serve::try_all;

/// The first argument by which our executable is asked to be one of these processes.
const ARGUMENT: &str = "__reader";
/// Another by which it is told that files are read whoever serves them.
const ALL_ARE_TRUSTED: &str = "all";

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

/// Limits on the time and memory of an answer.
#[derive(Clone, Copy, Debug)]
struct ReaderLimits {
    /// Of the processor.
    busy: Duration,
    /// By the clock: what it waits for then is no doing of the file's.
    elapsed: Duration,
    /// Bytes of memory, without the files that are mapped.
    data_bytes: u64,
}

impl ReaderKind {
    const ALL: [Self; 4] = [Self::Functions, Self::Names, Self::Opener, Self::Processes];

    fn name(self) -> &'static str {
        match self {
            Self::Functions => "functions",
            Self::Names => "names",
            Self::Opener => "opener",
            Self::Processes => "processes",
        }
    }

    /// How long the files of a user may be read in all before that is limited to a part of the time.
    fn at_once(self) -> Duration {
        match self {
            Self::Names => Duration::from_secs(60),
            Self::Functions | Self::Opener | Self::Processes => Duration::from_secs(2),
        }
    }

    fn limits(self) -> ReaderLimits {
        let (busy, elapsed, mib) = match self {
            Self::Functions => (Duration::from_millis(200), Duration::from_millis(700), 64),
            Self::Names => (Duration::from_secs(10), Duration::from_secs(30), 96),
            Self::Opener => (Duration::from_secs(1), Duration::from_secs(1), 16),
            // Each request has a shorter time by the clock.
            Self::Processes => (Duration::from_millis(500), Duration::from_millis(500), 4),
        };
        ReaderLimits {
            busy,
            elapsed,
            data_bytes: mib << 20,
        }
    }
}

/// Is one of these processes, if our executable was started as one.
pub fn serve_if_asked() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != ARGUMENT {
        return None;
    }
    let name = words.next()?;
    let kind = ReaderKind::ALL
        .into_iter()
        .find(|kind| kind.name() == name)?;
    if words.next().is_some_and(|word| word == ALL_ARE_TRUSTED) {
        mounts::trust_all();
    }
    let served = link::inherited().and_then(|channel| be(kind, &channel));
    Some(served.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

fn be(kind: ReaderKind, channel: &Channel) -> anyhow::Result<()> {
    match kind {
        ReaderKind::Opener => {
            confined::end_with_parent()?;
            privileges::keep_only(&[privileges::LOOK, privileges::AS_OTHERS])?;
        }
        ReaderKind::Processes => confined::confine_inspector(kind.limits().data_bytes)?,
        ReaderKind::Functions | ReaderKind::Names => {
            // How probes are executed depends on it, and it cannot be read later.
            kernel::release();
            confined::confine(kind.limits().data_bytes)?;
        }
    }
    link::serve_on(kind, channel);
    Ok(())
}
