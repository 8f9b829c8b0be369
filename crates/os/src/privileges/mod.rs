//! Our rights: which are needed when, and whose they are.
//!
//! Capabilities belong to threads. Once everything is attached, each thread gives up for good what
//! it will not need, and the right to gain any by executing something (`NO_NEW_PRIVS`). The traced
//! command was started before, so that it is not held to that.

mod invoker;
mod user;
mod write;

use std::io::{self, ErrorKind};

use anyhow::{Context, Error, Result, anyhow};
pub use caps::Capability;
use caps::{CapSet, CapsHashSet};
use nix::sys::prctl;

pub use invoker::{Invoker, owner};
pub use user::User;
pub use write::WriteRights;

/// To attach to what is loaded later, and to read maps: `bpf(2)` is refused without where
/// `kernel.unprivileged_bpf_disabled` is set.
pub const BPF: &[Capability] = &[Capability::CAP_BPF, Capability::CAP_PERFMON];

/// Perf-event uprobes are refused without it.
pub const PERF_EVENTS: &[Capability] = &[Capability::CAP_SYS_ADMIN];

/// To look at processes of other users, and at the files that these have mapped, deleted or not.
pub const LOOK: &[Capability] = &[
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_CHECKPOINT_RESTORE,
];

/// To let processes of other users go on that were held, and to pass signals on to the command.
pub const SIGNAL: &[Capability] = &[Capability::CAP_KILL];

/// To read files as the users who own the processes.
pub const AS_OTHERS: &[Capability] = &[Capability::CAP_SETUID, Capability::CAP_SETGID];

/// To make and remove files in other users' folders.
pub const WRITE_ANYWHERE: &[Capability] = &[Capability::CAP_DAC_OVERRIDE, Capability::CAP_FOWNER];

/// Whether this thread has a right.
pub fn has(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false)
}

/// Says what it takes to look at processes of other users, if that is why we may not.
pub fn name_missing(error: Error) -> Error {
    let is_refusal = error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == ErrorKind::PermissionDenied)
    });
    if !is_refusal || has(Capability::CAP_SYS_PTRACE) {
        return error;
    }
    anyhow!("{error:#}; processes of other users take CAP_SYS_PTRACE, or root (sudo)")
}

/// Gives up all rights of this thread but these, as far as it has them.
///
/// # Errors
/// Returns the kernel's error; none is to be expected.
pub fn keep_only(wanted: &[&[Capability]]) -> Result<()> {
    let permitted = caps::read(None, CapSet::Permitted).context("cannot read capabilities")?;
    let kept: CapsHashSet = wanted
        .iter()
        .flat_map(|group| group.iter().copied())
        .filter(|capability| permitted.contains(capability))
        .collect();
    let why = "cannot give up capabilities";
    // What is not permitted can be neither effective nor, from then on, ambient.
    caps::set(None, CapSet::Effective, &kept).context(why)?;
    caps::set(None, CapSet::Permitted, &kept).context(why)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new()).context(why)?;
    prctl::set_no_new_privs().context("cannot forbid new privileges")
}

/// [`keep_only`], for threads whose work is worth more than that: the failure is said.
pub fn keep_only_here(wanted: &[&[Capability]]) {
    if let Err(error) = keep_only(wanted) {
        tracing::warn!("{error:#}");
    }
}
