//! Walks, and what becomes of them.

use super::StackStore;
use super::process::word_at;
use crate::paths::PathStep;
use crate::{StackCopy, Unwound};
use gpuprobe_model::abi::RawStack;
use gpuprobe_model::stack::{CallStack, Location};

impl StackStore {
    /// The stack of the kernel's frame-pointer walk.
    pub(super) fn walked(&mut self, raw: &RawStack) -> CallStack {
        let mut addresses = raw.addresses.to_vec();
        addresses.truncate(usize::from(raw.count));
        if addresses.is_empty() {
            addresses.push(raw.ip);
        }
        // Before Linux 6.12, the walk omits the caller of a function that has just begun.
        if addresses.get(1) != Some(&raw.return_address) {
            addresses.insert(1, raw.return_address);
        }
        let locations: Vec<_> = addresses
            .into_iter()
            .enumerate()
            .map(|(index, address)| match index {
                0 => self.spaces.locate(raw.tgid, address),
                _ => self.spaces.locate_caller(raw.tgid, address),
            })
            .collect();
        CallStack {
            is_complete: locations.last().is_some_and(|last| self.is_outermost(last)),
            locations,
        }
    }

    /// Whether the frame at `location` is outermost: threads begin in the C library.
    fn is_outermost(&self, location: &Location) -> bool {
        let module = location.module.and_then(|id| self.spaces.module(id));
        module.is_some_and(|module| {
            let (name, libc) = (module.name(), ["libc.so", "libc-", "ld-musl"]);
            libc.iter().any(|start| name.starts_with(start))
        })
    }

    pub(super) fn unwind(&mut self, raw: &RawStack, bytes: &[u8]) -> Unwound {
        let replaced: Vec<_> = replaced(raw).collect();
        let copy = StackCopy {
            ip: raw.ip,
            sp: raw.sp,
            bp: raw.fp,
            bytes,
            replaced: &replaced,
        };
        self.spaces.unwind(raw.tgid, &copy)
    }
}

/// The return addresses that identify the path; `None` if they are not all in the copied stack. The
/// first one is part of the initial state.
pub(super) fn steps(raw: &RawStack, copied: &[u8], slots: &[u64]) -> Option<Vec<PathStep>> {
    let step = |slot: &u64| {
        let offset = slot.checked_sub(raw.sp)?;
        // A probe's trampoline is the same for all callers.
        let is_usable = offset % 8 == 0 && replaced(raw).all(|(at, _)| at != *slot);
        is_usable.then_some(())?;
        Some(PathStep {
            offset: u16::try_from(offset / 8).ok()?,
            word: word_at(copied, usize::try_from(offset).ok()?)?,
        })
    };
    let (first, others) = slots.split_first()?;
    (*first == raw.sp).then_some(())?;
    others.iter().map(step).collect()
}

/// Stack slots whose return address a probe has replaced, with the original ones.
fn replaced(raw: &RawStack) -> impl Iterator<Item = (u64, u64)> {
    let all = raw.replaced.iter().take(usize::from(raw.replaced_count));
    all.map(|replaced| (replaced.at, replaced.original))
}
