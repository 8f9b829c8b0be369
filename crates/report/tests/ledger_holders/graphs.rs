//! Graph memory: a node's memory is live from a launch until it is freed, even if the graph is
//! destroyed.

use gpuprobe_cuda::MemoryKind::Graph;
use proptest::prelude::*;

use crate::harness::{Args, Held, World, lowest};

/// Functions that add nodes: the two older ones, the newer one, and capture.
const WAYS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    New,
    /// Add a node to the n-th graph, with one of the functions, that allocates a number of bytes.
    Allocate(usize, usize, u64),
    /// Add a node to a graph, with one of the functions, that frees the n-th address of a node.
    Free(usize, usize, usize),
    /// Begin a capture, on one thread or another.
    Begin,
    /// Capture an allocation of a number of bytes in the n-th open capture.
    Capture(usize, u64),
    /// End the n-th open capture, which makes a graph if it was not invalidated.
    End(usize, bool),
    /// Instantiate the n-th graph.
    Build(usize),
    Launch(usize),
    /// Destroy the n-th graph, or the n-th executable one.
    Destroy(usize),
    DestroyExecutable(usize),
    /// Free live memory with an ordinary free, which may be seen late.
    FreeLive(usize, bool),
    Leave(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let n = || 0usize..4;
    prop_oneof![
        2 => Just(Step::New),
        4 => (0..WAYS, n(), 1u64..1000).prop_map(|(w, n, b)| Step::Allocate(w, n, b)),
        2 => (0..WAYS, n(), 0usize..8).prop_map(|(w, n, a)| Step::Free(w, n, a)),
        1 => Just(Step::Begin),
        2 => (n(), 1u64..1000).prop_map(|(n, b)| Step::Capture(n, b)),
        1 => (n(), any::<bool>()).prop_map(|(n, ok)| Step::End(n, ok)),
        3 => n().prop_map(Step::Build),
        5 => n().prop_map(Step::Launch),
        1 => n().prop_map(Step::Destroy),
        1 => n().prop_map(Step::DestroyExecutable),
        3 => (0usize..8, any::<bool>()).prop_map(|(n, late)| Step::FreeLive(n, late)),
        2 => (0usize..8).prop_map(Step::Leave),
    ]
}

#[derive(Clone, Debug, Default)]
struct Nodes {
    handle: u64,
    allocates: Vec<(u64, u64)>,
    frees: Vec<u64>,
}

struct Driver {
    world: World,
    graphs: Vec<Nodes>,
    executables: Vec<Nodes>,
    /// Captures that have not ended, by number.
    captures: Vec<(u16, Nodes)>,
    last_capture: u16,
    /// Addresses and bytes of live memory.
    live: Vec<(u64, u64)>,
}

impl Driver {
    /// An unused handle; graphs and executable graphs share their values.
    fn handle(&self) -> u64 {
        let all = self.graphs.iter().chain(&self.executables);
        lowest(0x4000, 0x10, |h| all.clone().any(|n| n.handle == h))
    }

    fn is_taken(&self, address: u64) -> bool {
        let captured = self.captures.iter().map(|(_, nodes)| nodes);
        let all = self.graphs.iter().chain(&self.executables).chain(captured);
        let of_node = all.flat_map(|n| &n.allocates).any(|(a, _)| *a == address);
        of_node || self.is_live(address)
    }

    fn is_live(&self, address: u64) -> bool {
        self.live.iter().any(|(a, _)| *a == address)
    }

    fn allocate(&mut self, way: usize, n: usize, bytes: u64) {
        if n >= self.graphs.len() {
            return;
        }
        let address = lowest(0xa000, 0x1000, |a| self.is_taken(a));
        self.graphs[n].allocates.push((address, bytes));
        let graph = self.graphs[n].handle;
        let in_graph = Args {
            address: graph,
            device: Some(0),
            ..Args::default()
        };
        match way {
            0 => self.world.call(
                "cuGraphAddMemAllocNode",
                Args {
                    bytes,
                    out: address,
                    ..in_graph
                },
            ),
            1 => self.world.call(
                "cuGraphAddNode",
                Args {
                    bytes: 10,
                    values: [bytes, address, 0, 0, 0, 0, 0, 0],
                    ..in_graph
                },
            ),
            _ => self.captured("cuMemAllocAsync", address, bytes, graph),
        }
    }

    fn begin(&mut self) -> u16 {
        self.last_capture += 1;
        self.last_capture
    }

    fn capture(&mut self, n: usize, bytes: u64) {
        let address = lowest(0xa000, 0x1000, |a| self.is_taken(a));
        if let Some((number, nodes)) = self.captures.get_mut(n) {
            nodes.allocates.push((address, bytes));
            let args = Args {
                address,
                bytes,
                device: Some(0),
                captured: true,
                context: *number,
                ..Args::default()
            };
            self.world.call("cuMemAllocAsync", args);
        }
    }

    fn end(&mut self, n: usize, succeeds: bool) {
        if n >= self.captures.len() {
            return;
        }
        let handle = self.handle();
        let (context, nodes) = self.captures.swap_remove(n);
        let args = |out| Args {
            context,
            out,
            ..Args::default()
        };
        if succeeds {
            self.world.call("cuStreamEndCapture", args(handle));
            self.graphs.push(Nodes { handle, ..nodes });
        } else {
            self.world.fail("cuStreamEndCapture", args(0));
        }
    }

    /// Captures into an existing graph, and ends the capture at once.
    fn captured(&mut self, symbol: &str, address: u64, bytes: u64, graph: u64) {
        let context = self.begin();
        let args = Args {
            address,
            bytes,
            device: Some(0),
            captured: true,
            context,
            ..Args::default()
        };
        self.world.call(symbol, args);
        let args = Args {
            out: graph,
            context,
            ..Args::default()
        };
        self.world.call("cuStreamEndCapture", args);
    }

    fn free(&mut self, way: usize, n: usize, which: usize) {
        let all = self.graphs.iter().chain(&self.executables);
        let mut addresses = all.flat_map(|nodes| &nodes.allocates).map(|(a, _)| *a);
        let address = addresses.nth(which);
        let (Some(address), Some(nodes)) = (address, self.graphs.get_mut(n)) else {
            return;
        };
        if nodes.frees.contains(&address) {
            return;
        }
        nodes.frees.push(address);
        let graph = nodes.handle;
        let args = Args {
            address: graph,
            stream: address,
            ..Args::default()
        };
        match way {
            0 => self.world.call("cuGraphAddMemFreeNode", args),
            1 => self
                .world
                .call("cuGraphAddNode_v2", Args { bytes: 11, ..args }),
            _ => self.captured("cuMemFreeAsync", address, 0, graph),
        }
    }

    /// Launches a graph; fails if memory that it allocates is live already, or memory that it frees
    /// is not.
    fn launch(&mut self, n: usize) {
        let Some(nodes) = self.executables.get(n).cloned() else {
            return;
        };
        let args = Args {
            address: nodes.handle,
            ..Args::default()
        };
        let its_own = |address: &u64| nodes.allocates.iter().any(|(a, _)| a == address);
        let clash = nodes.allocates.iter().any(|(a, _)| self.is_live(*a));
        let others = nodes.frees.iter().filter(|a| !its_own(a));
        if clash || others.clone().any(|a| !self.is_live(*a)) {
            self.world.fail("cuGraphLaunch", args);
            return;
        }
        self.live.retain(|(a, _)| !nodes.frees.contains(a));
        let left = nodes
            .allocates
            .iter()
            .filter(|(a, _)| !nodes.frees.contains(a));
        self.live.extend(left);
        self.world.call("cuGraphLaunch", args);
    }

    fn free_live(&mut self, n: usize, late: bool) {
        if n >= self.live.len() {
            return;
        }
        let (address, _) = self.live.swap_remove(n);
        let args = Args {
            address,
            ..Args::default()
        };
        if late {
            self.world.enter("cuMemFreeAsync", args);
        } else {
            self.world.call("cuMemFree_v2", args);
        }
    }

    fn step(&mut self, step: Step) {
        let about = |address| Args {
            address,
            ..Args::default()
        };
        match step {
            Step::New => {
                let handle = self.handle();
                self.graphs.push(Nodes {
                    handle,
                    ..Nodes::default()
                });
            }
            Step::Allocate(way, n, bytes) => self.allocate(way, n, bytes),
            Step::Free(way, n, which) => self.free(way, n, which),
            // A graph with allocations has one executable graph at a time.
            Step::Build(n) => {
                let Some(graph) = self.graphs.get(n).cloned() else {
                    return;
                };
                let is_built = |e: &Nodes| e.allocates.iter().any(|a| graph.allocates.contains(a));
                if self.executables.iter().any(is_built) {
                    return;
                }
                let handle = self.handle();
                self.world.call(
                    "cuGraphInstantiateWithFlags",
                    Args {
                        out: handle,
                        ..about(graph.handle)
                    },
                );
                self.executables.push(Nodes { handle, ..graph });
            }
            Step::Begin => {
                let number = self.begin();
                self.captures.push((number, Nodes::default()));
            }
            Step::Capture(n, bytes) => self.capture(n, bytes),
            Step::End(n, succeeds) => self.end(n, succeeds),
            Step::Launch(n) => self.launch(n),
            Step::Destroy(n) if n < self.graphs.len() => {
                let handle = self.graphs.swap_remove(n).handle;
                self.world.call("cuGraphDestroy", about(handle));
            }
            Step::DestroyExecutable(n) if n < self.executables.len() => {
                let handle = self.executables.swap_remove(n).handle;
                self.world.call("cuGraphExecDestroy", about(handle));
            }
            Step::Destroy(_) | Step::DestroyExecutable(_) => {}
            Step::FreeLive(n, late) => self.free_live(n, late),
            Step::Leave(n) => self.world.leave(n),
        }
    }

    fn check(&mut self) {
        let live = self.live.iter().map(|&(_, bytes)| Held {
            kind: Graph,
            bytes,
            device: Some(0),
        });
        self.world.check(live.collect::<Vec<_>>().into_iter());
    }
}

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
        assert_eq!(world.ledger.left_out().calls, graph.saturating_sub(MAX_NODES));
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn nodes_that_allocate_and_free(steps in proptest::collection::vec(step(), 1..200)) {
        let mut driver = Driver {
            world: World::new(),
            graphs: vec![],
            executables: vec![],
            captures: vec![],
            last_capture: 0,
            live: vec![],
        };
        for step in steps {
            driver.step(step);
            driver.check();
        }
        driver.world.leave_all();
        driver.check();
    }
}
