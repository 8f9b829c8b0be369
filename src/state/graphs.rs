//! Graphs whose nodes allocate and free memory. A node has its address from the moment it is
//! added, but takes memory only once the graph is launched, and keeps it until it is freed: by
//! another graph, or like other memory. Destroying the graph frees nothing. Seen with driver 580.

use std::collections::HashMap;

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

/// The graphs of one process that have such nodes.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    /// Graphs and their executable forms.
    nodes: HashMap<u64, Vec<Node>>,
    /// What threads have captured so far, by thread.
    captured: HashMap<u32, Vec<Node>>,
}

impl Graphs {
    pub(super) fn add(&mut self, graph: u64, node: Node) {
        self.nodes.entry(graph).or_default().push(node);
    }

    /// A call on a stream that is being captured became a node.
    pub(super) fn capture(&mut self, node: Node) {
        self.captured.entry(node.tid).or_default().push(node);
    }

    /// The thread `tid` has ended a capture, which gave `graph`.
    pub(super) fn end_capture(&mut self, tid: u32, graph: u64) {
        if let Some(nodes) = self.captured.remove(&tid)
            && graph != 0
        {
            self.nodes.entry(graph).or_default().extend(nodes);
        }
    }

    /// `executable` was made of `graph`.
    pub(super) fn build(&mut self, graph: u64, executable: u64) {
        match self.nodes.get(&graph).cloned() {
            Some(nodes) => self.nodes.insert(executable, nodes),
            None => self.nodes.remove(&executable),
        };
    }

    pub(super) fn destroy(&mut self, graph: u64) {
        self.nodes.remove(&graph);
    }

    /// What a launch of `executable` leaves allocated, and what it frees that it did not allocate.
    pub(super) fn launch(&self, executable: u64) -> (Vec<Node>, Vec<Node>) {
        let nodes = self.nodes.get(&executable).map_or(&[][..], Vec::as_slice);
        let (allocated, freed): (Vec<Node>, Vec<Node>) =
            nodes.iter().partition(|node| node.size_bytes.is_some());
        let is_in = |list: &[Node], node: &Node| list.iter().any(|n| n.address == node.address);
        let left = allocated.iter().filter(|n| !is_in(&freed, n));
        let others = freed.iter().filter(|n| !is_in(&allocated, n));
        (left.copied().collect(), others.copied().collect())
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

    #[test]
    fn what_a_graph_frees_itself_is_not_left() {
        let mut graphs = Graphs::default();
        let (kept, temporary, other) = (node(1, Some(8)), node(2, Some(8)), node(3, None));
        for n in [kept, temporary, node(2, None), other] {
            graphs.add(0xa, n);
        }
        assert_eq!(graphs.launch(0xb), (vec![], vec![]));
        graphs.build(0xa, 0xb);
        graphs.destroy(0xa);
        assert_eq!(graphs.launch(0xb), (vec![kept], vec![other]));
    }

    #[test]
    fn captured_calls_belong_to_the_graph_of_their_capture() {
        let mut graphs = Graphs::default();
        graphs.capture(node(1, Some(8)));
        graphs.end_capture(8, 0xc);
        graphs.end_capture(7, 0xa);
        graphs.build(0xa, 0xb);
        assert_eq!(graphs.launch(0xb).0, [node(1, Some(8))]);
        // The value of a handle is used again for a graph without memory.
        graphs.destroy(0xa);
        graphs.build(0xa, 0xb);
        assert_eq!(graphs.launch(0xb), (vec![], vec![]));
    }
}
