//! The part of a process's memory that can be read while its stack is unwound.

/// A thread's registers and the top of its stack, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// The instruction that was about to run.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer, or whatever the code uses that register for.
    pub bp: u64,
    /// Memory from the stack pointer upwards.
    pub bytes: &'a [u8],
    /// Places in the stack where a return probe has put its trampoline, and the return addresses
    /// that were there.
    pub replaced: &'a [(u64, u64)],
}

/// The copy, by addresses of the process.
pub(super) struct Memory<'a>(pub(super) &'a StackCopy<'a>);

impl Memory<'_> {
    /// A number of `size` bytes.
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

    /// The word at `address`, as it was before a return probe has replaced it.
    pub(super) fn return_address(&self, address: u64) -> Option<u64> {
        let replaced = self.0.replaced.iter().find(|(slot, _)| *slot == address);
        replaced
            .map(|&(_, original)| original)
            .or_else(|| self.word(address))
    }
}
