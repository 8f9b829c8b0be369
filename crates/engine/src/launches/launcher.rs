//! Kernels that a process has launched.

use super::names::{HashedName, NamesByHandle};
use gpuprobe_model::event::KernelName;
use gpuprobe_stacks::symbols;
use std::sync::Arc;

/// Whether the names found through handles are trusted in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Trust {
    #[default]
    Unless,
    Never,
}

/// A process that launches kernels.
#[derive(Clone, Debug, Default)]
pub struct Launcher {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name (comm) of the process, if known.
    pub comm: Option<String>,
    /// Whether it has ended or called `exec`.
    pub exited: bool,
    /// Whether a report has shown its end.
    pub end_reported: bool,
    pub(super) trust: Trust,
    /// The names found through handles are no longer trusted, and their removal is still to be
    /// recorded.
    pub(super) retracts_names: bool,
    /// The newest epoch with a launch.
    pub(super) newest_epoch: u16,
    /// Names that the program gave when it looked up the kernel.
    pub(super) given: NamesByHandle,
    /// Names found through handles.
    pub(super) found: NamesByHandle,
}

/// Limit on the bytes of kernel names, of which a user has half: enough for thirty thousand kernels with
/// C++ template names. Further kernels have no name.
pub(super) const MAX_NAME_BYTES: usize = 32 << 20;

impl Launcher {
    /// Mangled name of the kernel `handle` in `epoch`, if known.
    pub fn name(&self, handle: u64, epoch: u16) -> Option<&Arc<str>> {
        Some(&self.hashed_name(handle, epoch)?.0)
    }

    pub(super) fn hashed_name(&self, handle: u64, epoch: u16) -> Option<&HashedName> {
        let found = || {
            self.found
                .get(&(handle, epoch))
                .filter(|_| self.trust != Trust::Never)
        };
        self.given.get(&(handle, epoch)).or_else(found)
    }

    pub(super) fn name_bytes(&self) -> usize {
        self.given.bytes() + self.found.bytes()
    }

    pub(super) fn learn(&mut self, kernel: &KernelName) {
        let place = (kernel.key.handle, kernel.key.epoch);
        let names = if kernel.given {
            &mut self.given
        } else {
            &mut self.found
        };
        if let Some(name) = kernel
            .name
            .as_ref()
            .filter(|n| kernel.given || symbols::is_plausible(n))
        {
            names.insert(place, name.as_str().into());
        } else if !kernel.given {
            names.remove(&place);
        }
        if let Some(given) = self.given.get(&place) {
            let contradicted = match self.found.get(&place) {
                Some(found) => found != given,
                None => !kernel.given,
            };
            if contradicted && self.trust != Trust::Never {
                self.trust = Trust::Never;
                self.retracts_names = true;
            }
        }
    }
}
