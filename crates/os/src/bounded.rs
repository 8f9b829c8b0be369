//! Parts of files, and files of bytes.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};

/// `size` bytes of `file` from `offset`; none if there are not that many. Takes no memory before it
/// is known that there are.
pub fn read_at(file: &File, offset: u64, size: u64) -> Option<Vec<u8>> {
    (offset.checked_add(size)? <= file.metadata().ok()?.len()).then_some(())?;
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

/// `bytes` as a file of memory only.
///
/// # Errors
/// Returns the system's error if there is no memory for it.
pub fn file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"bytes", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}
