//! The last records of a process.
#![allow(unsafe_code)]

use std::time::Duration;

use super::{SHARED, active, guarded};

/// How long a process that exits is held up at most. What takes so long is not worth more of the
/// program's time.
const EXIT_WAIT: Duration = Duration::from_secs(3);

/// Asks CUPTI for all it has, complete or not.
pub(super) fn flush() {
    const FORCED: u32 = 1;
    if let Some(flush_all) = active().and_then(|shared| shared.flush_all.get()) {
        // SAFETY: CUPTI's function, in a library that is never closed.
        unsafe { flush_all(FORCED) };
    }
}

/// The process exits, and the driver is still there.
pub(super) extern "C" fn early() {
    guarded(flush);
}

/// The process exits, and nothing that began after the driver is still there.
pub(super) extern "C" fn last() {
    guarded(|| {
        if let Some(shared) = active() {
            flush();
            shared.queue.end(EXIT_WAIT);
            shared.switch_off();
        }
    });
}

/// The child of a fork: its parent's CUDA does not work in it, and neither does our thread. Other
/// threads' locks may be held for ever, so that none is taken any more.
pub(super) extern "C" fn forked() {
    if let Some(shared) = SHARED.get() {
        shared.switch_off();
    }
}
