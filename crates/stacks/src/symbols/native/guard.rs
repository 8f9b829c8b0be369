//! Reading files of others with a library that maps them and trusts them.
//!
//! Where a mapped file has been truncated, reading raises SIGBUS; where its contents make no
//! sense, the library may panic. Neither may end gpuprobe.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::ptr::NonNull;
use std::sync::{Once, OnceLock};

use nix::libc::{self, c_int, c_void, siginfo_t};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

thread_local! {
    static IS_READING: Cell<bool> = const { Cell::new(false) };
}

static INSTALLED: Once = Once::new();
static BEFORE: OnceLock<SigAction> = OnceLock::new();

/// The result of `read`; none if it has panicked. Pages of mapped files that are there no more
/// read as zeros meanwhile.
pub(super) fn reading<T>(read: impl FnOnce() -> T) -> Option<T> {
    INSTALLED.call_once(install);
    IS_READING.set(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    IS_READING.set(false);
    result.ok()
}

fn install() {
    let before = take_hook();
    set_hook(Box::new(move |panic| {
        // Expected here, and answered with a frame that has no name.
        if !IS_READING.get() {
            before(panic);
        }
    }));
    let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
    let action = SigAction::new(SigHandler::SigAction(on_bus_error), flags, SigSet::empty());
    // SAFETY: `on_bus_error` does only what signal handlers may do.
    #[allow(unsafe_code)]
    let before = unsafe { sigaction(Signal::SIGBUS, &action) };
    if let Ok(before) = before {
        let _ = BEFORE.set(before);
    }
}

/// Puts a page of zeros where the file has ended, if this thread is reading files of others.
/// Otherwise the old handler gets the signal, as the instruction faults once more.
extern "C" fn on_bus_error(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    const PAGE: usize = 4096;
    // SAFETY: the kernel passes a valid `siginfo_t` of a SIGBUS to SA_SIGINFO handlers.
    #[allow(unsafe_code)]
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr()) };
    let page = std::num::NonZeroUsize::new(address as usize & !(PAGE - 1));
    if IS_READING.get()
        && code == libc::BUS_ADRERR
        && let Some(page) = page
        && let Some(size) = std::num::NonZeroUsize::new(PAGE)
    {
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED;
        // SAFETY: BUS_ADRERR says that the page belongs to a mapping of a file and that nothing
        // is behind it, so nothing is lost; who reads it sees the zeros of the file's hole.
        #[allow(unsafe_code)]
        let mapped: nix::Result<NonNull<c_void>> =
            unsafe { mmap_anonymous(Some(page), size, ProtFlags::PROT_READ, flags) };
        if mapped.is_ok() {
            return;
        }
    }
    let before = BEFORE.get().copied();
    let before = before.unwrap_or(SigAction::new(
        SigHandler::SigDfl,
        SaFlags::empty(),
        SigSet::empty(),
    ));
    // SAFETY: it is the handler that was installed before this one, or none.
    #[allow(unsafe_code)]
    let _ = unsafe { sigaction(Signal::SIGBUS, &before) };
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::num::NonZeroUsize;

    #[test]
    fn a_file_that_is_truncated_reads_as_zeros() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let size = NonZeroUsize::new(8192).unwrap();
        // SAFETY: a new mapping, at an address that the kernel chooses.
        #[allow(unsafe_code)]
        let mapped = unsafe {
            let flags = MapFlags::MAP_PRIVATE;
            nix::sys::mman::mmap(None, size, ProtFlags::PROT_READ, flags, &file, 0).unwrap()
        };
        file.set_len(0).unwrap();
        // SAFETY: both addresses are in the mapping; the handler makes them readable.
        #[allow(unsafe_code)]
        let read = reading(|| unsafe {
            let bytes = mapped.cast::<u8>();
            (bytes.read_volatile(), bytes.add(5000).read_volatile())
        });
        assert_eq!(read, Some((0, 0)));
        assert_eq!(reading(|| -> u8 { panic!("no name") }), None);
    }
}
