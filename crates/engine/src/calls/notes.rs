//! Calls that neither allocate nor free.

use super::super::Allocation;
use super::super::allocation::key;
use super::super::contexts::{PRIMARY, UNKNOWN};
use super::super::process::{LoadedModule, Process, Variable};
use super::{MAX_SCANNED, SCANNED_PER_SECOND};
use gpuprobe_cuda::{AddressSpace, Op};
use gpuprobe_model::event::Call;

impl Process {
    /// Calls that neither allocate nor free.
    pub(super) fn note(&mut self, call: &Call) {
        let address = call.address;
        match call.function.op {
            Op::HandleOther => {
                let before = self.physical.of_handle(address);
                let superseded = self.physical.create_other(address, call.end_ns);
                self.forget(superseded);
                self.record_held(before);
            }
            Op::HandleRetain => {
                self.physical.retain(address, call.out(), call.end_ns);
                self.record_held(self.physical.of_handle(call.out()));
            }
            Op::Map => {
                let (handle, offset) = (call.value(0), call.value(1));
                self.map(address, call.size_bytes, offset, handle, call.end_ns);
            }
            Op::MapHandle => self.map(call.out(), call.size_bytes, 0, address, call.end_ns),
            Op::Unmap => self.unmap(call),
            Op::Reserve => {
                self.physical.reserve(address, call.size_bytes, call.end_ns);
                // A former range's release may be in flight.
                self.tensors.range_gone(address);
            }
            Op::Unreserve => {
                if self.physical.unreserve(address, call.start_ns) {
                    self.tensors.range_gone(address);
                }
            }
            Op::Symbol => self.variable(call),
            Op::ModuleLoad => {
                let slot = self.contexts.slot(call.context);
                let device = call.device;
                self.modules
                    .insert(address, Some(LoadedModule { device, slot }));
            }
            Op::LibraryLoad => {
                self.modules.insert(address, None);
            }
            Op::ModuleUnload => self.unload(address),
            Op::ContextRetain => {
                if let Some(device) = call.device {
                    self.contexts.retain(device);
                }
            }
            Op::ContextCreate => self.contexts.create(call.context, call.end_ns),
            Op::ContextDestroy => {
                self.contexts.destroy(call.context, call.end_ns);
                if let Some(slot) = self.contexts.end(call.context) {
                    self.end_with(call.end_ns, |a| a.slot() == slot);
                    self.modules.retain(|_, m| m.is_none_or(|m| m.slot != slot));
                }
            }
            Op::DeviceReset => self.reset(call.device, call.end_ns),
            Op::DeviceCount => self
                .identity
                .set_device_count((call.out() & 0xffff_ffff) as usize),
            Op::PrimaryRelease => {
                let last = call.device.is_some_and(|d| self.contexts.release(d));
                // References taken before tracing began are unknown.
                if last && self.from_birth {
                    self.reset(call.device, call.end_ns);
                }
            }
            _ => self.note_of_pools(call),
        }
    }

    pub(super) fn unmap(&mut self, call: &Call) {
        let (address, bytes) = (call.address, call.size_bytes);
        let range = self.physical.range_of(address);
        let before = self.physical.mapped_bytes_at(address, bytes);
        let ids = self.mapped_ids(address, bytes);
        for gone in self.physical.unmap(address, bytes, call.start_ns) {
            self.forget(gone);
        }
        ids.into_iter().for_each(|id| self.record_held(Some(id)));
        if let Some(range) = range {
            let left = self.physical.mapped_bytes_at(address, bytes);
            self.tensors.unmapped(range, before.saturating_sub(left));
        }
    }

    /// The program queried the address of a device variable. It may do so repeatedly, and without
    /// the size.
    fn variable(&mut self, call: &Call) {
        let address = call.out();
        let known = self.live.get(key(AddressSpace::Variables, address));
        if address == 0 || known.is_some_and(|old| old.size_bytes >= call.size_bytes) {
            return;
        }
        let mut new = self.new_of(call);
        new.address = address;
        // A module's variables belong to the context that it was loaded in; a library's, to the
        // context in which they are queried.
        if let Some(Some(loaded)) = self.modules.get(&call.address) {
            new.slot = loaded.slot;
        }
        self.enter(call, new);
        let name = call.detail.as_deref().and_then(|d| d.name.clone());
        let module = call.address;
        self.forget_variable(address);
        self.variables.insert(address, Variable { module, name });
        self.of_modules.entry(module).or_default().insert(address);
    }

    fn unload(&mut self, module: u64) {
        self.modules.remove(&module);
        for address in self.of_modules.remove(&module).into_iter().flatten() {
            self.remove(AddressSpace::Variables, address);
        }
    }

    /// The primary context of `device` is destroyed.
    pub(super) fn reset(&mut self, device: Option<u16>, now_ns: u64) {
        let single = self.identity.single_gpu;
        let device = device.or(single.then_some(0));
        let Some(device) = device else { return };
        let ends = |at: Option<u16>, slot| {
            at.map_or(single, |d| d == device) && matches!(slot, PRIMARY | UNKNOWN)
        };
        self.end_with(now_ns, |a| ends(a.device(), a.slot()));
        self.modules
            .retain(|_, m| m.is_none_or(|m| !ends(m.device, m.slot)));
    }

    /// Removes the allocations that end with a context.
    fn end_with(&mut self, now_ns: u64, ends: impl Fn(&Allocation) -> bool) {
        let all = self.live.len() as u64;
        if !self
            .scans
            .take(all, now_ns, MAX_SCANNED, SCANNED_PER_SECOND)
        {
            self.left_out += 1;
            return;
        }
        let of_context =
            |a: &Allocation| a.kind().ends_with_context() && a.space() != AddressSpace::Physical;
        let mut gone = self.live.remove_if(|a| of_context(a) && ends(a));
        // A replay has them in the same order.
        gone.sort_unstable_by_key(Allocation::key);
        gone.iter().for_each(|gone| self.uncount(gone));
    }
}
