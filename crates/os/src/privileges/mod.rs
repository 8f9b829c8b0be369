//! Capabilities: the sets needed by each thread, and the users involved.
//!
//! Capabilities belong to threads. After attaching, each thread permanently drops those that it
//! will not need, and the possibility to gain any by executing a program (`NO_NEW_PRIVS`). The
//! traced command is started before that and is not affected.

mod invoker;
mod user;

use std::io::{self, ErrorKind};

use anyhow::{Context, Error, Result, anyhow};
pub use caps::Capability;
use caps::{CapSet, CapsHashSet};
use nix::sys::prctl;

pub use invoker::invoker;
pub use user::User;

/// For attaching to libraries that are loaded later and for reading maps: without these, `bpf(2)`
/// is refused where `kernel.unprivileged_bpf_disabled` is set.
pub const BPF: &[Capability] = &[Capability::CAP_BPF, Capability::CAP_PERFMON];

/// Capabilities needed for perf-event uprobes.
pub const PERF_EVENTS: &[Capability] = &[Capability::CAP_SYS_ADMIN];

/// For reading other users' processes and the files that they have mapped, deleted or not.
pub const LOOK: &[Capability] = &[
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_CHECKPOINT_RESTORE,
];

/// For resuming stopped processes of other users, and for forwarding signals to the command.
pub const SIGNAL: &[Capability] = &[Capability::CAP_KILL];

/// For reading files as the users of the traced processes.
pub const AS_OTHERS: &[Capability] = &[Capability::CAP_SETUID, Capability::CAP_SETGID];

/// For creating and removing files in other users' directories.
const WRITE_ANYWHERE: &[Capability] = &[Capability::CAP_DAC_OVERRIDE, Capability::CAP_FOWNER];

/// Whether this thread has a capability.
pub fn has(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false)
}

/// Those of `wanted` that this thread does not have.
pub fn missing(wanted: &[Capability]) -> impl Iterator<Item = &Capability> {
    wanted.iter().filter(|capability| !has(**capability))
}

/// Adds the required capability to an error that is a refusal to read another user's process.
pub fn name_missing(error: Error) -> Error {
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    let is_refusal = causes.any(|cause| cause.kind() == ErrorKind::PermissionDenied);
    if !is_refusal || has(Capability::CAP_SYS_PTRACE) {
        return error;
    }
    anyhow!("{error:#}; processes of other users take CAP_SYS_PTRACE, or root (sudo)")
}

/// Drops all capabilities of this thread except `wanted`, as far as the thread has these.
///
/// # Errors
/// Returns the kernel's error; none is expected.
pub fn keep_only(wanted: &[&[Capability]]) -> Result<()> {
    let permitted = caps::read(None, CapSet::Permitted).context("cannot read capabilities")?;
    let wanted = wanted.iter().copied().flatten().copied();
    let kept: CapsHashSet = wanted.filter(|one| permitted.contains(one)).collect();
    let why = "cannot drop capabilities";
    // A capability that is not permitted can be neither effective nor, from then on, ambient.
    caps::set(None, CapSet::Effective, &kept).context(why)?;
    caps::set(None, CapSet::Permitted, &kept).context(why)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new()).context(why)?;
    prctl::set_no_new_privs().context("cannot forbid new privileges")
}

/// [`keep_only`] for threads that continue on failure: prints a warning.
pub fn keep_only_here(wanted: &[&[Capability]]) {
    if let Err(error) = keep_only(wanted) {
        tracing::warn!("{error:#}");
    }
}
