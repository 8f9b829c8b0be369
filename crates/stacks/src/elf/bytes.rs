//! Reading a file that nobody vouches for.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes that can be read at any offset.
pub trait ReadAt {
    /// `size` bytes from `offset`; none if there are not that many. Takes no memory before it is
    /// known that there are.
    fn read_at(&self, offset: u64, size: usize) -> Option<Vec<u8>>;
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, size: usize) -> Option<Vec<u8>> {
        let end = offset.checked_add(u64::try_from(size).ok()?)?;
        (end <= self.metadata().ok()?.len()).then_some(())?;
        let mut bytes = vec![0; size];
        self.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, offset: u64, size: usize) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        self.get(start..start.checked_add(size)?)
            .map(<[u8]>::to_vec)
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    bytes.try_into().ok().map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}
