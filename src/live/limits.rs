//! How many files we may have open. Without uprobes that are attached in bulk, each probe is one.

use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// More is never needed.
const ENOUGH: rlim_t = 1 << 20;

/// The soft and the hard limit that we were started with.
static ORIGINAL: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Raises the soft limit as far as is allowed.
pub(super) fn raise() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    let (soft, hard) = *ORIGINAL.get_or_init(|| (soft, hard));
    let wanted = hard.min(ENOUGH).max(soft);
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        tracing::debug!("no more than {soft} open files: {error}");
    }
}

/// Whether it takes so many open files to have one with this number that what is left is needed to
/// look at processes, and to write reports.
pub(super) fn is_crowded(descriptor: u64) -> bool {
    let limit = getrlimit(Resource::RLIMIT_NOFILE);
    limit.is_ok_and(|(soft, _)| descriptor >= soft / 4 * 3)
}

/// What the traced command is to be given back.
pub(super) fn original() -> Option<(rlim_t, rlim_t)> {
    ORIGINAL.get().copied()
}
