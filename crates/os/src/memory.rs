//! Memory of other processes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Memory of a process; valid until the process exits or executes another program.
#[derive(Debug)]
pub struct ProcessMemory(File);

impl ProcessMemory {
    /// Opens the memory of process `pid`.
    ///
    /// # Errors
    /// Returns the system's error if the process has exited or may not be read.
    pub fn of(pid: u32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/mem")).map(Self)
    }

    /// Reads memory at `address` into `buffer` and returns the bytes read: fewer than requested at
    /// the end of a mapping; `None` if nothing is mapped there or the process has exited. Does not
    /// block unless the memory is backed by a file.
    pub fn read<'a>(&self, address: u64, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let Self(file) = self;
        let count = file.read_at(buffer, address).ok()?;
        buffer.get(..count).filter(|bytes| !bytes.is_empty())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn mapped_memory_can_be_read() {
        let memory = ProcessMemory::of(std::process::id()).unwrap();
        let text = *b"here";
        let address = text.as_ptr().addr() as u64;
        let mut buffer = [0; 4];
        assert_eq!(memory.read(address, &mut buffer), Some(&b"here"[..]));
        assert_eq!(memory.read(8, &mut buffer), None);
        assert!(ProcessMemory::of(u32::MAX).is_err());
    }
}
