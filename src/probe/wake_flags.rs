//! The flags of the kernel side that a reader was woken and has not read yet.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use anyhow::Result;
use libbpf_rs::MapCore;
use nix::sys::mman::ProtFlags;

use super::ring::SharedMapping;
use super::skeleton::types::bss;

/// Where they are in the globals of the BPF programs, and their number.
const OFFSET: usize = offset_of!(bss, wake_pending);
const COUNT: usize = 4;
const _: fn(&bss) -> [u32; COUNT] = |globals| globals.wake_pending;

/// `wake_pending`, mapped once more: whoever reads a ring clears it, on any thread.
pub(super) struct WakeFlags(SharedMapping);

impl WakeFlags {
    /// Maps them; `globals` is the map of the programs' `.bss`.
    ///
    /// # Errors
    /// Returns the error of `mmap`.
    pub(super) fn open(globals: &dyn MapCore) -> Result<Self> {
        let map = globals.as_fd().try_clone_to_owned()?;
        let end = OFFSET + COUNT * size_of::<u32>();
        let read_write = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        Ok(Self(SharedMapping::new(&map, 0, end, read_write)?))
    }

    /// From now on a new record wakes a reader again.
    pub(super) fn clear(&self) {
        for index in 0..COUNT {
            let flag = self.0.word(OFFSET + index * size_of::<u32>());
            flag.store(0, Ordering::SeqCst);
        }
    }
}
