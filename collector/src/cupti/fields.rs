//! Numbers out of bytes. A field that is not there reads as nothing, never as a panic.

/// Bytes of one record, and whatever follows it in its buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        let end = offset.saturating_add(N);
        let bytes = self.0.get(offset..end);
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .unwrap_or([0; N])
    }

    pub(super) fn u8(&self, offset: usize) -> u8 {
        u8::from_le_bytes(self.array(offset))
    }

    pub(super) fn u16(&self, offset: usize) -> u16 {
        u16::from_le_bytes(self.array(offset))
    }

    pub(super) fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.array(offset))
    }

    pub(super) fn i32(&self, offset: usize) -> i32 {
        i32::from_le_bytes(self.array(offset))
    }

    pub(super) fn u64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.array(offset))
    }

    pub(super) fn bytes16(&self, offset: usize) -> [u8; 16] {
        self.array(offset)
    }

    /// Three numbers, one after the other.
    pub(super) fn triple(&self, offset: usize) -> [u32; 3] {
        [0, 4, 8].map(|step| self.u32(offset + step))
    }
}
