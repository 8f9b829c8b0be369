//! Pools of stream-ordered memory, and graphs.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::abi::{NODE_ALLOCATES, NODE_FREES, NODE_LAST};

use super::{Program, detail, values};
use crate::change::{Change, MemoryOrigin};

impl Program {
    /// A pool of device 1, or of the host (location type 2).
    fn create_pool(&mut self, handle: u64, location: u64) {
        self.call("cuMemPoolCreate", handle, |call| {
            (call.device, call.size_bytes) = (Some(1), 1);
            detail(call).stream = location;
        });
    }

    fn allocate_from(&mut self, address: u64, pool: u64) {
        self.call("cuMemAllocFromPoolAsync", address, |call| {
            values(call, &[pool]);
        });
    }

    /// Handle and used bytes of each pool.
    fn pools(&self) -> Vec<(Option<u64>, u64)> {
        let pools = self.process().pools.iter();
        pools.map(|pool| (pool.handle, pool.used.bytes)).collect()
    }

    /// Devices of the pools that have changed.
    fn changed_pools(&mut self) -> Vec<Option<u16>> {
        let changes = self.changes().into_iter();
        let pools = changes.filter_map(|change| match change {
            Change::Pool(device) => Some(device),
            _ => None,
        });
        pools.collect()
    }

    fn capture(&mut self, symbol: &str, address: u64, capture: u16) {
        self.call(symbol, address, |call| {
            (call.captured, call.context) = (true, capture);
        });
    }

    /// Instantiates `graph` as `executable` and launches it.
    fn launch(&mut self, graph: u64, executable: u64) {
        self.call("cuGraphInstantiateWithFlags", graph, |call| {
            detail(call).out = executable;
        });
        self.launch_again(executable);
    }

    fn launch_again(&mut self, executable: u64) {
        self.call("cudaGraphLaunch", executable, |_| {});
    }
}

#[test]
fn memory_is_that_of_its_pool() {
    let mut program = Program::recorded();
    program.create_pool(0x90, 1);
    program.create_pool(0xa0, 2);
    assert_eq!(
        program.changed_pools(),
        [Some(1)],
        "pools of the host are not reported"
    );
    program.allocate_from(0x1000, 0x90);
    program.allocate_from(0x2000, 0xa0);
    program.call("cudaMallocAsync", 0x3000, |_| {});
    program.call("cudaMalloc", 0x4000, |_| {});
    assert_eq!(program.bytes(), [24, 8, 0]);
    let pool = |program: &Program, address| {
        let pool = program.process().pool_of(program.at(address));
        pool.map(|pool| (pool.handle, pool.device()))
    };
    assert_eq!(pool(&program, 0x1000), Some((Some(0x90), Some(1))));
    assert_eq!(pool(&program, 0x2000), Some((Some(0xa0), None)));
    assert_eq!(pool(&program, 0x3000), Some((None, Some(0))));
    assert_eq!(pool(&program, 0x4000), None);
    assert_eq!(program.at(0x1000).device(), Some(1));
    program.call("cudaFreeAsync", 0x1000, |_| {});
    assert_eq!(
        program.pools(),
        [(Some(0x90), 0), (Some(0xa0), 8), (None, 8)]
    );
}

#[test]
fn values_of_a_newer_cuda_are_counted_and_put_with_no_other() {
    let mut program = Program::new();
    program.create_pool(0x90, 7);
    program.allocate_from(0x1000, 0x90);
    program.call("cuMemCreate", 0x2000, |call| values(call, &[7]));
    program.call("cuMemCreate", 0x3000, |call| {
        values(call, &[0x0100 << 32 | 6]);
    });
    program.call("cudaMallocArray", 0x4000, |call| {
        values(call, &[32, 0, 99, 64]);
    });
    for node in [NODE_LAST, NODE_LAST + 1] {
        program.call("cuGraphAddNode", 0x70, |call| call.size_bytes = node);
    }
    // The part of a device is its memory; of the others' none is known to be on a GPU or on the host.
    assert_eq!(program.bytes(), [8, 0, 16]);
    let kinds: Vec<_> = program
        .process()
        .totals
        .kinds()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(
        kinds,
        [MemoryKind::Array, MemoryKind::Vmm, MemoryKind::Unknown]
    );
    assert_eq!(program.ledger.left_out().unknown_values, 4);
    program.call("cudaFreeAsync", 0x1000, |_| {});
    program.call("cuMemRelease", 0x2000, |_| {});
    assert_eq!(program.bytes(), [8, 0, 0]);
}

#[test]
fn another_threshold_makes_the_reserved_size_unknown() {
    let mut program = Program::new();
    program.create_pool(0x90, 1);
    for (attribute, reserved) in [(6, Some(4096)), (4, None)] {
        program.call("cuMemPoolGetAttribute", 0x90, |call| {
            (detail(call).stream, detail(call).out) = (5, 4096);
        });
        program.call("cuMemPoolSetAttribute", 0x90, |call| {
            detail(call).stream = attribute;
        });
        let pool = program.process().pools.iter().next().unwrap();
        assert_eq!(pool.reserved_bytes, reserved);
    }
}

#[test]
fn calls_on_pools_are_noted() {
    let mut program = Program::recorded();
    program.create_pool(0x90, 1);
    program.allocate_from(0x1000, 0x90);
    let reserved = |program: &Program| {
        program
            .process()
            .pools
            .iter()
            .next()
            .unwrap()
            .reserved_bytes
    };
    program.call("cuMemPoolGetAttribute", 0x90, |call| {
        (detail(call).stream, detail(call).out) = (5, 4096);
    });
    assert_eq!(reserved(&program), Some(4096));
    program.changes();
    program.allocate_from(0x2000, 0x90);
    let changes = program.changes();
    let Change::Allocated(block) = &changes[0] else {
        unreachable!("{changes:?}");
    };
    let origin = MemoryOrigin {
        pool: Some(0x90),
        reserved_bytes: Some(4096),
        variable: None,
    };
    assert_eq!(block.origin.as_deref(), Some(&origin));
    program.call("cuMemPoolTrimTo", 0x90, |_| {});
    assert_eq!(
        (reserved(&program), program.changed_pools()),
        (None, vec![Some(1)])
    );
    program.call("cuMemPoolDestroy", 0x90, |_| {});
    assert_eq!(program.changed_pools(), [Some(1)]);
    // Gone, or never seen: the device is not known.
    program.call("cuMemPoolDestroy", 0x90, |_| {});
    program.call("cuMemPoolTrimTo", 0x77, |_| {});
    assert_eq!(program.changed_pools(), [None, None]);
    for address in [0x1000, 0x2000] {
        program.call("cudaFreeAsync", address, |_| {});
    }
    assert_eq!(program.pools(), []);
}

#[test]
fn a_launched_graph_allocates_and_frees_memory() {
    let mut program = Program::new();
    program.call("cuGraphAddMemAllocNode", 0xa, |call| {
        (call.size_bytes, detail(call).out) = (100, 0x1000);
    });
    program.call("cuGraphAddNode", 0xa, |call| {
        call.size_bytes = NODE_ALLOCATES;
        values(call, &[2000, 0x2000]);
    });
    // Another sort of node.
    program.call("cuGraphAddNode", 0xa, |call| {
        call.size_bytes = 3;
        values(call, &[1, 0x3000]);
    });
    assert!(program.process().held() == 0);
    program.launch(0xa, 0xe);
    assert_eq!(program.live(), [(0x1000, 100), (0x2000, 2000)]);
    assert_eq!(program.at(0x1000).kind(), MemoryKind::Graph);
    program.call("cuGraphAddMemFreeNode", 0xb, |call| {
        detail(call).stream = 0x1000;
    });
    program.launch(0xb, 0xf);
    assert_eq!(program.live(), [(0x2000, 2000)]);
    program.call("cuGraphAddNode", 0xc, |call| {
        call.size_bytes = NODE_FREES;
        detail(call).stream = 0x2000;
    });
    program.launch(0xc, 0xd);
    assert_eq!(program.live(), []);
    // Once destroyed, its handle means nothing.
    program.call("cuGraphExecDestroy", 0xe, |_| {});
    program.launch_again(0xe);
    assert_eq!(program.live(), []);
}

#[test]
fn captured_calls_have_an_effect_once_their_graph_is_launched() {
    let mut program = Program::new();
    program.capture("cudaMallocAsync", 0x1000, 5);
    program.capture("cudaMallocAsync", 0x2000, 5);
    program.capture("cudaFreeAsync", 0x1000, 5);
    program.capture("cudaMallocAsync", 0x3000, 6);
    assert_eq!((program.live(), program.counts()), (vec![], (0, 0, 0)));
    for (capture, graph, result) in [(5, 0xa, 0), (6, 0xb, 900)] {
        program.call("cuStreamEndCapture", 0, |call| {
            (call.context, call.result, detail(call).out) = (capture, result, graph);
        });
    }
    // The capture that has failed is over.
    program.call("cuStreamEndCapture", 0, |call| {
        (call.context, detail(call).out) = (6, 0xb);
    });
    program.launch(0xa, 0xe);
    program.launch(0xb, 0xf);
    assert_eq!(program.live(), [(0x2000, 8)]);
}

#[test]
fn memory_of_no_pool_is_taken_from_none() {
    let mut program = Program::new();
    program.call("cudaMallocAsync", 0x1000, |_| {});
    program.call("cudaMallocHost", 0x2000, |_| {});
    program.call("cudaFreeHost", 0x2000, |_| {});
    assert_eq!(program.pools(), [(None, 8)]);
}
