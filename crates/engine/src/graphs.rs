//! Graphs with memory allocation and free nodes. An allocation node has its address as soon as it
//! is added, but takes memory only once the graph is launched, and keeps it until it is freed: by
//! another graph, or like other memory. Destroying the graph frees nothing. Observed with driver
//! 580.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

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

/// A graph, or an executable graph.
#[derive(Debug)]
enum Graph {
    Nodes(Vec<MemoryNode>),
    Executable(Rc<LaunchedGraph>),
}

impl Graph {
    /// Number of nodes, or of changes that a launch makes.
    fn size(&self) -> usize {
        match self {
            Self::Nodes(nodes) => nodes.len(),
            Self::Executable(launched) => launched.allocated.len() + launched.freed.len(),
        }
    }
}

/// The graphs of one process that have memory nodes.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    graphs: HashMap<u64, Graph>,
    /// Nodes captured so far, by capture number.
    captured: HashMap<u16, Vec<MemoryNode>>,
    /// Sizes of all graphs, and of what was captured.
    size: usize,
}

impl Graphs {
    /// Number of nodes and graphs kept.
    pub(super) fn kept(&self) -> usize {
        self.size + self.graphs.len() + self.captured.len()
    }

    pub(super) fn add(&mut self, graph: u64, nodes: impl IntoIterator<Item = MemoryNode>) {
        // The handle is reused: the end of its former graph was not seen.
        if let Some(Graph::Executable(_)) = self.graphs.get(&graph) {
            self.destroy(graph);
        }
        let empty = Graph::Nodes(Vec::new());
        if let Graph::Nodes(known) = self.graphs.entry(graph).or_insert(empty) {
            let before = known.len();
            known.extend(nodes);
            self.size += known.len() - before;
        }
    }

    /// Adds the node that a call on a stream in capture mode became.
    pub(super) fn capture(&mut self, number: u16, node: MemoryNode) {
        self.captured.entry(number).or_default().push(node);
        self.size += 1;
    }

    /// Ends a capture, which made `graph`; 0 if it failed.
    pub(super) fn end_capture(&mut self, number: u16, graph: u64) {
        let Some(nodes) = self.captured.remove(&number) else {
            return;
        };
        self.size -= nodes.len();
        if graph != 0 {
            self.add(graph, nodes);
        }
    }

    /// Instantiates `graph` as `executable`.
    pub(super) fn build(&mut self, graph: u64, executable: u64) {
        self.destroy(executable);
        if let Some(Graph::Nodes(nodes)) = self.graphs.get(&graph) {
            let made = Graph::Executable(Rc::new(LaunchedGraph::of(nodes)));
            self.size += made.size();
            self.graphs.insert(executable, made);
        }
    }

    pub(super) fn destroy(&mut self, graph: u64) {
        let gone = self.graphs.remove(&graph);
        self.size -= gone.map_or(0, |gone| gone.size());
    }

    /// The effect of a launch of `executable`; `None` if it does not affect memory.
    pub(super) fn launch(&self, executable: u64) -> Option<Rc<LaunchedGraph>> {
        match self.graphs.get(&executable)? {
            Graph::Executable(launched) => Some(Rc::clone(launched)),
            Graph::Nodes(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
