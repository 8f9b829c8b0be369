//! Kernels that a process has launched.

use std::sync::Arc;

use hashbrown::HashMap;

use gpuprobe_model::event::KernelName;
use gpuprobe_stacks::symbols;

/// Kernel names by handle, and the epoch in which it has this meaning.
type NamesByHandle = HashMap<(u64, u16), Arc<str>>;

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
    /// A name found through a handle was wrong: none is trusted.
    pub(super) distrusts_found: bool,
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

/// Limit on the kernel names of all processes, of up to 4 KB each. Further kernels have no name.
pub(super) const MAX_NAMES: usize = 1 << 16;

impl Launcher {
    /// Mangled name of the kernel `handle` in `epoch`, if known.
    pub fn name(&self, handle: u64, epoch: u16) -> Option<&Arc<str>> {
        let place = (handle, epoch);
        let found = || self.found.get(&place).filter(|_| !self.distrusts_found);
        self.given.get(&place).or_else(found)
    }

    pub(super) fn names(&self) -> usize {
        self.given.len() + self.found.len()
    }

    pub(super) fn learn(&mut self, kernel: &KernelName) {
        let place = (kernel.key.handle, kernel.key.epoch);
        let names = match kernel.given {
            true => &mut self.given,
            false => &mut self.found,
        };
        let name = kernel.name.as_deref();
        if let Some(name) = name.filter(|n| kernel.given || symbols::is_plausible(n)) {
            names.insert(place, name.into());
        } else if !kernel.given {
            names.remove(&place);
        }
        if let Some(given) = self.given.get(&place) {
            let contradicted = match self.found.get(&place) {
                Some(found) => found != given,
                None => !kernel.given,
            };
            if contradicted && !self.distrusts_found {
                self.distrusts_found = true;
                self.retracts_names = true;
            }
        }
    }
}
