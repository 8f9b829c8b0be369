//! File descriptors of the traced command: the ones that gpuprobe inherited, none of its own.
//!
//! Descriptors can be passed through to the command (`gpuprobe -- ./train 3>log`). Gpuprobe's own are
//! opened with `O_CLOEXEC`, but libraries that it loads may open some without.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::RawFd;
use std::sync::OnceLock;

use nix::libc;

/// The first descriptor after standard input, output and error, which the command always inherits.
const FIRST: RawFd = 3;

/// The inherited descriptors.
static INHERITED: OnceLock<Vec<RawFd>> = OnceLock::new();

/// Records the open descriptors. Must be called before any library is loaded that opens one.
pub(super) fn remember() {
    let entries = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // SAFETY: it reads flags, and fails for a number that is no descriptor.
    let is_inherited = |fd: &RawFd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } == 0;
    let inherited = numbers.filter(|fd| *fd >= FIRST).filter(is_inherited);
    let _ = INHERITED.set(inherited.collect());
}

/// Sets close-on-exec for all but the inherited ones. Makes system calls only, and does not allocate.
pub(super) fn close_private_on_exec() {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: they change flags of this process's own descriptors, and close none.
    unsafe {
        libc::syscall(libc::SYS_close_range, FIRST, RawFd::MAX, flags);
        for fd in INHERITED.get().into_iter().flatten() {
            libc::fcntl(*fd, libc::F_SETFD, 0);
        }
    }
}
