//! Flush at process exit.
#![allow(unsafe_code)]

use std::time::Duration;

use super::worker::Message;
use super::{SHARED, active, guarded};

/// Maximum delay of an exiting process. Records that need longer are not worth more of the
/// program's time.
const EXIT_WAIT: Duration = Duration::from_secs(3);

/// Makes CUPTI return all buffers, complete or not.
pub(super) fn flush() {
    const FORCED: u32 = 1;
    if let Some(flush_all) = active().and_then(|shared| shared.flush_all.get()) {
        // SAFETY: CUPTI's function, in a library that is never closed.
        unsafe { flush_all(FORCED) };
    }
}

/// Exit handler that runs before the driver's.
pub(super) extern "C" fn early() {
    guarded(flush);
}

/// Exit handler that runs after all handlers registered since the driver was initialised.
pub(super) extern "C" fn last() {
    guarded(|| {
        if let Some(shared) = active() {
            flush();
            let _ = shared.queue.send(Message::End);
            if let Ok(ended) = shared.ended.lock() {
                let _ = ended.recv_timeout(EXIT_WAIT);
            }
            shared.switch_off();
        }
    });
}

/// Handler in the child of a fork: neither the parent's CUDA nor the collector's thread works
/// there. Locks of other threads may be held forever, so no lock is taken anymore.
pub(super) extern "C" fn forked() {
    if let Some(shared) = SHARED.get() {
        shared.switch_off();
    }
}
