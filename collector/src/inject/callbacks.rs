//! Functions that CUPTI calls, in any thread of the program and at any time. All of them return
//! quickly.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::worker::Message;
use super::{active, end, guarded, process};

/// CUPTI requests a buffer. Without one it drops records, and counts them.
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

/// Registers the exit handler again: handlers run in reverse order, and this one must run before
/// those that the driver registered while it initialised, after which CUPTI has no data.
fn register_exit_again() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        process::at_exit(end::early);
    }
}

/// CUPTI returns a buffer, filled or not.
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
            let _ = shared.queue.send(Message::Filled(buffer));
        }
    });
}

/// Clock for CUPTI, where it supports a custom one: `CLOCK_MONOTONIC`, as in the rest of gpuprobe.
pub(super) extern "C" fn timestamp() -> u64 {
    // Does not panic, and with this clock does not set errno.
    process::monotonic_ns()
}

/// `CUPTI_CB_DOMAIN_RESOURCE` and its callback before a context is destroyed.
pub(super) const DOMAIN_RESOURCE: c_int = 3;
pub(super) const CONTEXT_DESTROY_STARTING: u32 = 2;

/// A context is about to be destroyed (`cuCtxDestroy`, `cudaDeviceReset`,
/// `cuDevicePrimaryCtxReset`), and with it the records that CUPTI has not fetched from the device.
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
