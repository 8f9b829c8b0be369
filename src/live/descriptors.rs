//! File descriptors of the traced command: the ones that gpuprobe inherited, none of its own.
//!
//! Descriptors can be passed through to the command (`gpuprobe -- ./train 3>log`). Gpuprobe's own are
//! opened with `O_CLOEXEC`, but libraries that it loads may open some without.

use std::ffi::c_int;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::sync::OnceLock;

use nix::fcntl::OFlag;
use nix::libc;

/// The first descriptor after standard input, output and error, which the command always inherits.
const FIRST: RawFd = 3;

/// Allowance for descriptors that other threads open after the listing.
const MORE: RawFd = 256;

/// The inherited descriptors, ascending.
static INHERITED: OnceLock<Vec<RawFd>> = OnceLock::new();

/// Records the open descriptors. Must be called before any library is loaded that opens one.
pub(super) fn remember() {
    let inherited = list().map(|all| all.into_iter().filter(|&fd| is_inheritable(fd)).collect());
    match inherited {
        Ok(inherited) => {
            let _ = INHERITED.set(inherited);
        }
        Err(error) => tracing::debug!("cannot list open files: {error}"),
    }
}

fn list() -> io::Result<Vec<RawFd>> {
    let mut all: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&fd| fd >= FIRST)
        .collect();
    all.sort_unstable();
    Ok(all)
}

/// Whether the descriptor was inherited: close-on-exec is not set.
fn is_inheritable(fd: RawFd) -> bool {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| c_int::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & OFlag::O_CLOEXEC.bits() == 0)
}

/// The descriptors to close in a child at `exec`. Created before the fork.
#[derive(Clone, Debug)]
pub(super) struct PrivateFds {
    /// First and last of each range, inclusive.
    gaps: Vec<(RawFd, RawFd)>,
    /// The highest open descriptor, with an allowance.
    last: RawFd,
}

impl PrivateFds {
    pub(super) fn find() -> Self {
        // If the listing failed, nothing is closed: it could be an inherited descriptor.
        let inherited = INHERITED.get().map(Vec::as_slice);
        let highest = list().ok().and_then(|all| all.last().copied());
        Self {
            gaps: inherited.map(gaps).unwrap_or_default(),
            last: highest.unwrap_or(0).saturating_add(MORE),
        }
    }

    /// Sets close-on-exec. Makes system calls only, and does not allocate.
    pub(super) fn close_on_exec(&self) {
        for &(from, to) in &self.gaps {
            if !close_range_on_exec(from, to) {
                // Linux before 5.11, or a seccomp filter.
                (from..=to.min(self.last)).for_each(close_one_on_exec);
            }
        }
    }
}

/// The ranges between and after `kept`, which is ascending.
fn gaps(kept: &[RawFd]) -> Vec<(RawFd, RawFd)> {
    let mut from = FIRST;
    let mut gaps = Vec::new();
    for &fd in kept {
        if fd > from {
            gaps.push((from, fd - 1));
        }
        from = fd + 1;
    }
    gaps.push((from, RawFd::MAX));
    gaps
}

#[allow(unsafe_code)]
fn close_range_on_exec(from: RawFd, to: RawFd) -> bool {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: changes flags of this process's own descriptors, and closes none.
    unsafe { libc::syscall(libc::SYS_close_range, from, to, flags) == 0 }
}

#[allow(unsafe_code)]
fn close_one_on_exec(fd: RawFd) {
    // SAFETY: as above; an unused number only returns EBADF.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn gaps_are_the_ranges_not_inherited() {
        let max = RawFd::MAX;
        assert_eq!(gaps(&[]), [(3, max)]);
        assert_eq!(gaps(&[3]), [(4, max)]);
        assert_eq!(gaps(&[3, 4, 9]), [(5, 8), (10, max)]);
        assert_eq!(gaps(&[7]), [(3, 6), (8, max)]);
    }

    #[test]
    fn close_on_exec_is_set_by_both_calls() {
        use nix::fcntl::{FcntlArg, FdFlag, fcntl};
        let file = fs::File::open("/proc/self/exe").unwrap();
        let fd = file.as_raw_fd();
        let inherit = || fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        inherit();
        assert!(is_inheritable(fd) && list().unwrap().contains(&fd));
        close_one_on_exec(fd);
        assert!(!is_inheritable(fd));
        inherit();
        if close_range_on_exec(fd, fd) {
            assert!(!is_inheritable(fd));
        }
    }
}
