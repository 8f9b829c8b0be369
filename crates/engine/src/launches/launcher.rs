//! Kernels that a process has launched.

use std::sync::Arc;

use hashbrown::HashMap;

use gpuprobe_model::event::KernelName;
use gpuprobe_stacks::symbols;

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
    /// Names of kernels by handle, and the epoch in which it has this meaning; whether the program gave the name
    /// when it looked up the kernel, or else it was found through the handle.
    pub(super) names: HashMap<(u64, u16), (Arc<str>, bool)>,
}

/// Limit on the kernel names of all processes, of up to 4 KB each. Further kernels have no name.
pub(super) const MAX_NAMES: usize = 1 << 16;

impl Launcher {
    /// Mangled name of the kernel `handle` in `epoch`, if known.
    pub fn name(&self, handle: u64, epoch: u16) -> Option<&Arc<str>> {
        let (name, is_given) = self.names.get(&(handle, epoch))?;
        (*is_given || !self.distrusts_found).then_some(name)
    }

    pub(super) fn learn(&mut self, kernel: &KernelName) {
        let place = (kernel.key.handle, kernel.key.epoch);
        let name = kernel.name.as_deref();
        let name = name.filter(|name| kernel.given || symbols::is_plausible(name));
        let known = self.names.get(&place);
        let known = known.map(|(known, is_given)| (&**known, *is_given));
        let contradicts = match known {
            Some((given, true)) => !kernel.given && name != Some(given),
            Some((found, false)) => kernel.given && name != Some(found),
            None => false,
        };
        if contradicts && !self.distrusts_found {
            (self.distrusts_found, self.retracts_names) = (true, true);
        }
        match (name, known) {
            (_, Some((_, true))) if !kernel.given => {}
            (Some(name), _) => drop(self.names.insert(place, (name.into(), kernel.given))),
            (None, _) if !kernel.given => drop(self.names.remove(&place)),
            (None, _) => {}
        }
    }
}
