//! The process of the collector: its signals, clocks and memory, and its tracer.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr;

use gpuprobe_wire::{TEXT_MAX, TracerId};

const PAGE_BYTES: u64 = 4096;

pub(super) fn errno() -> i32 {
    // SAFETY: the calling thread's own errno.
    unsafe { *libc::__errno_location() }
}

pub(super) fn set_errno(errno: i32) {
    // SAFETY: the calling thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Effective user id, by which file access is checked.
pub(super) fn own_uid() -> u32 {
    // SAFETY: it takes no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Writes one line to standard error. If standard error is a closed pipe, the program must not be
/// killed by SIGPIPE for the collector's output.
pub(super) fn say(text: &str) {
    let line = format!("gpuprobe: {}\n", text.replace('\n', " "));
    let pipe = signals(Some(libc::SIGPIPE));
    with_blocked(&pipe, || {
        // SAFETY: pointer and length are those of the line.
        let written = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
        if written < 0 && errno() == libc::EPIPE {
            // SAFETY: a time of zeros is valid; consumes the SIGPIPE that the write has made pending.
            unsafe { libc::sigtimedwait(&pipe, ptr::null_mut(), &std::mem::zeroed()) };
        }
    });
}

/// One signal, or all.
pub(super) fn signals(only: Option<c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the functions initialise the set.
    unsafe {
        match only {
            None => libc::sigfillset(set.as_mut_ptr()),
            Some(signal) => {
                libc::sigemptyset(set.as_mut_ptr());
                libc::sigaddset(set.as_mut_ptr(), signal)
            }
        };
        set.assume_init()
    }
}

/// Runs `body` with `signals` blocked for this thread and the threads that it starts.
pub(super) fn with_blocked<T>(signals: &libc::sigset_t, body: impl FnOnce() -> T) -> T {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are valid; `before` is written if the call succeeds, which it does for a
    // valid `how`.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, signals, before.as_mut_ptr()) };
    let result = body();
    // SAFETY: `before` was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    result
}

/// The current `CLOCK_MONOTONIC` time, nanoseconds.
pub(super) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Registers `child` to be called in every child that the process forks.
pub(super) fn at_fork(child: unsafe extern "C" fn()) {
    // SAFETY: the handler is a function of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// Registers `handler` to be called at exit, before the handlers registered earlier.
pub(super) fn at_exit(handler: extern "C" fn()) {
    // SAFETY: as above.
    unsafe { libc::atexit(handler) };
}

/// Whether `tracer` is still running; `None` if that cannot be determined from here.
pub(super) fn is_running(tracer: TracerId) -> Option<bool> {
    if fs::metadata("/proc/self/ns/pid").ok()?.ino() != tracer.namespace {
        return None;
    }
    // `/proc` may belong to another PID namespace, or hide the processes of other users.
    if fs::read_link("/proc/self").ok()?.to_str()? != std::process::id().to_string() {
        return None;
    }
    match fs::read_to_string(format!("/proc/{}/stat", tracer.pid)) {
        Ok(stat) => Some(start_ticks(&stat)? == tracer.start_ticks && !is_dead(&stat)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // With `hidepid`, every other process appears to be missing.
            fs::metadata("/proc/1/stat").is_ok().then_some(false)
        }
        Err(_) => None,
    }
}

/// Fields after the name in parentheses; the name may contain anything.
fn after_name(stat: &str) -> impl Iterator<Item = &str> {
    let rest = stat.rfind(')').map_or("", |end| &stat[end + 1..]);
    rest.split_ascii_whitespace()
}

/// Field 22 of `/proc/PID/stat`; the first field after the name is field 3.
fn start_ticks(stat: &str) -> Option<u64> {
    after_name(stat).nth(22 - 3)?.parse().ok()
}

fn is_dead(stat: &str) -> bool {
    matches!(after_name(stat).next(), Some("Z" | "X"))
}

/// Reads memory of this process so that an unmapped address is an error instead of a fault. The
/// file is opened each time: a program may close all files and reuse their descriptors. A seccomp
/// filter may kill the process at `process_vm_readv`.
fn read(address: u64, into: &mut [u8]) -> usize {
    let memory = fs::File::open("/proc/self/mem");
    memory
        .and_then(|memory| memory.read_at(into, address))
        .unwrap_or(0)
}

/// Reads a text as [`crate::texts::Texts::name`] requires: one byte more than the maximum, so
/// that a longer text is detected.
pub(super) fn read_text(address: u64, text: &mut Vec<u8>) -> bool {
    const FIRST_BYTES: u64 = 256;
    text.clear();
    let mut chunk = [0; PAGE_BYTES as usize];
    while text.len() <= TEXT_MAX {
        let Some(at) = address.checked_add(text.len() as u64) else {
            return false;
        };
        let to_page_end = PAGE_BYTES - at % PAGE_BYTES;
        // Most names are short.
        let wanted = if text.is_empty() {
            to_page_end.min(FIRST_BYTES)
        } else {
            to_page_end
        };
        let read = read(at, &mut chunk[..wanted as usize]);
        let read = &chunk[..read];
        if let Some(end) = read.iter().position(|&byte| byte == 0) {
            text.extend_from_slice(&read[..end]);
            return true;
        }
        if read.is_empty() {
            return false;
        }
        text.extend_from_slice(read);
    }
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn text(address: *const u8) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        read_text(address as u64, &mut text).then_some(text)
    }

    #[test]
    fn texts_are_read_up_to_their_end_or_the_limit() {
        let long = "k".repeat(3000);
        for expected in ["", "x", &long] {
            let own = format!("{expected}\0behind");
            assert_eq!(text(own.as_ptr()).unwrap(), expected.as_bytes());
        }
        let endless = vec![b'e'; 3 * TEXT_MAX];
        let cut = text(endless.as_ptr()).unwrap();
        assert!(cut.len() > TEXT_MAX && cut.len() <= endless.len());
        assert_eq!(text(16 as *const u8), None);
        assert_eq!(text(usize::MAX as *const u8), None);
    }

    #[test]
    fn a_text_that_ends_in_unmapped_memory_is_refused() {
        // SAFETY: maps two new pages and unmaps the second.
        let end = unsafe {
            let two = libc::mmap(
                ptr::null_mut(),
                2 * PAGE_BYTES as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            let second = two.cast::<u8>().add(PAGE_BYTES as usize);
            libc::munmap(second.cast(), PAGE_BYTES as usize);
            ptr::write_bytes(two.cast::<u8>(), b'a', PAGE_BYTES as usize);
            *second.sub(40) = 0;
            second
        };
        assert_eq!(text(end.wrapping_sub(8)), None);
        assert_eq!(text(end.wrapping_sub(50)).unwrap(), b"aaaaaaaaaa");
    }

    #[test]
    fn a_tracer_is_identified_by_its_start_time() {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let me = TracerId {
            pid: std::process::id(),
            start_ticks: start_ticks(&stat).unwrap(),
            namespace: fs::metadata("/proc/self/ns/pid").unwrap().ino(),
        };
        assert_eq!(is_running(me), Some(true));
        let other = TracerId {
            start_ticks: me.start_ticks + 1,
            ..me
        };
        assert_eq!(is_running(other), Some(false));
        // Process ids are below 2^22.
        let gone = TracerId {
            pid: u32::MAX / 2,
            ..me
        };
        assert_eq!(is_running(gone), Some(false));
        let elsewhere = TracerId { namespace: 1, ..me };
        assert_eq!(is_running(elsewhere), None);
    }

    #[test]
    fn names_with_parentheses_are_parsed() {
        let stat = "7 (a) Z (b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(start_ticks(stat), Some(4711));
        assert!(!is_dead(stat));
        assert!(is_dead("7 (a) Z 1"));
        assert_eq!(start_ticks("7 (a"), None);
    }
}
