use super::*;

fn node(address: u64, size_bytes: Option<u64>) -> MemoryNode {
    MemoryNode {
        address,
        size_bytes,
        row: 1,
        site: 0,
        tid: 7,
        device: None,
    }
}

fn launch(graphs: &mut Graphs, executable: u64) -> LaunchedGraph {
    graphs
        .launch(executable)
        .as_deref()
        .cloned()
        .unwrap_or_default()
}

#[test]
fn captured_calls_become_nodes_of_their_graph() {
    let mut graphs = Graphs::default();
    graphs.capture(7, node(1, Some(8)));
    graphs.capture(8, node(2, Some(9)));
    graphs.end_capture(9, 0xc);
    graphs.end_capture(7, 0xa);
    graphs.build(0xa, 0xb);
    assert_eq!(launch(&mut graphs, 0xb).allocated, [node(1, Some(8))]);
    // The handle is reused for a graph without memory nodes.
    graphs.destroy(0xa);
    graphs.build(0xa, 0xb);
    assert_eq!(launch(&mut graphs, 0xb), LaunchedGraph::default());
    // A failed capture is dropped, also when its number is reused.
    graphs.end_capture(8, 0);
    graphs.end_capture(8, 0xa);
    graphs.build(0xa, 0xb);
    assert_eq!(launch(&mut graphs, 0xb), LaunchedGraph::default());
}

#[test]
fn launching_a_large_graph_is_fast() {
    let mut graphs = Graphs::default();
    let nodes = (0..200_000).flat_map(|at| [node(at, Some(8)), node(at, None)]);
    graphs.add(0xa, nodes);
    graphs.build(0xa, 0xb);
    for _ in 0..100_000 {
        assert_eq!(launch(&mut graphs, 0xb), LaunchedGraph::default());
    }
}

#[test]
fn nodes_are_counted_until_their_graph_is_gone() {
    let mut graphs = Graphs::default();
    graphs.capture(5, node(1, Some(8)));
    graphs.capture(5, node(2, Some(8)));
    graphs.capture(6, node(3, Some(8)));
    assert_eq!((graphs.size, graphs.kept()), (3, 5));
    graphs.end_capture(6, 0);
    graphs.end_capture(5, 0xa);
    assert_eq!((graphs.size, graphs.kept()), (2, 3));
    graphs.add(0xa, [node(4, Some(8))]);
    graphs.build(0xa, 0xb);
    assert_eq!((graphs.size, graphs.kept()), (6, 8));
    // The nodes have changed: the effect is another.
    graphs.add(0xa, [node(5, Some(8))]);
    graphs.build(0xa, 0xc);
    assert_eq!(launch(&mut graphs, 0xb).allocated.len(), 3);
    assert_eq!(launch(&mut graphs, 0xc).allocated.len(), 4);
    [0xa, 0xb, 0xc]
        .iter()
        .for_each(|&graph| graphs.destroy(graph));
    assert_eq!((graphs.size, graphs.kept()), (0, 0));
    // The handle is reused, and the end of the executable graph was not seen.
    graphs.add(0xa, [node(1, Some(8))]);
    graphs.build(0xa, 0xb);
    graphs.add(0xb, [node(2, Some(8))]);
    graphs.build(0xb, 0xe);
    assert_eq!(launch(&mut graphs, 0xe).allocated, [node(2, Some(8))]);
}
