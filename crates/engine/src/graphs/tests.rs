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
    let made = graphs.launch(executable, 1_000_000_000_000);
    made.map_or(LaunchedGraph::default(), |made| made.launched.clone())
}

#[test]
fn memory_freed_within_the_graph_is_not_live() {
    let mut graphs = Graphs::default();
    let (kept, temporary, other) = (node(1, Some(8)), node(2, Some(8)), node(3, None));
    graphs.add(0xa, [kept, temporary, node(2, None), other]);
    assert_eq!(launch(&mut graphs, 0xb), LaunchedGraph::default());
    graphs.build(0xa, 0xb);
    graphs.destroy(0xa);
    let launched = launch(&mut graphs, 0xb);
    assert_eq!((launched.allocated, launched.freed), (vec![kept], vec![3]));
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
fn graphs_are_bounded() {
    let mut graphs = Graphs::default();
    let most = MAX_NODES as u64;
    graphs.add(0xa, (0..most / 2).map(|at| node(at, Some(8))));
    for executable in 0..100 {
        // All of them share one effect.
        graphs.build(0xa, 0x100 + executable);
    }
    assert_eq!(graphs.held.get(), MAX_NODES);
    assert_eq!(graphs.take_left_out(), 0);
    graphs.add(0xb, [node(1, Some(8)), node(2, Some(8))]);
    assert_eq!(graphs.take_left_out(), 2);
    for executable in 0..100 {
        graphs.destroy(0x100 + executable);
    }
    graphs.destroy(0xa);
    assert_eq!(graphs.held.get(), 0);
    graphs.add(0xb, [node(1, Some(8))]);
    graphs.build(0xb, 0xc);
    assert_eq!(launch(&mut graphs, 0xc).allocated, [node(1, Some(8))]);
    assert_eq!(graphs.take_left_out(), 0);
    for graph in 0..MAX_GRAPHS as u64 + 100 {
        graphs.build(0xb, 0x1000 + graph);
    }
    assert_eq!(graphs.graphs.len(), MAX_GRAPHS);
    assert_eq!(graphs.take_left_out(), 102);
}

#[test]
fn launches_beyond_the_rate_limit_are_dropped() {
    let mut graphs = Graphs::default();
    graphs.add(0xa, (0..100_000).map(|at| node(at, Some(8))));
    graphs.build(0xa, 0xb);
    let start = 1_000_000_000_000;
    let launches = 100_000;
    let done = (0..launches)
        .filter(|number| graphs.launch(0xb, start + number * 10_000).is_some())
        .count() as u64;
    // The rate of one second, and the burst.
    assert_eq!(done, (MAX_CHANGES + CHANGES_PER_SECOND) / 100_000);
    assert_eq!(graphs.take_left_out(), launches - done);
}

#[test]
fn the_changes_of_launches_are_allocations_and_frees() {
    let mut graphs = Graphs::default();
    graphs.add(0xa, [node(1, Some(8)), node(2, Some(8)), node(3, None)]);
    let nodes = graphs.held.get();
    graphs.build(0xa, 0xb);
    assert_eq!((nodes, graphs.held.get()), (3, 6));
    let now_ns = 1_000_000_000_000;
    assert_eq!(graphs.launch(0xb, now_ns).unwrap().launched.changes(), 3);
    // A launch takes three of what is left.
    let rest = MAX_CHANGES - 3;
    for (spent, is_done) in [(rest - 3, true), (rest - 5, false)] {
        let mut graphs = Graphs::default();
        graphs.add(0xa, [node(1, Some(8)), node(2, Some(8)), node(3, None)]);
        graphs.build(0xa, 0xb);
        let mut take = |spent| {
            graphs
                .changes
                .take(spent, now_ns, MAX_CHANGES, CHANGES_PER_SECOND)
        };
        assert!(take(if is_done { spent + 3 } else { spent + 6 }));
        assert_eq!(graphs.launch(0xb, now_ns).is_some(), is_done);
        assert_eq!(graphs.take_left_out(), u64::from(!is_done));
    }
}

#[test]
fn nodes_are_counted_until_their_graph_is_gone() {
    let mut graphs = Graphs::default();
    graphs.capture(5, node(1, Some(8)));
    graphs.capture(5, node(2, Some(8)));
    graphs.capture(6, node(3, Some(8)));
    assert_eq!((graphs.held.get(), graphs.kept()), (3, 5));
    graphs.end_capture(6, 0);
    graphs.end_capture(5, 0xa);
    assert_eq!((graphs.held.get(), graphs.kept()), (2, 3));
    graphs.add(0xa, [node(4, Some(8))]);
    graphs.build(0xa, 0xb);
    assert_eq!((graphs.held.get(), graphs.kept()), (6, 8));
    // The nodes have changed: the effect is another.
    graphs.add(0xa, [node(5, Some(8))]);
    graphs.build(0xa, 0xc);
    assert_eq!(launch(&mut graphs, 0xb).allocated.len(), 3);
    assert_eq!(launch(&mut graphs, 0xc).allocated.len(), 4);
    [0xa, 0xb, 0xc]
        .iter()
        .for_each(|&graph| graphs.destroy(graph));
    assert_eq!((graphs.held.get(), graphs.kept()), (0, 0));
    // The handle is reused, and the end of the executable graph was not seen.
    graphs.add(0xa, [node(1, Some(8))]);
    graphs.build(0xa, 0xb);
    graphs.add(0xb, [node(2, Some(8))]);
    graphs.build(0xb, 0xe);
    assert_eq!(launch(&mut graphs, 0xe).allocated, [node(2, Some(8))]);
}

#[test]
fn what_finds_no_room_is_dropped_and_counted() {
    let mut graphs = Graphs::default();
    graphs.add(0xa, [node(1, Some(8))]);
    // The rest of the room.
    let most = MAX_NODES as u64;
    graphs.add(0xb, (0..most - 1).map(|at| node(at, Some(8))));
    assert_eq!(graphs.take_left_out(), 0);
    graphs.capture(5, node(1, Some(8)));
    graphs.capture(5, node(2, Some(8)));
    assert_eq!(graphs.take_left_out(), 2);
    // There is none for the effect of a graph, neither for graphs made of that one.
    graphs.build(0xa, 0xc);
    assert_eq!(graphs.take_left_out(), 0);
    assert!(graphs.launch(0xc, 1).is_none() && graphs.launch(0xc, 1).is_none());
    assert_eq!(graphs.take_left_out(), 2);
    graphs.build(0xc, 0xd);
    assert!(graphs.launch(0xd, 1).is_none());
    assert_eq!(graphs.take_left_out(), 1);
    // One that was never seen is no loss.
    assert!(graphs.launch(0x77, 1).is_none());
    assert_eq!(graphs.take_left_out(), 0);
}

#[test]
fn graphs_beyond_the_limit_are_dropped_with_their_nodes() {
    let mut graphs = Graphs::default();
    for graph in 0..MAX_GRAPHS as u64 {
        graphs.add(graph, []);
    }
    graphs.add(1 << 40, [node(1, Some(8)), node(2, Some(8))]);
    assert_eq!(
        (graphs.take_left_out(), graphs.graphs.len()),
        (2, MAX_GRAPHS)
    );
    graphs.add(1, [node(1, Some(8))]);
    graphs.build(1, 1 << 40);
    assert_eq!(graphs.take_left_out(), 1);
    // In the place of another there is room.
    graphs.build(1, 2);
    assert_eq!(
        (
            graphs.take_left_out(),
            launch(&mut graphs, 2).allocated.len()
        ),
        (0, 1)
    );
}
