//! Confinement of a process that parses untrusted files.

mod filter;

use filter::filter;
use std::ffi::{CStr, c_int, c_long, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::libc::{self, siginfo_t};
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

/// Allowed system calls: memory, I/O on open files, and exit. Calls that take a path are handled in
/// [`on_path`].
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

/// System calls that read a symbolic link: they fail with EINVAL, as for a regular file.
const ABOUT_LINKS: &[c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    libc::SYS_readlinkat,
];
/// System calls that stat a file by descriptor or by path, with the index of their flags argument.
const ABOUT_FILES: [(c_long, u32); 2] = [(libc::SYS_statx, 2), (libc::SYS_newfstatat, 3)];
/// System calls that stat a file by path only, their first argument: those of glibc before 2.33.
const ABOUT_PATHS: &[c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
];

/// Offsets of the system call number, the architecture and the arguments in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

/// Descriptor that is opened for any path outside `/proc/self/fd`; -1 for none.
static SUPPLEMENT: AtomicI32 = AtomicI32::new(-1);

/// Makes every path outside `/proc/self/fd` open `file`, until the next call: for a library that opens
/// the supplementary file itself.
pub fn set_path_override(file: Option<&File>) {
    SUPPLEMENT.store(file.map_or(-1, AsRawFd::as_raw_fd), Ordering::Relaxed);
}

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
/// calls to reading. Only files that are already open can be opened, as `/proc/self/fd/N`.
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
    let flags = SaFlags::SA_SIGINFO | SaFlags::SA_NODEFER;
    let action = SigAction::new(SigHandler::SigAction(on_path), flags, SigSet::empty());
    // SAFETY: `on_path` is async-signal-safe.
    #[allow(unsafe_code)]
    unsafe { sigaction(Signal::SIGSYS, &action) }.context("cannot see to files being opened")?;
    filter(role).context("cannot restrict system calls")
}

/// Handles system calls that take a path: `/proc/self/fd/N` is descriptor N, duplicated without a further
/// permission check; any other path is [`SUPPLEMENT`], or fails with ENOENT if there is none.
extern "C" fn on_path(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context of the interrupted thread to SA_SIGINFO handlers.
    #[allow(unsafe_code)]
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let (call, arguments) = called(registers);
    // SAFETY: it is the path that this process has passed.
    #[allow(unsafe_code)]
    let path = unsafe {
        let first = ABOUT_PATHS.contains(&call);
        CStr::from_ptr(arguments[usize::from(!first)] as *const _)
    };
    let result = file_at(path.to_bytes()).map_or(-1, |number| {
        let empty = c"".as_ptr();
        // SAFETY: makes another number of an open file, or asks about one, with what was passed.
        #[allow(unsafe_code)]
        unsafe {
            let [_, _, second, third, fourth] = arguments;
            let by_number = c_long::from(libc::AT_EMPTY_PATH);
            match call {
                _ if ABOUT_PATHS.contains(&call) => {
                    libc::syscall(libc::SYS_fstat, number, arguments[1])
                }
                libc::SYS_statx => libc::syscall(call, number, empty, by_number, third, fourth),
                libc::SYS_newfstatat => libc::syscall(call, number, empty, second, by_number),
                _ => libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3).into(),
            }
        }
    });
    let result = if result < 0 {
        i64::from(-libc::ENOENT)
    } else {
        result
    };
    #[cfg(target_arch = "x86_64")]
    {
        registers.gregs[libc::REG_RAX as usize] = result;
    }
    #[cfg(target_arch = "aarch64")]
    {
        registers.regs[0] = result.cast_unsigned();
    }
}

/// The system call that was not made, and its arguments.
fn called(registers: &libc::mcontext_t) -> (c_long, [i64; 5]) {
    #[cfg(target_arch = "x86_64")]
    {
        use libc::{REG_R8, REG_R10, REG_RAX, REG_RDI, REG_RDX, REG_RSI};
        let of = |register: c_int| registers.gregs[register as usize];
        let arguments = [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8].map(of);
        (of(REG_RAX), arguments)
    }
    #[cfg(target_arch = "aarch64")]
    {
        let of = |register: usize| registers.regs[register].cast_signed();
        (of(8), [0, 1, 2, 3, 4].map(of))
    }
}

/// The number of the open file that is found at this path.
fn file_at(path: &[u8]) -> Option<c_int> {
    if let Some(number) = number_of(path) {
        return Some(number);
    }
    let leads_elsewhere = path
        .strip_prefix(OPEN_FILES)
        .is_none_or(|rest| rest.contains(&b'/'));
    let supplement = SUPPLEMENT.load(Ordering::Relaxed);
    (leads_elsewhere && supplement >= 0).then_some(supplement)
}

/// The files that are open.
const OPEN_FILES: &[u8] = b"/proc/self/fd/";

/// N of `/proc/self/fd/N`.
fn number_of(path: &[u8]) -> Option<c_int> {
    let digits = path.strip_prefix(OPEN_FILES)?;
    str::from_utf8(digits).ok()?.parse().ok()
}
