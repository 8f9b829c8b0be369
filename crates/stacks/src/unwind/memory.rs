//! The copied part of a stack.

/// Registers of a thread and a copy of the top of its stack.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// Instruction pointer of the frame.
    pub ip: u64,
    /// The stack pointer, the address of the first byte of `bytes`.
    pub sp: u64,
    /// The register for the frame pointer, which may have any value.
    pub bp: u64,
    /// Memory from the stack pointer upwards.
    pub bytes: &'a [u8],
    /// Stack slots whose return address a uretprobe replaced by its trampoline, with the original return
    /// addresses.
    pub replaced: &'a [(u64, u64)],
}

/// The copy, addressed as in the process.
pub(super) struct CopiedStack<'a>(pub(super) &'a StackCopy<'a>);

impl CopiedStack<'_> {
    /// A little-endian number of `size` bytes.
    pub(super) fn bytes(&self, address: u64, size: u8) -> Option<u64> {
        let start = usize::try_from(address.checked_sub(self.0.sp)?).ok()?;
        let end = start.checked_add(usize::from(size))?;
        let bytes = self.0.bytes.get(start..end)?;
        let mut word = [0; 8];
        word.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }

    pub(super) fn word(&self, address: u64) -> Option<u64> {
        self.bytes(address, 8)
    }

    /// The return address at `address`; the original one if a uretprobe replaced it.
    pub(super) fn return_address(&self, address: u64) -> Option<u64> {
        let replaced = self.0.replaced.iter().find(|(slot, _)| *slot == address);
        replaced
            .map(|&(_, original)| original)
            .or_else(|| self.word(address))
    }
}
