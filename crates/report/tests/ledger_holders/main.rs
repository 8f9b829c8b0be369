//! Memory of pools, and nodes of graphs beyond the limit: the ledger compared with a simple oracle, over random
//! interleavings of calls, some of which are seen long after the driver has acted. `crates/engine/tests/streams` has
//! all other memory.

#![allow(missing_docs, clippy::unwrap_used)]

mod harness;
mod pools;

use harness::{Args, World};

/// Nodes beyond the limit are counted, call by call.
#[test]
fn nodes_of_graphs_beyond_the_limit_are_dropped() {
    // Limit on graphs.
    const MAX_NODES: u64 = 1 << 18;
    let mut world = World::new();
    for graph in 1..=MAX_NODES + 3 {
        let args = Args {
            address: graph << 4,
            bytes: 512,
            device: Some(0),
            out: graph << 12,
            ..Args::default()
        };
        world.call("cuGraphAddMemAllocNode", args);
        assert_eq!(
            world.ledger.left_out().calls,
            graph.saturating_sub(MAX_NODES)
        );
    }
    let destroyed = Args {
        address: 1 << 4,
        ..Args::default()
    };
    world.call("cuGraphDestroy", destroyed);
    let again = Args {
        address: (MAX_NODES + 7) << 4,
        ..Args::default()
    };
    world.call("cuGraphAddMemAllocNode", again);
    assert_eq!(world.ledger.left_out().calls, 3, "there is room again");
}
