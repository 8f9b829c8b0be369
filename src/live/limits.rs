//! The limit of open files. Without multi-uprobes, each probe takes a descriptor.

use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Upper bound for the soft limit.
const ENOUGH: rlim_t = 1 << 20;

/// Soft and hard limit at the start.
static ORIGINAL: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Raises the soft limit to the hard limit, at most [`ENOUGH`].
pub(super) fn raise() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    let (soft, hard) = *ORIGINAL.get_or_init(|| (soft, hard));
    let wanted = hard.min(ENOUGH).max(soft);
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        tracing::debug!("cannot raise the limit of {soft} open files: {error}");
    }
}

/// The limits to restore in the traced command.
pub(super) fn original() -> Option<(rlim_t, rlim_t)> {
    ORIGINAL.get().copied()
}
