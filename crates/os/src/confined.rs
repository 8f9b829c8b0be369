//! Confinement of a process that parses untrusted files.

mod filter;

use filter::filter;
use std::ffi::c_long;
use std::io;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use rustix::process::{Pid, Rlimit, getrlimit, prlimit};

use crate::privileges;

/// Limit of the address space, bytes: files are mapped, the largest of which have several
/// gigabytes.
const ADDRESSES: u64 = 64 << 30;
/// Limit of open files.
const FILES: u64 = 4096;

/// Allowed system calls: memory, I/O on open files, and exit. Calls that take a path
/// find no file.
const ALLOWED: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Further calls for a process with connections.
const FOR_CONNECTIONS: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
];

/// Further calls for a process that inspects others.
const FOR_INSPECTION: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_process_vm_readv,
];

/// Connections of a confined process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConfinedRole {
    /// None: it reads files.
    Reader,
    /// None: it opens files in `/proc` and reads memory, with the capabilities of [`privileges::LOOK`].
    Inspector,
    /// It answers those to a socket that it was given, and can make no socket.
    Server,
}

impl ConfinedRole {
    /// Calls that are allowed besides [`ALLOWED`].
    fn calls(self) -> &'static [c_long] {
        match self {
            Self::Reader => &[],
            Self::Inspector => FOR_INSPECTION,
            Self::Server => FOR_CONNECTIONS,
        }
    }
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// System calls that stat a file by descriptor or by path, with the index of their flags argument.
const ABOUT_FILES: [(c_long, u32); 2] = [(libc::SYS_statx, 2), (libc::SYS_newfstatat, 3)];
/// System calls that take a path: there is no such file.
const ABOUT_PATHS: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_readlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
];

/// Offsets of the system call number, the architecture and the arguments in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

/// Makes the kernel kill this process when its parent exits, and forbids core dumps.
///
/// # Errors
/// Returns the kernel's error; none is expected.
pub fn end_with_parent() -> Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot end with the parent")?;
    // A core dump could contain other users' data.
    prctl::set_dumpable(false).context("cannot forbid core dumps")?;
    let none = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    none.context("cannot forbid core dumps")
}

/// Drops all capabilities, limits the process's own memory to `data_bytes`, and restricts system
/// calls to reading. No file can be opened.
///
/// # Errors
/// Returns the kernel's error.
pub fn confine(data_bytes: u64) -> Result<()> {
    confine_to(data_bytes, ConfinedRole::Reader)
}

/// [`confine`] for a process that inspects others: it keeps the capabilities for that, and opens files.
///
/// # Errors
/// Returns the kernel's error.
pub fn confine_inspector(data_bytes: u64) -> Result<()> {
    confine_to(data_bytes, ConfinedRole::Inspector)
}

/// [`confine`] for a process that answers connections to a listening socket that it has received. Its standard error
/// may be a file.
///
/// # Errors
/// Returns the kernel's error.
pub fn confine_server(data_bytes: u64) -> Result<()> {
    confine_to(data_bytes, ConfinedRole::Server)
}

/// Ignores the signals that ask a program to end, to stop or to read its settings again: the parent, which gets them
/// too where a terminal or a service manager sends them to all, decides when this process ends.
///
/// # Errors
/// Returns the kernel's error; none is expected.
pub fn ignore_signals() -> Result<()> {
    for ignored in [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGHUP,
        Signal::SIGTERM,
        Signal::SIGTSTP,
    ] {
        let action = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
        // SAFETY: no handler is installed.
        #[allow(unsafe_code)]
        unsafe { sigaction(ignored, &action) }.context("cannot ignore signals")?;
    }
    Ok(())
}

/// Lets the child process `pid` take this much of the processor's time since its start, rounded up to the next
/// second. Then the kernel ends it (`SIGXCPU`), also if this process is stopped or hangs.
///
/// # Errors
/// Returns the system's error, for example if the process has ended.
pub fn limit_processor_time(pid: u32, time: Duration) -> io::Result<()> {
    let resource = rustix::process::Resource::Cpu;
    // That of the child, which has inherited it.
    let maximum = getrlimit(resource).maximum;
    let seconds = time.as_secs() + 1;
    let current = Some(maximum.map_or(seconds, |most| seconds.min(most)));
    prlimit(Some(child(pid)?), resource, Rlimit { current, maximum })?;
    Ok(())
}

fn child(pid: u32) -> io::Result<Pid> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    raw.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn confine_to(data_bytes: u64, role: ConfinedRole) -> Result<()> {
    end_with_parent()?;
    ignore_signals()?;
    for (resource, limit) in [
        (Resource::RLIMIT_DATA, data_bytes),
        (Resource::RLIMIT_AS, ADDRESSES),
    ] {
        setrlimit(resource, limit, limit).with_context(|| format!("cannot limit {resource:?}"))?;
    }
    // What others say on standard error may go to a file.
    if matches!(role, ConfinedRole::Reader | ConfinedRole::Inspector) {
        setrlimit(Resource::RLIMIT_FSIZE, 0, 0).context("cannot forbid writing to files")?;
    }
    let (_, hard) = nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE)?;
    let files = hard.min(FILES);
    setrlimit(Resource::RLIMIT_NOFILE, files, files).context("cannot limit open files")?;
    let kept: &[&[_]] = match role {
        ConfinedRole::Inspector => &[privileges::LOOK],
        ConfinedRole::Reader | ConfinedRole::Server => &[],
    };
    privileges::keep_only(kept)?;
    filter(role).context("cannot restrict system calls")
}
