//! Bounded reads of files, and in-memory files.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};

/// Reads `size` bytes of `file` at `offset`; `None` if the file is shorter. Memory is allocated
/// only after the check.
pub fn read_at(file: &File, offset: u64, size: u64) -> Option<Vec<u8>> {
    (offset.checked_add(size)? <= file.metadata().ok()?.len()).then_some(())?;
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

/// Creates an in-memory file (memfd) with `bytes`.
///
/// # Errors
/// Returns the system's error if memory or file descriptors are exhausted.
pub fn file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"bytes", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}
