//! File descriptors of the traced command: the ones that gpuprobe inherited, none of its own.
//!
//! Descriptors can be passed through to the command (`gpuprobe -- ./train 3>log`). Gpuprobe's own are
//! opened with `O_CLOEXEC`, but libraries that it loads may open some without.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::libc;

/// The last inherited descriptor; standard error, if there is no other.
static LAST_INHERITED: AtomicI32 = AtomicI32::new(2);

/// Records the open descriptors. Must be called before any library is loaded that opens one.
pub(super) fn remember() {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // SAFETY: it reads flags, and fails for a number that is no descriptor.
    let is_inherited = |fd: &RawFd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } == 0;
    let last = numbers.filter(is_inherited).max();
    LAST_INHERITED.fetch_max(last.unwrap_or(0), Ordering::Relaxed);
}

/// Sets close-on-exec for those that were opened since. Makes a system call only, and does not allocate.
pub(super) fn close_private_on_exec() {
    let first = LAST_INHERITED.load(Ordering::Relaxed) + 1;
    // SAFETY: it changes flags of this process's own descriptors, and closes none.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            RawFd::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
}
