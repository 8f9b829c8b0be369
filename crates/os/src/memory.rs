//! The memory of another process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The memory of a process, as long as it runs the program that it ran when this was opened.
#[derive(Debug)]
pub struct ProcessMemory(File);

impl ProcessMemory {
    /// The memory of process `pid`.
    ///
    /// # Errors
    /// The process has ended, or may not be looked at.
    pub fn of(pid: u32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/mem")).map(Self)
    }

    /// The beginning of `buffer`, with what is at `address`: less than all of it where the mapping
    /// ends; none if nothing is mapped there, or the process has ended. Waits for nobody if that is
    /// no file's memory.
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
    fn what_is_mapped_can_be_read() {
        let memory = ProcessMemory::of(std::process::id()).unwrap();
        let text = *b"here";
        let address = text.as_ptr().addr() as u64;
        let mut buffer = [0; 4];
        assert_eq!(memory.read(address, &mut buffer), Some(&b"here"[..]));
        assert_eq!(memory.read(8, &mut buffer), None);
        assert!(ProcessMemory::of(u32::MAX).is_err());
    }
}
