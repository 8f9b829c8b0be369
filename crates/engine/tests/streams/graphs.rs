//! Graphs with nodes that allocate and free memory.

use gpuprobe_cuda::MemoryKind::Graph;

use crate::account::{Block, Space};
use crate::engine::{Args, Engine};
use crate::program::{Program, address_of};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    New,
    /// Add a node to the n-th graph that allocates so many bytes on a device.
    Allocate(usize, u64, u16),
    /// Add a node to a graph that frees the n-th memory of nodes, live memory first.
    Free(usize, usize),
    Begin,
    /// Capture an allocation of so many bytes in the n-th open capture.
    Capture(usize, u64),
    /// End the n-th open capture, which makes a graph if it was not invalidated.
    End(usize, bool),
    /// Instantiate the n-th graph.
    Build(usize),
    /// Launch the n-th executable graph.
    Launch(usize),
    Destroy(usize),
    DestroyExecutable(usize),
}

/// A node that allocates.
#[derive(Clone, Copy, Debug)]
struct Node {
    address: u64,
    bytes: u64,
    device: u16,
}

#[derive(Clone, Debug, Default)]
struct Nodes {
    handle: u64,
    allocates: Vec<Node>,
    frees: Vec<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Graphs {
    graphs: Vec<Nodes>,
    executables: Vec<Nodes>,
    /// Captures that have not ended, by number.
    captures: Vec<(u16, Nodes)>,
    last_capture: u16,
}

impl Graphs {
    fn all(&self) -> impl Iterator<Item = &Nodes> {
        let captured = self.captures.iter().map(|(_, nodes)| nodes);
        self.graphs.iter().chain(&self.executables).chain(captured)
    }

    /// Whether the address is that of a node, with or without memory.
    pub(crate) fn has(&self, address: u64) -> bool {
        let mut nodes = self.all().flat_map(|graph| &graph.allocates);
        nodes.any(|node| node.address == address)
    }

    fn unused_handle(&self) -> u64 {
        crate::program::lowest(0x4000, 0x10, |h| self.all().any(|graph| graph.handle == h))
    }
}

fn about(address: u64) -> Args {
    Args {
        address,
        ..Args::default()
    }
}

impl Program {
    pub(crate) fn graph(&mut self, engine: &mut Engine, step: Step) {
        match step {
            Step::New => {
                let handle = self.graphs.unused_handle();
                self.graphs.graphs.push(Nodes {
                    handle,
                    ..Nodes::default()
                });
            }
            Step::Allocate(n, bytes, device) => self.add_node(engine, n, bytes, device),
            Step::Free(n, which) => self.add_free_node(engine, n, which),
            Step::Begin => {
                self.graphs.last_capture += 1;
                let number = self.graphs.last_capture;
                self.graphs.captures.push((number, Nodes::default()));
            }
            Step::Capture(n, bytes) => self.capture(engine, n, bytes),
            Step::End(n, succeeds) => self.end_capture(engine, n, succeeds),
            Step::Build(n) => self.build(engine, n),
            Step::Launch(n) => self.launch(engine, n),
            Step::Destroy(n) if n < self.graphs.graphs.len() => {
                let handle = self.graphs.graphs.swap_remove(n).handle;
                self.call(engine, "cuGraphDestroy", about(handle));
            }
            Step::DestroyExecutable(n) if n < self.graphs.executables.len() => {
                let handle = self.graphs.executables.swap_remove(n).handle;
                self.call(engine, "cuGraphExecDestroy", about(handle));
            }
            Step::Destroy(_) | Step::DestroyExecutable(_) => {}
        }
    }

    fn add_node(&mut self, engine: &mut Engine, n: usize, bytes: u64, device: u16) {
        let (device, address) = (self.device(device), address_of(self.free_slot()));
        let Some(graph) = self.graphs.graphs.get_mut(n) else {
            return;
        };
        graph.allocates.push(Node {
            address,
            bytes,
            device,
        });
        let args = Args {
            bytes,
            device: Some(device),
            out: address,
            ..about(graph.handle)
        };
        self.call(engine, "cuGraphAddMemAllocNode", args);
    }

    fn add_free_node(&mut self, engine: &mut Engine, n: usize, which: usize) {
        let nodes = self.graphs.all().flat_map(|graph| &graph.allocates);
        let addresses = nodes.map(|node| node.address);
        let (live, others): (Vec<_>, Vec<_>) = addresses.partition(|a| self.is_node_live(*a));
        let address = live.into_iter().chain(others).nth(which);
        let (Some(address), Some(graph)) = (address, self.graphs.graphs.get_mut(n)) else {
            return;
        };
        if !graph.frees.contains(&address) {
            graph.frees.push(address);
            let args = Args {
                stream: address,
                ..about(graph.handle)
            };
            self.call(engine, "cuGraphAddMemFreeNode", args);
        }
    }

    fn capture(&mut self, engine: &mut Engine, n: usize, bytes: u64) {
        let address = address_of(self.free_slot());
        let Some((number, nodes)) = self.graphs.captures.get_mut(n) else {
            return;
        };
        nodes.allocates.push(Node {
            address,
            bytes,
            device: 0,
        });
        let args = Args {
            bytes,
            device: Some(0),
            captured: true,
            context: *number,
            ..about(address)
        };
        self.call(engine, "cuMemAllocAsync", args);
    }

    fn end_capture(&mut self, engine: &mut Engine, n: usize, succeeds: bool) {
        if n >= self.graphs.captures.len() {
            return;
        }
        let handle = self.graphs.unused_handle();
        let (context, nodes) = self.graphs.captures.swap_remove(n);
        let args = |out| Args {
            context,
            out,
            ..Args::default()
        };
        if succeeds {
            self.call(engine, "cuStreamEndCapture", args(handle));
            self.graphs.graphs.push(Nodes { handle, ..nodes });
        } else {
            self.fail(engine, "cuStreamEndCapture", args(0), 1);
        }
    }

    /// A graph with allocations has one executable graph at a time.
    fn build(&mut self, engine: &mut Engine, n: usize) {
        let Some(graph) = self.graphs.graphs.get(n).cloned() else {
            return;
        };
        let is_there = |address| graph.allocates.iter().any(|node| node.address == address);
        let is_built = |other: &Nodes| other.allocates.iter().any(|node| is_there(node.address));
        if self.graphs.executables.iter().any(is_built) {
            return;
        }
        let handle = self.graphs.unused_handle();
        let args = Args {
            out: handle,
            ..about(graph.handle)
        };
        self.call(engine, "cuGraphInstantiateWithFlags", args);
        self.graphs.executables.push(Nodes { handle, ..graph });
    }

    /// Whether memory of a node is live at this address.
    fn is_node_live(&self, address: u64) -> bool {
        let place = Some((Space::Device, address));
        let mut live = self.account.live();
        live.any(|(_, block)| block.kind == Graph && block.place == place)
    }

    /// Fails if memory that the graph allocates is live already, or memory that it frees is not.
    fn launch(&mut self, engine: &mut Engine, n: usize) {
        let Some(graph) = self.graphs.executables.get(n).cloned() else {
            return;
        };
        let its_own = |address: &u64| graph.allocates.iter().any(|node| node.address == *address);
        let clashes = |node: &Node| self.account.is_taken(Space::Device, node.address);
        let mut others = graph.frees.iter().filter(|address| !its_own(address));
        if graph.allocates.iter().any(clashes) || others.any(|&a| !self.is_node_live(a)) {
            self.fail(engine, "cuGraphLaunch", about(graph.handle), 1);
            return;
        }
        let at_ns = self.call(engine, "cuGraphLaunch", about(graph.handle));
        let is_freed = |address: u64| graph.frees.contains(&address);
        self.account.blocks.retain(|_, block| {
            let place = block.place.filter(|(space, _)| *space == Space::Device);
            block.is_freed || place.is_none_or(|(_, address)| !is_freed(address))
        });
        let left = graph.allocates.iter().filter(|n| !is_freed(n.address));
        for node in left {
            self.account.add(Block {
                kind: Graph,
                bytes: node.bytes,
                device: Some(node.device),
                is_host: false,
                place: Some((Space::Device, node.address)),
                context: None,
                is_freed: false,
            });
            // One after the other: what had the address of a later node is not known to be gone. The
            // peak of all processes is that after the call.
            self.collect();
            self.account.settle(at_ns);
        }
        self.settle(engine, at_ns);
    }
}
