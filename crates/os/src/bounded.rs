//! Reading files that may be made to take all memory.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};
use object::read::{ReadCache, ReadCacheOps, ReadRef};

/// Bytes that are read of one file, tables and names together: libtorch's symbols are a fifth of it.
/// The headers of a file can promise any size, which costs a file with holes nothing.
const LIMIT: u64 = 512 << 20;

/// A file of which a limited number of bytes can be read, each of which stays in memory until this
/// goes.
#[derive(Debug)]
pub struct BoundedFile<'file> {
    cache: ReadCache<Cursor<'file>>,
    left: Cell<u64>,
}

impl<'file> BoundedFile<'file> {
    /// Reads from `file`.
    pub fn new(file: &'file File) -> Self {
        Self {
            cache: ReadCache::new(Cursor { file, at: 0 }),
            left: Cell::new(LIMIT),
        }
    }

    fn take(&self, bytes: u64) -> Result<(), ()> {
        self.left.set(self.left.get().checked_sub(bytes).ok_or(())?);
        Ok(())
    }
}

impl<'data> ReadRef<'data> for &'data BoundedFile<'_> {
    fn len(self) -> Result<u64, ()> {
        ReadRef::len(&self.cache)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        self.take(size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        let bytes = self.cache.read_bytes_at_until(range, delimiter)?;
        self.take(bytes.len() as u64)?;
        Ok(bytes)
    }
}

/// A place in a file: the file's own is shared by all threads that have it open.
#[derive(Debug)]
struct Cursor<'file> {
    file: &'file File,
    at: u64,
}

impl ReadCacheOps for Cursor<'_> {
    fn len(&mut self) -> Result<u64, ()> {
        self.file
            .metadata()
            .map(|status| status.len())
            .map_err(drop)
    }

    fn seek(&mut self, at: u64) -> Result<u64, ()> {
        self.at = at;
        Ok(at)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ()> {
        let read = self.file.read_at(bytes, self.at).map_err(drop)?;
        self.at += read as u64;
        Ok(read)
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), ()> {
        self.file.read_exact_at(bytes, self.at).map_err(drop)
    }
}

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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_is_read() {
        let flags = MFdFlags::MFD_CLOEXEC;
        let file = File::from(memfd_create(c"holes", flags).unwrap());
        file.set_len(LIMIT * 1000).unwrap();
        let bounded = BoundedFile::new(&file);
        assert!((&bounded).read_bytes_at(4096, LIMIT + 1).is_err());
        assert_eq!((&bounded).read_bytes_at(LIMIT, 4096).unwrap(), [0; 4096]);
        assert_eq!((&bounded).read_bytes_at_until(9..99, 0).unwrap(), [0; 0]);
        assert!((&bounded).read_bytes_at(0, LIMIT - 4095).is_err());
        assert!((&bounded).read_bytes_at(LIMIT * 1000, 1).is_err());
    }
}
