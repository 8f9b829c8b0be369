//! Effects of calls on the memory of a process.

mod notes;

use super::Allocation;
use super::allocation::{AllocationPlace, NewAllocation, key};
use super::arrays;
use super::imports::Export;
use super::limits::takes_room;
use super::live::Freed;
use super::physical::Released;
use super::pools;
use super::process::Process;
use gpuprobe_cuda::{AddressSpace, MemoryKind, Op};
use gpuprobe_model::event::{CONTEXT_UNKNOWN, Call};

/// Effect of a successful call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The call allocated memory.
    Allocated,
    /// The call freed memory.
    Freed,
    /// The call freed memory with no known allocation.
    FreedUnknown,
    /// The call freed a null pointer.
    FreedNull,
    /// The call neither allocated nor freed memory.
    Other,
}

/// Upper limit of process ids (`PID_MAX_LIMIT`).
const MAX_PID: u64 = 1 << 22;
/// Upper limit of the size of an allocation, bytes.
const MAX_SIZE: u64 = 1 << 48;

impl Process {
    /// Applies a successful call. `shared` is the memory that a traced process exported, if the call
    /// opens or imports it.
    pub(super) fn apply(&mut self, call: &Call, shared: Option<Export>) -> Effect {
        // Nothing but queries returns while it is checkpointed: the restore was not seen.
        if call.function.op != Op::DeviceCount {
            self.restore();
        }
        if self.is_full && takes_room(call.function.op) {
            return self.drop_call(call);
        }
        match call.function.op {
            Op::Allocate if call.captured => self.capture(call, Some(call.size_bytes)),
            Op::Free if call.captured => self.capture(call, None),
            Op::Allocate => self.allocate(call, shared),
            Op::Free => self.free(call),
            Op::HandleCreate | Op::HandleImport => self.create(call),
            Op::HandleRelease => self.release(call),
            Op::ShareOpen => self.open(call, shared),
            Op::ShareClose => self.close(call),
            _ => {
                self.note(call);
                Effect::Other
            }
        }
    }

    /// Drops the call, as there is no room for its effect. A previous allocation at its address is
    /// still superseded.
    fn drop_call(&mut self, call: &Call) -> Effect {
        self.left_out += 1;
        if !call.function.op.allocates() || call.captured {
            return Effect::Other;
        }
        if call.address != 0 {
            self.remove(call.function.kind.space(), call.address);
            self.live_left_out += 1;
        }
        Effect::Allocated
    }

    /// Bytes of the allocation at `address`.
    pub(super) fn size_at(&self, address: u64) -> Option<u64> {
        let found = self.live.get(key(AddressSpace::Device, address));
        found.map(|allocation| allocation.size_bytes)
    }

    /// The fields of most allocations; callers change the others.
    fn new_of(&mut self, call: &Call) -> NewAllocation {
        self.new_at(call, (call.stack, call.row))
    }

    /// The same of what came with a call that had this call stack and row.
    fn new_at(&mut self, call: &Call, (stack, row): (u64, u16)) -> NewAllocation {
        NewAllocation {
            address: call.address,
            size_bytes: call.size_bytes,
            end_ns: call.end_ns,
            tid: call.tid,
            row: call.row,
            site: self.sites.site(stack, row),
            kind: call.function.kind,
            space: call.function.kind.space(),
            place: call.device.into(),
            slot: self.contexts.slot(call.context),
        }
    }

    /// Adds the allocation that `call` makes. Pools and graphs may allocate on another device than
    /// the current one of the thread; its context is then not that of the thread.
    fn enter(&mut self, call: &Call, new: NewAllocation) {
        let single = self.only_device();
        let here = call.device.or(single);
        let there = match new.place {
            AllocationPlace::Device(device) => device,
            _ => 0,
        };
        let is_made = call.context != CONTEXT_UNKNOWN && new.space != AddressSpace::Physical;
        let mut allocation = Allocation::new(&new);
        if is_made && here == Some(there) {
            allocation.context = call.context;
        }
        self.add(allocation);
    }

    fn allocate(&mut self, call: &Call, shared: Option<Export>) -> Effect {
        if call.address == 0 {
            return Effect::Allocated;
        }
        let mut new = self.new_of(call);
        let values = call.detail.as_deref().map(|d| &d.values);
        let mut exporter = None;
        match (call.function.kind, values) {
            (MemoryKind::Array, Some(values)) => {
                let size = arrays::of_layer(call.function.layer, values);
                self.unknown_values += u64::from(size.is_none());
                new.size_bytes = size.unwrap_or(0);
            }
            (MemoryKind::Imported, Some(_)) => {
                new.size_bytes = shared.as_ref().map_or(0, |export| export.0);
                exporter = shared.map(|export| export.1);
            }
            (MemoryKind::Async, _) => {
                let pool = self.pools.slot(call.value(0), new.place);
                new.slot = pool;
                if let Some(place) = self.pools.place(pool) {
                    new.place = place;
                }
            }
            _ => {}
        }
        let key = key(new.space, new.address);
        self.enter(call, new);
        if let Some(exporter) = exporter {
            self.imports.insert(key, exporter);
        }
        Effect::Allocated
    }

    fn free(&mut self, call: &Call) -> Effect {
        if call.address == 0 {
            return Effect::FreedNull;
        }
        let space = call.function.kind.space();
        match self.live.free(key(space, call.address), call.start_ns) {
            Freed::Live(allocation) => self.uncount(&allocation),
            Freed::Superseded => {}
            // External memory is mapped by a call of its own, and freed like other memory.
            Freed::Unknown if self.physical.mapping_at(call.address).is_some() => {
                for released in self.physical.unmap(call.address, 1, call.start_ns) {
                    self.forget(released);
                }
                return Effect::Other;
            }
            Freed::Unknown if self.frees_left_out() => {}
            Freed::Unknown => {
                self.sites.note_unknown_free();
                return Effect::FreedUnknown;
            }
        }
        Effect::Freed
    }

    /// A call on a stream in capture mode.
    fn capture(&mut self, call: &Call, size_bytes: Option<u64>) -> Effect {
        let node = self.node(call, call.address, size_bytes);
        self.graphs.capture(call.context, node);
        Effect::Other
    }

    fn create(&mut self, call: &Call) -> Effect {
        let (id, superseded) = self.physical.create(call.address, call.end_ns);
        self.forget(superseded);
        let mut new = self.new_of(call);
        new.address = id;
        new.space = AddressSpace::Physical;
        if call.function.op == Op::HandleCreate {
            new.place = pools::place(call.value(0), call.device);
            self.unknown_values += u64::from(new.place == AllocationPlace::Elsewhere);
        }
        self.enter(call, new);
        Effect::Allocated
    }

    fn release(&mut self, call: &Call) -> Effect {
        let released = self.physical.release(call.address, call.start_ns);
        self.forget(released);
        match released {
            Released::Unknown if !self.frees_left_out() => Effect::FreedUnknown,
            _ => Effect::Freed,
        }
    }

    fn forget(&mut self, released: Released) {
        if let Released::Gone(id) = released {
            self.remove(AddressSpace::Physical, id);
        }
    }

    fn map(&mut self, address: u64, size_bytes: u64, offset: u64, handle: u64, end_ns: u64) {
        for released in self.physical.map(address, size_bytes, handle, end_ns) {
            self.forget(released);
        }
        // The size of imported memory is only known once it is mapped.
        let id = self.physical.of_handle(handle);
        let known = id.and_then(|id| self.live.get(key(AddressSpace::Physical, id)).copied());
        let size_bytes = offset.saturating_add(size_bytes);
        if let Some(known) = known
            && known.kind() == MemoryKind::Imported
            && size_bytes > known.size_bytes
        {
            self.resize(AddressSpace::Physical, known.address, size_bytes);
        }
    }

    /// Opens IPC memory of another process. Memory opened twice has the same address.
    fn open(&mut self, call: &Call, shared: Option<Export>) -> Effect {
        let times = self.opened.entry(call.address).or_default();
        *times += 1;
        if *times == 1 {
            let values = call
                .detail
                .as_deref()
                .map_or([0; gpuprobe_cuda::EXTRA], |d| d.values);
            let mut new = self.new_of(call);
            new.space = AddressSpace::Shared;
            let size = shared.as_ref().map(|export| export.0);
            new.size_bytes = size.or_else(|| size_in_name(&values)).unwrap_or(0);
            self.enter(call, new);
            if let Some(export) = shared {
                let key = key(AddressSpace::Shared, call.address);
                self.imports.insert(key, export.1);
            }
        }
        Effect::Allocated
    }

    fn close(&mut self, call: &Call) -> Effect {
        let Some(times) = self.opened.get_mut(&call.address) else {
            return match self.frees_left_out() {
                true => Effect::Freed,
                false => Effect::FreedUnknown,
            };
        };
        *times -= 1;
        if *times == 0 {
            self.remove(AddressSpace::Shared, call.address);
        }
        Effect::Freed
    }
}

/// The size that an IPC handle of 64 bytes holds at offset 16, as seen with driver 580. It is not
/// documented: implausible values are ignored.
fn size_in_name(values: &[u64; gpuprobe_cuda::EXTRA]) -> Option<u64> {
    let (pid, size) = (values[1] & 0xffff_ffff, values[2]);
    ((1..=MAX_PID).contains(&pid) && (1..=MAX_SIZE).contains(&size)).then_some(size)
}

#[cfg(test)]
mod tests;
