//! Graphs whose nodes allocate and free memory. A node has its address from the moment it is
//! added, but takes memory only once the graph is launched, and keeps it until it is freed: by
//! another graph, or like other memory. Destroying the graph frees nothing. Seen with driver 580.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// A node that allocates or frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) address: u64,
    /// `None` for a node that frees.
    pub(super) size_bytes: Option<u64>,
    pub(super) row: u16,
    /// Number of the call site that made the node; 0 if it frees.
    pub(super) site: u32,
    pub(super) tid: u32,
    pub(super) device: Option<u16>,
}

/// What a launch of an executable graph does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Launched {
    /// What it leaves allocated.
    pub(super) allocated: Vec<Node>,
    /// The addresses that it frees and did not allocate.
    pub(super) freed: Vec<u64>,
}

impl Launched {
    /// Graphs have many nodes and are launched often: this is found out once.
    fn of(nodes: &[Node]) -> Self {
        let (allocated, freed): (Vec<&Node>, Vec<&Node>) =
            nodes.iter().partition(|node| node.size_bytes.is_some());
        let addresses = |list: &[&Node]| list.iter().map(|n| n.address).collect::<HashSet<_>>();
        let (its_own, gone) = (addresses(&allocated), addresses(&freed));
        let left = allocated.iter().filter(|n| !gone.contains(&n.address));
        let others = freed.iter().map(|n| n.address);
        Self {
            allocated: left.copied().copied().collect(),
            freed: others.filter(|a| !its_own.contains(a)).collect(),
        }
    }
}

/// A graph, or an executable form of one.
#[derive(Debug)]
enum Graph {
    Nodes(Vec<Node>),
    Executable(Rc<Launched>),
}

/// The graphs of one process that have such nodes.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    graphs: HashMap<u64, Graph>,
    /// What was captured so far, by the number of the capture.
    captured: HashMap<u16, Vec<Node>>,
}

impl Graphs {
    pub(super) fn add(&mut self, graph: u64, nodes: impl IntoIterator<Item = Node>) {
        let graph = self.graphs.entry(graph);
        let graph = graph.or_insert_with(|| Graph::Nodes(Vec::new()));
        match graph {
            Graph::Nodes(known) => known.extend(nodes),
            // The value of a handle whose end was not seen.
            Graph::Executable(_) => *graph = Graph::Nodes(nodes.into_iter().collect()),
        }
    }

    /// A call on a stream that is being captured became a node.
    pub(super) fn capture(&mut self, number: u16, node: Node) {
        self.captured.entry(number).or_default().push(node);
    }

    /// A capture has ended and gave `graph`; 0 if it failed.
    pub(super) fn end_capture(&mut self, number: u16, graph: u64) {
        if let Some(nodes) = self.captured.remove(&number)
            && graph != 0
        {
            self.add(graph, nodes);
        }
    }

    /// `executable` was made of `graph`.
    pub(super) fn build(&mut self, graph: u64, executable: u64) {
        match self.graphs.get(&graph) {
            Some(Graph::Nodes(nodes)) => {
                let launched = Rc::new(Launched::of(nodes));
                self.graphs.insert(executable, Graph::Executable(launched));
            }
            _ => drop(self.graphs.remove(&executable)),
        }
    }

    pub(super) fn destroy(&mut self, graph: u64) {
        self.graphs.remove(&graph);
    }

    /// What a launch of `executable` does; `None` if it has nothing to do with memory.
    pub(super) fn launch(&self, executable: u64) -> Option<Rc<Launched>> {
        match self.graphs.get(&executable) {
            Some(Graph::Executable(launched)) => Some(Rc::clone(launched)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(address: u64, size_bytes: Option<u64>) -> Node {
        Node {
            address,
            size_bytes,
            row: 1,
            site: 0,
            tid: 7,
            device: None,
        }
    }

    fn launch(graphs: &Graphs, executable: u64) -> Launched {
        let launched = graphs.launch(executable).unwrap_or_default();
        Launched::clone(&launched)
    }

    #[test]
    fn what_a_graph_frees_itself_is_not_left() {
        let mut graphs = Graphs::default();
        let (kept, temporary, other) = (node(1, Some(8)), node(2, Some(8)), node(3, None));
        graphs.add(0xa, [kept, temporary, node(2, None), other]);
        assert_eq!(launch(&graphs, 0xb), Launched::default());
        graphs.build(0xa, 0xb);
        graphs.destroy(0xa);
        let launched = launch(&graphs, 0xb);
        assert_eq!((launched.allocated, launched.freed), (vec![kept], vec![3]));
    }

    #[test]
    fn captured_calls_belong_to_the_graph_of_their_capture() {
        let mut graphs = Graphs::default();
        graphs.capture(7, node(1, Some(8)));
        graphs.capture(8, node(2, Some(9)));
        graphs.end_capture(9, 0xc);
        graphs.end_capture(7, 0xa);
        graphs.build(0xa, 0xb);
        assert_eq!(launch(&graphs, 0xb).allocated, [node(1, Some(8))]);
        // The value of a handle is used again for a graph without memory.
        graphs.destroy(0xa);
        graphs.build(0xa, 0xb);
        assert_eq!(launch(&graphs, 0xb), Launched::default());
        // What failed is forgotten, also when the number is used again.
        graphs.end_capture(8, 0);
        graphs.end_capture(8, 0xa);
        graphs.build(0xa, 0xb);
        assert_eq!(launch(&graphs, 0xb), Launched::default());
    }

    #[test]
    fn graphs_of_many_nodes_are_launched_soon() {
        let mut graphs = Graphs::default();
        let nodes = (0..200_000).flat_map(|at| [node(at, Some(8)), node(at, None)]);
        graphs.add(0xa, nodes);
        graphs.build(0xa, 0xb);
        for _ in 0..100_000 {
            assert_eq!(launch(&graphs, 0xb), Launched::default());
        }
    }
}
