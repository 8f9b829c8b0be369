//! Functions that CUPTI calls, in any thread of the program and at any time. All of it is quick.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{active, end, guarded, process};

/// CUPTI wants a buffer. Without one it drops records, and counts them.
pub(super) extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let mut lent = None;
    guarded(|| {
        lent = active().and_then(|shared| Some((shared.pool.lend()?, shared.pool.buffer_bytes())));
        register_exit_again();
    });
    let (start, bytes) = match lent {
        Some((start, bytes)) => (start.as_ptr(), bytes),
        None => (ptr::null_mut(), 0),
    };
    // SAFETY: CUPTI passes three valid pointers. 0 records means as many as fit.
    unsafe {
        *buffer = start;
        *size = bytes;
        *most = 0;
    }
}

/// A handler that is registered later runs earlier: this one before those that the driver
/// registered while it initialised, after which there would be nothing to be had.
fn register_exit_again() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        process::at_exit(end::early);
    }
}

/// A buffer comes back, filled or not.
pub(super) extern "C" fn completed(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid_bytes: usize,
) {
    guarded(|| {
        if let Some(shared) = active()
            && let Some(buffer) = shared.pool.take_back(buffer, valid_bytes)
        {
            shared.queue.push(buffer);
        }
    });
}

/// CUPTI's clock, if it lets us choose: the one that all of gpuprobe uses.
pub(super) extern "C" fn timestamp() -> u64 {
    // Neither panics nor, with this clock, sets errno.
    process::monotonic_ns()
}

/// `CUPTI_CB_DOMAIN_RESOURCE` and its callback before a context ends.
pub(super) const DOMAIN_RESOURCE: c_int = 3;
pub(super) const CONTEXT_DESTROY_STARTING: u32 = 2;

/// A context is about to go (`cuCtxDestroy`, `cudaDeviceReset`, `cuDevicePrimaryCtxReset`), and
/// with it what CUPTI has not yet fetched from its device.
pub(super) extern "C" fn resource(
    _user: *mut c_void,
    domain: c_int,
    cbid: u32,
    _data: *const c_void,
) {
    if domain == DOMAIN_RESOURCE && cbid == CONTEXT_DESTROY_STARTING {
        guarded(end::flush);
    }
}
