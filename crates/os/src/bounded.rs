//! In-memory files.

use std::fs::File;
use std::io::{self, Write};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// Creates an in-memory file (memfd) with `bytes`.
///
/// # Errors
/// Returns the system's error if memory or file descriptors are exhausted.
pub fn file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"bytes", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}
