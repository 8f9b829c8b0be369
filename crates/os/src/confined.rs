//! Confinement of a helper process.

use anyhow::{Context, Result};
use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, Scope};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};

use crate::privileges::{self, Capability};

/// Limit of the address space, bytes: files are mapped, the largest of which have several
/// gigabytes.
const ADDRESSES: u64 = 64 << 30;
/// Limit of processor time, seconds: whoever asks kills a helper that hangs, unless stopped itself.
const PROCESSOR_SECONDS: u64 = 60;

/// Confines this process, which has one thread yet and ends with its parent, to so much memory of its own and to the
/// capabilities `kept`. Without any it opens no files either.
///
/// # Errors
/// Returns the kernel's error.
pub fn confine(data_bytes: u64, kept: &[&[Capability]]) -> Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot end with the parent")?;
    // A core dump could contain other users' data.
    prctl::set_dumpable(false).context("cannot forbid core dumps")?;
    ignore_signals()?;
    for (resource, limit) in [
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_CPU, PROCESSOR_SECONDS),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_DATA, data_bytes),
        (Resource::RLIMIT_AS, ADDRESSES),
    ] {
        let limited = setrlimit(resource, limit, limit);
        limited.with_context(|| format!("cannot limit {resource:?}"))?;
    }
    privileges::keep_only(kept)?;
    if !kept.is_empty() {
        return Ok(());
    }
    open_nothing().context("cannot forbid opening files")
}

/// Forbids opening files, TCP, and signals to other processes, as far as the kernel can.
fn open_nothing() -> Result<()> {
    let abi = ABI::V6;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?;
    let status = rules.create()?.restrict_self()?;
    tracing::debug!("{status:?}");
    Ok(())
}

/// Ignores the signals that ask a program to end, to stop or to read its settings again: the parent, which gets them
/// too where a terminal or a service manager sends them to all, decides when this process ends.
///
/// # Errors
/// Returns the kernel's error; none is expected.
pub fn ignore_signals() -> Result<()> {
    for ignored in [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGHUP,
        Signal::SIGTERM,
        Signal::SIGTSTP,
    ] {
        // SAFETY: no handler is installed.
        #[allow(unsafe_code)]
        unsafe { signal(ignored, SigHandler::SigIgn) }.context("cannot ignore signals")?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Rules of Landlock are of a thread, and of those that it starts.
    #[test]
    fn a_thread_that_may_open_nothing_reads_what_is_open() {
        let confined = || {
            let mut open = File::open("/proc/self/exe").unwrap();
            privileges::keep_only(&[]).unwrap();
            open_nothing().unwrap();
            assert!(File::open("/proc/self/exe").is_err());
            assert!(TcpListener::bind("127.0.0.1:0").is_err());
            thread::spawn(|| assert!(File::open("/").is_err()))
                .join()
                .unwrap();
            open.read_exact(&mut [0; 4])
        };
        thread::spawn(confined).join().unwrap().unwrap();
    }
}
