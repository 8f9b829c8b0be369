//! Calls that neither allocate nor free.

use crate::Allocation;
use crate::allocation::{AllocationPlace, NewAllocation, key};
use crate::change::Change;
use crate::contexts::{PRIMARY, UNKNOWN};
use crate::graphs::MemoryNode;
use crate::handles::NewHandle;
use crate::pools::{self, PoolLocation};
use crate::process::{Process, Variable};
use gpuprobe_cuda::{AddressSpace, HandleKind, MemoryKind, Op};
use gpuprobe_model::abi::{NODE_ALLOCATES, NODE_FREES, NODE_LAST};
use gpuprobe_model::event::{CONTEXT_UNKNOWN, Call};

impl Process {
    /// Calls that neither allocate nor free.
    pub(super) fn note(&mut self, call: &Call) {
        let address = call.address;
        if let Some(kind) = call.function.handle {
            self.handle(kind, call);
        }
        match call.function.op {
            Op::HandleOther => {
                let superseded = self.physical.enter(address, None, call.end_ns);
                self.forget(superseded);
            }
            Op::HandleRetain => self.physical.retain(address, call.out(), call.end_ns),
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
                let is_gone = self.physical.unreserve(address, call.start_ns);
                if is_gone {
                    self.tensors.range_gone(address);
                }
            }
            Op::Symbol => self.variable(call),
            Op::ModuleUnload => self.unload(address),
            Op::ContextRetain => {
                if let Some(device) = call.device {
                    self.contexts.retain(device);
                }
            }
            Op::ContextDestroy => {
                if let Some(slot) = self.contexts.end(call.context) {
                    self.end_with(|a| a.slot() == slot);
                    self.handles.end_with(call.end_ns, |_, of| of == slot);
                }
            }
            Op::DeviceReset => self.reset(call.device, call.end_ns),
            Op::DeviceCount => self
                .identity
                .set_device_count((call.out() & 0xffff_ffff) as usize),
            Op::PrimaryRelease => self.release_primary(call.device, call.end_ns),
            Op::PoolCreate => {
                let location = self.pool_location(call);
                self.pools.create(address, location);
                self.record_pool(address);
            }
            Op::PoolDestroy => {
                self.record_pool(address);
                self.pools.destroy(address);
            }
            Op::PoolTrim => {
                self.record_pool(address);
                self.pools.trim(address);
            }
            Op::PoolAttribute => {
                let (which, value) = (call.stream(), call.out());
                self.pools
                    .attribute(address, which, value, call.device.into());
            }
            Op::PoolLimit => self.pools.limit(address, call.stream()),
            Op::PoolOfDevice => {
                let location = self.pool_location(call);
                self.pools.learn(address, location);
            }
            Op::PoolSet => {
                let location = self.pool_location(call);
                self.pools.set_current(address, location);
            }
            Op::GraphAllocate => {
                self.add_node(call, call.out(), Some(call.size_bytes));
            }
            Op::GraphFree => self.add_node(call, call.stream(), None),
            Op::GraphNode => match call.size_bytes {
                NODE_ALLOCATES => self.add_node(call, call.value(1), Some(call.value(0))),
                NODE_FREES => self.add_node(call, call.stream(), None),
                other => self.unknown_values += u64::from(other > NODE_LAST),
            },
            Op::CaptureEnd => self.graphs.end_capture(call.context, call.out()),
            Op::GraphBuild => self.graphs.build(address, call.out()),
            Op::GraphDestroy => self.graphs.destroy(address),
            Op::GraphLaunch => self.launch(call),
            _ => {}
        }
    }

    /// The call makes or ends an object with a handle.
    fn handle(&mut self, kind: HandleKind, call: &Call) {
        let id = match kind {
            // Numbers are not given to another context as soon as addresses.
            HandleKind::Context => u64::from(call.context),
            HandleKind::PrimaryContext => call.device.map_or(u64::MAX, u64::from),
            HandleKind::Graph if call.function.op.makes_object() => call.out(),
            _ => call.address & kind.mask(),
        };
        let key = (kind, id);
        if !call.function.op.makes_object() {
            if kind == HandleKind::GreenContext {
                let device = self.handles.get(key).and_then(|made| made.device);
                self.release_primary(device, call.end_ns);
            }
            self.handles.destroy(key, call.start_ns, call.end_ns);
            return;
        }
        let is_known = match kind {
            HandleKind::Context => !matches!(call.context, 0 | CONTEXT_UNKNOWN),
            // The other references are to the same one.
            HandleKind::PrimaryContext => call.device.is_some() && self.handles.get(key).is_none(),
            _ => id != 0,
        };
        if is_known {
            let slot = self.contexts.slot(call.context);
            let new = NewHandle {
                start_ns: call.start_ns,
                end_ns: call.end_ns,
                caller: (call.stack, call.row),
                tid: call.tid,
                device: call.device,
                slot: kind.ends_with_context().then_some(slot),
            };
            self.handles.create(key, &new, &self.sites);
        }
    }

    pub(super) fn unmap(&mut self, call: &Call) {
        let (address, bytes) = (call.address, call.size_bytes);
        let range = self.physical.range_of(address);
        let before = self.physical.mapped_bytes_at(address, bytes);
        for gone in self.physical.unmap(address, bytes, call.start_ns) {
            self.forget(gone);
        }
        if let Some(range) = range {
            let left = self.physical.mapped_bytes_at(address, bytes);
            let (at, gone) = (
                address..address.saturating_add(bytes),
                before.saturating_sub(left),
            );
            self.tensors.unmapped(range, &at, gone, &mut self.changes);
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
        // They came with the load. A module's variables belong to the context that it was loaded in; a library's, to
        // the context in which they are queried.
        let of_kind = |kind| self.handles.get((kind, call.address));
        let loaded = of_kind(HandleKind::Module).or_else(|| of_kind(HandleKind::Library));
        let (caller, slot) =
            loaded.map_or(((call.stack, call.row), None), |it| (it.caller, it.slot));
        let mut new = self.new_at(call, caller);
        new.address = address;
        new.slot = slot.unwrap_or(new.slot);
        self.enter(call, new);
        let name = call.detail.as_deref().and_then(|d| d.name.clone());
        let module = call.address;
        self.forget_variable(address);
        self.variables.insert(address, Variable { module, name });
        self.of_modules.entry(module).or_default().insert(address);
    }

    fn unload(&mut self, module: u64) {
        for address in self.of_modules.remove(&module).into_iter().flatten() {
            self.remove(AddressSpace::Variables, address);
        }
    }

    /// A reference to the primary context of `device` is dropped.
    fn release_primary(&mut self, device: Option<u16>, now_ns: u64) {
        let last = device.is_some_and(|d| self.contexts.release(d));
        // References taken before tracing began are unknown.
        if last && self.from_birth {
            self.reset(device, now_ns);
        }
    }

    /// The primary context of `device` is destroyed.
    fn reset(&mut self, device: Option<u16>, now_ns: u64) {
        let single = self.identity.single_gpu;
        let device = device.or(single.then_some(0));
        let Some(device) = device else { return };
        let ends = |at: Option<u16>, slot| {
            at.map_or(single, |d| d == device) && matches!(slot, PRIMARY | UNKNOWN)
        };
        self.end_with(|a| ends(a.device(), a.slot()));
        self.handles.end_with(now_ns, ends);
        let primary = (HandleKind::PrimaryContext, u64::from(device));
        if self.handles.get(primary).is_some() {
            self.handles.destroy(primary, now_ns, now_ns);
        }
    }

    /// Removes the allocations that end with a context.
    fn end_with(&mut self, ends: impl Fn(&Allocation) -> bool) {
        let of_context =
            |a: &Allocation| a.kind().ends_with_context() && a.space() != AddressSpace::Physical;
        let gone = self.live.remove_if(|a| of_context(a) && ends(a));
        gone.iter().for_each(|gone| self.uncount(gone));
    }

    /// Reports a change of the pool `handle`; pools of host memory are not reported.
    fn record_pool(&mut self, handle: u64) {
        let device = match self.pools.place_of(handle) {
            AllocationPlace::Device(device) => Some(device),
            AllocationPlace::Unknown | AllocationPlace::Elsewhere => None,
            AllocationPlace::Host => return,
        };
        self.changes.record(|| Change::Pool(device));
    }

    fn add_node(&mut self, call: &Call, address: u64, size_bytes: Option<u64>) {
        let node = self.node(call, address, size_bytes);
        self.graphs.add(call.address, [node]);
    }

    /// Makes a graph node. Free nodes have no call site.
    pub(super) fn node(
        &mut self,
        call: &Call,
        address: u64,
        size_bytes: Option<u64>,
    ) -> MemoryNode {
        MemoryNode {
            address,
            size_bytes,
            row: call.row,
            site: size_bytes.map_or(0, |_| self.sites.site(call.stack, call.row)),
            tid: call.tid,
            device: call.device,
        }
    }

    /// A graph is launched: the memory that its nodes allocate becomes live.
    fn launch(&mut self, call: &Call) {
        let Some(launched) = self.graphs.launch(call.address) else {
            return;
        };
        for &address in &launched.freed {
            self.remove(AddressSpace::Device, address);
        }
        for node in &launched.allocated {
            let new = NewAllocation {
                address: node.address,
                size_bytes: node.size_bytes.unwrap_or(0),
                end_ns: call.end_ns,
                tid: node.tid,
                row: node.row,
                site: node.site,
                kind: MemoryKind::Graph,
                space: AddressSpace::Device,
                place: node.device.into(),
                slot: PRIMARY,
            };
            self.enter(call, new);
        }
    }

    fn pool_location(&mut self, call: &Call) -> PoolLocation {
        let location = pools::location(call.stream(), call.device, call.size_bytes);
        self.unknown_values += u64::from(!location.is_known());
        location
    }
}
