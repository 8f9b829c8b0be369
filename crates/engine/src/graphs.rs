//! Graphs with memory allocation and free nodes. An allocation node has its address as soon as it
//! is added, but takes memory only once the graph is launched, and keeps it until it is freed: by
//! another graph, or like other memory. Destroying the graph frees nothing. Observed with driver
//! 580.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::allowance::Allowance;

/// A node that allocates or frees memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryNode {
    pub(super) address: u64,
    /// Bytes allocated; `None` for a free node.
    pub(super) size_bytes: Option<u64>,
    pub(super) row: u16,
    /// Number of the call site that added the node; 0 for a free node.
    pub(super) site: u32,
    pub(super) tid: u32,
    pub(super) device: Option<u16>,
}

/// Effect of a launch of an executable graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LaunchedGraph {
    /// Nodes whose memory is still allocated after the launch.
    pub(super) allocated: Vec<MemoryNode>,
    /// Addresses that the graph frees and did not allocate.
    pub(super) freed: Vec<u64>,
}

impl LaunchedGraph {
    /// Number of changes that a launch makes.
    fn changes(&self) -> usize {
        self.allocated.len() + self.freed.len()
    }

    /// Computes the effect once, as graphs have many nodes and are launched often.
    fn of(nodes: &[MemoryNode]) -> Self {
        let addresses = |allocates: bool| {
            let of_sort = nodes
                .iter()
                .filter(move |n| n.size_bytes.is_some() == allocates);
            of_sort.map(|node| node.address)
        };
        let [gone, own] = [false, true].map(|sort| addresses(sort).collect::<HashSet<_>>());
        let stays = |node: &&MemoryNode| node.size_bytes.is_some() && !gone.contains(&node.address);
        Self {
            allocated: nodes.iter().filter(stays).copied().collect(),
            freed: addresses(false).filter(|a| !own.contains(a)).collect(),
        }
    }
}

/// Limit on the nodes of all graphs of a process and on their computed effects: about 50 MB.
const MAX_NODES: usize = 1 << 20;
/// Graphs and executable graphs kept per process.
const MAX_GRAPHS: usize = 1 << 18;
/// Changes by launches, per second and at once: each takes a fraction of a microsecond, and a
/// program can launch a graph of a million nodes a million times a second.
const CHANGES_PER_SECOND: u64 = 2_000_000;
const MAX_CHANGES: u64 = 4 << 20;

/// Units counted against [`MAX_NODES`] until dropped.
#[derive(Debug)]
struct CountedNode {
    nodes: usize,
    all: Rc<Cell<usize>>,
}

impl CountedNode {
    fn new(all: &Rc<Cell<usize>>, nodes: usize) -> Self {
        let all = Rc::clone(all);
        all.set(all.get() + nodes);
        Self { nodes, all }
    }
}

impl Drop for CountedNode {
    fn drop(&mut self) {
        self.all.set(self.all.get() - self.nodes);
    }
}

/// An executable graph, shared by all that were instantiated from the same nodes.
#[derive(Debug)]
pub(super) struct Executable {
    pub(super) launched: LaunchedGraph,
    _held: CountedNode,
}

/// The nodes of a graph.
#[derive(Debug)]
struct Nodes {
    nodes: Vec<MemoryNode>,
    held: CountedNode,
    /// Computed effect of the nodes, until they change.
    made: Option<Rc<Executable>>,
}

/// A graph, or an executable graph.
#[derive(Debug)]
enum Graph {
    Nodes(Nodes),
    Executable(Rc<Executable>),
    /// Dropped for lack of room: the effect of its launches is unknown.
    Omitted,
}

/// The graphs of one process that have memory nodes.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    graphs: HashMap<u64, Graph>,
    /// Nodes captured so far, by capture number.
    captured: HashMap<u16, Nodes>,
    /// Number of nodes held by all graphs.
    held: Rc<Cell<usize>>,
    changes: Allowance,
    /// Nodes and launches dropped for lack of room or time.
    left_out: u64,
}

impl Graphs {
    /// Number of nodes and graphs kept.
    pub(super) fn kept(&self) -> usize {
        self.held.get() + self.graphs.len() + self.captured.len()
    }

    pub(super) fn add(&mut self, graph: u64, nodes: impl IntoIterator<Item = MemoryNode>) {
        let empty = self.empty();
        let is_full = self.graphs.len() >= MAX_GRAPHS;
        let known = match self.graphs.entry(graph) {
            Entry::Vacant(_) if is_full => {
                self.left_out += nodes.into_iter().count() as u64;
                return;
            }
            Entry::Vacant(place) => place.insert(Graph::Nodes(empty)),
            Entry::Occupied(place) => {
                let known = place.into_mut();
                // The handle is reused: the end of its former graph was not seen.
                if !matches!(known, Graph::Nodes(_)) {
                    *known = Graph::Nodes(empty);
                }
                known
            }
        };
        if let Graph::Nodes(known) = known {
            self.left_out += known.extend(nodes);
        }
    }

    fn empty(&self) -> Nodes {
        Nodes {
            nodes: Vec::new(),
            held: CountedNode::new(&self.held, 0),
            made: None,
        }
    }

    /// Adds the node that a call on a stream in capture mode became.
    pub(super) fn capture(&mut self, number: u16, node: MemoryNode) {
        let empty = self.empty();
        let captured = self.captured.entry(number).or_insert(empty);
        self.left_out += captured.extend([node]);
    }

    /// Ends a capture, which made `graph`; 0 if it failed.
    pub(super) fn end_capture(&mut self, number: u16, graph: u64) {
        if let Some(Nodes { nodes, held, .. }) = self.captured.remove(&number)
            && graph != 0
        {
            drop(held);
            self.add(graph, nodes);
        }
    }

    /// Instantiates `graph` as `executable`.
    pub(super) fn build(&mut self, graph: u64, executable: u64) {
        let is_full = self.graphs.len() >= MAX_GRAPHS && !self.graphs.contains_key(&executable);
        let made = match self.graphs.get_mut(&graph) {
            Some(Graph::Nodes(nodes)) => nodes.make(),
            Some(Graph::Omitted) => None,
            _ => return drop(self.graphs.remove(&executable)),
        };
        let made = made.map_or(Graph::Omitted, Graph::Executable);
        if is_full {
            self.left_out += 1;
        } else {
            self.graphs.insert(executable, made);
        }
    }

    pub(super) fn destroy(&mut self, graph: u64) {
        self.graphs.remove(&graph);
    }

    /// The effect of a launch of `executable` that ended at `now_ns`; `None` if it does not affect
    /// memory.
    pub(super) fn launch(&mut self, executable: u64, now_ns: u64) -> Option<Rc<Executable>> {
        let made = match self.graphs.get(&executable) {
            Some(Graph::Executable(made)) => Rc::clone(made),
            Some(Graph::Omitted) => {
                self.left_out += 1;
                return None;
            }
            _ => return None,
        };
        let changes = made.launched.changes() as u64;
        let allowance = &mut self.changes;
        let may = allowance.take(changes, now_ns, MAX_CHANGES, CHANGES_PER_SECOND);
        self.left_out += u64::from(!may);
        may.then_some(made)
    }

    /// Nodes and launches dropped since the last call of this function.
    pub(super) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

impl Nodes {
    /// Adds nodes; returns the number dropped for lack of room.
    fn extend(&mut self, nodes: impl IntoIterator<Item = MemoryNode>) -> u64 {
        self.made = None;
        let mut left_out = 0;
        for node in nodes {
            let all = self.held.all.get();
            if all >= MAX_NODES {
                left_out += 1;
                continue;
            }
            self.held.all.set(all + 1);
            self.held.nodes += 1;
            self.nodes.push(node);
        }
        left_out
    }

    /// The effect of the nodes; `None` if there is no room for it.
    fn make(&mut self) -> Option<Rc<Executable>> {
        let all = &self.held.all;
        if self.made.is_none() && all.get() < MAX_NODES {
            let launched = LaunchedGraph::of(&self.nodes);
            self.made = Some(Rc::new(Executable {
                _held: CountedNode::new(all, launched.changes()),
                launched,
            }));
        }
        self.made.clone()
    }
}

#[cfg(test)]
mod tests;
