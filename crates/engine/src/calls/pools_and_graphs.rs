//! Calls on memory pools and graphs.

use super::super::allocation::{AllocationPlace, NewAllocation};
use super::super::change::Change;
use super::super::contexts::PRIMARY;
use super::super::graphs::MemoryNode;
use super::super::pools;
use super::super::process::Process;
use gpuprobe_cuda::{AddressSpace, MemoryKind, Op};
use gpuprobe_model::abi::{NODE_ALLOCATES, NODE_FREES};
use gpuprobe_model::event::Call;

impl Process {
    /// Applies calls on memory pools.
    pub(super) fn note_of_pools(&mut self, call: &Call) {
        let address = call.address;
        match call.function.op {
            Op::PoolCreate => {
                self.pools.create(address, pool_sort(call));
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
            Op::PoolOfDevice => self.pools.learn(address, pool_sort(call)),
            Op::PoolSet => self.pools.set_current(address, pool_sort(call)),
            _ => self.note_of_graphs(call),
        }
    }

    /// Reports a change of the pool `handle`; pools of host memory are not reported.
    fn record_pool(&mut self, handle: u64) {
        let device = match self.pools.place_of(handle) {
            AllocationPlace::Device(device) => Some(device),
            AllocationPlace::Unknown => None,
            AllocationPlace::Host => return,
        };
        self.changes.record(|| Change::Pool(device));
    }

    /// Applies calls on graphs.
    fn note_of_graphs(&mut self, call: &Call) {
        let address = call.address;
        match call.function.op {
            Op::GraphAllocate => {
                self.add_node(call, call.out(), Some(call.size_bytes));
            }
            Op::GraphFree => self.add_node(call, call.stream(), None),
            Op::GraphNode => match call.size_bytes {
                NODE_ALLOCATES => self.add_node(call, call.value(1), Some(call.value(0))),
                NODE_FREES => self.add_node(call, call.stream(), None),
                _ => {}
            },
            Op::CaptureEnd => self.graphs.end_capture(call.context, call.out()),
            Op::GraphBuild => self.graphs.build(address, call.out()),
            Op::GraphDestroy => self.graphs.destroy(address),
            Op::GraphLaunch => self.launch(call),
            _ => {}
        }
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
        let Some(made) = self.graphs.launch(call.address, call.end_ns) else {
            return;
        };
        let launched = &made.launched;
        for &address in &launched.freed {
            self.remove(AddressSpace::Device, address);
        }
        for node in &launched.allocated {
            let new = NewAllocation {
                address: node.address,
                size_bytes: node.size_bytes.unwrap_or(0),
                end_ns: call.end_ns,
                thread: self.thread(node.tid),
                row: node.row,
                site: node.site,
                kind: MemoryKind::Graph,
                space: AddressSpace::Device,
                place: node.device.into(),
                slot: PRIMARY,
                context: 0,
            };
            self.enter(call, new);
        }
    }
}

fn pool_sort(call: &Call) -> pools::PoolLocation {
    pools::sort(call.stream(), call.device, call.size_bytes)
}
