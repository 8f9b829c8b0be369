//! The viewer can play the trace of any sequence of events backwards.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// An event in the model. Times follow from the order.
#[derive(Clone, Copy, Debug)]
enum Step {
    Take(u64, u64, Option<u64>),
    Give(u64),
    Unmap(u64, u64),
    FreeUnseen(u64),
    HandOut(u64, u64),
    /// Frees the block at an address that was allocated that many steps ago.
    TakeBack(u64, u64, u64),
    Request(u64, u64, i64),
}
use Step::*;

/// The layout after the steps.
fn play(steps: &[Step]) -> DeviceLayout {
    let mut layout = DeviceLayout::default();
    for (time_ns, step) in (100..).zip(steps) {
        apply(&mut layout, *step, time_ns);
    }
    layout
}

fn apply(layout: &mut DeviceLayout, step: Step, time_ns: u64) {
    match step {
        Take(address, bytes, range) => {
            let kind = range.map_or(Kind::Allocation, Kind::Mapping);
            layout.add_segment(Piece::new(kind, address, bytes, time_ns));
        }
        Give(address) => layout.remove_segment(address, time_ns),
        Unmap(address, bytes) => layout.unmap((address, bytes), time_ns, |_| false),
        FreeUnseen(address) => layout.free_unseen(address, time_ns),
        HandOut(address, bytes) => {
            layout.allocate(Piece::new(Kind::Block, address, bytes, time_ns));
        }
        TakeBack(address, bytes, ago) => {
            layout.free(Piece::new(Kind::Block, address, bytes, time_ns - ago));
        }
        Request(address, bytes, stream) => layout.request(address, bytes, stream),
    }
}

/// State of the viewer: segments (address, bytes, stream) by address, and bytes of blocks.
struct Viewer {
    segments: Vec<(u64, u64, i64)>,
    blocks: BTreeMap<u64, u64>,
}

impl Viewer {
    fn at_end(layout: &DeviceLayout) -> Self {
        let mut viewer = Self {
            segments: Vec::new(),
            blocks: BTreeMap::new(),
        };
        let mut others = 0;
        for run in layout.segments(0) {
            let mut at = run.address;
            for block in &run.blocks {
                assert_eq!(block.address, at, "{run:?}");
                at += block.bytes;
                if let Some(requested) = block.requested {
                    assert!(0 < requested && requested <= block.bytes);
                    viewer.blocks.insert(block.address, requested);
                }
            }
            assert_eq!(at, run.address + run.bytes, "{run:?}");
            viewer.segments.push((run.address, run.bytes, run.stream));
            others += usize::from(run.stream == NO_STREAM);
        }
        assert_eq!(viewer.blocks.len(), layout.blocks.len() + others);
        viewer
    }

    /// Finds the segment of every block, as the viewer does.
    fn check(&self) {
        for two in self.segments.windows(2) {
            assert!(two[0].0 + two[0].1 <= two[1].0, "{:?}", self.segments);
        }
        for address in self.blocks.keys() {
            let found = self.segments.binary_search_by(|&(at, bytes, _)| {
                if *address < at {
                    std::cmp::Ordering::Greater
                } else if *address >= at + bytes {
                    std::cmp::Ordering::Less
                } else {
                    std::cmp::Ordering::Equal
                }
            });
            assert!(found.is_ok(), "{address:#x} in {:x?}", self.segments);
        }
    }

    fn undo(&mut self, event: &TraceEvent) {
        let (address, bytes) = (event.address, event.bytes);
        match event.action {
            "alloc" => {
                assert_eq!(self.blocks.remove(&address), Some(bytes), "{event:?}");
            }
            "free_requested" => {}
            "free_completed" => assert_eq!(self.blocks.insert(address, bytes), None, "{event:?}"),
            "segment_alloc" => {
                let at = self.segments.iter().position(|s| s.0 == address);
                let gone = self.segments.remove(at.unwrap());
                assert_eq!(gone.1, bytes);
            }
            "segment_free" => self.insert(event),
            "segment_unmap" => {
                let at = self.insert_at(event);
                self.merge(at);
                if let Some(before) = at.checked_sub(1) {
                    self.merge(before);
                }
            }
            "segment_map" => self.cut(address, address + bytes),
            other => unreachable!("{other}"),
        }
    }

    fn insert(&mut self, event: &TraceEvent) {
        self.insert_at(event);
    }

    fn insert_at(&mut self, event: &TraceEvent) -> usize {
        let at = self.segments.partition_point(|s| s.0 <= event.address);
        self.segments
            .insert(at, (event.address, event.bytes, event.stream));
        at
    }

    /// Adjacent segments with the same stream are merged.
    fn merge(&mut self, at: usize) {
        if let [one, next, ..] = &mut self.segments[at..]
            && (one.0 + one.1, one.2) == (next.0, next.2)
        {
            one.1 += next.1;
            self.segments.remove(at + 1);
        }
    }

    fn cut(&mut self, from: u64, until: u64) {
        let around = |s: &(u64, u64, i64)| s.0 <= from && until <= s.0 + s.1;
        let at = self.segments.iter().position(around);
        let (begin, bytes, stream) = self.segments.remove(at.unwrap());
        let rest = [(begin, from), (until, begin + bytes)];
        for (from, until) in rest.into_iter().rev().filter(|(from, until)| from < until) {
            self.segments
                .insert(at.unwrap(), (from, until - from, stream));
        }
    }
}

/// Plays a trace backwards.
fn check(layout: &DeviceLayout) {
    let mut viewer = Viewer::at_end(layout);
    viewer.check();
    let events: Vec<_> = layout.trace().collect();
    for event in events.iter().rev() {
        viewer.undo(event);
        // Within one step, a segment may be there without its block.
        viewer.check();
    }
    for two in events.windows(2) {
        assert!(two[0].time_ns <= two[1].time_ns);
    }
}

/// Segments are in two places, as in a process: allocations, and mappings, in two adjacent reserved
/// ranges.
const WHOLE: u64 = 0x100;
const MAPPED: u64 = 0x200;
const RANGE: u64 = 0x10;

fn step() -> impl Strategy<Value = Step> {
    let whole = (0u64..24).prop_map(|at| WHOLE + at);
    let mapped = (0u64..2 * RANGE).prop_map(|at| MAPPED + at);
    let anywhere = prop_oneof![whole.clone(), mapped.clone()];
    let reserved = |at: u64| MAPPED + (at - MAPPED) / RANGE * RANGE;
    prop_oneof![
        2 => (whole, 1u64..9).prop_map(|(at, bytes)| Take(at, bytes, None)),
        2 => (mapped.clone(), 1u64..5).prop_map(move |(at, bytes)| {
            let left = reserved(at) + RANGE - at;
            Take(at, bytes.min(left), Some(reserved(at)))
        }),
        1 => anywhere.clone().prop_map(Give),
        1 => (mapped, 1u64..9).prop_map(|(at, bytes)| Unmap(at, bytes)),
        1 => anywhere.clone().prop_map(FreeUnseen),
        5 => (anywhere.clone(), 1u64..6).prop_map(|(at, bytes)| HandOut(at, bytes)),
        3 => (anywhere.clone(), 1u64..6, 0u64..3).prop_map(|(at, bytes, ago)| TakeBack(at, bytes, ago)),
        1 => (anywhere, 1u64..6, 0i64..3).prop_map(|(at, bytes, stream)| Request(at, bytes, stream)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_viewer_can_play_any_trace_backwards(steps in prop::collection::vec(step(), 0..60)) {
        check(&play(&steps));
    }
}

#[test]
fn requested_sizes_may_arrive_late() {
    let mut steps = vec![Take(WHOLE, 4, None), HandOut(WHOLE, 4)];
    for number in 0..1000 {
        steps.push(HandOut(0x1000 + number, 1));
    }
    steps.push(Request(WHOLE, 3, 9));
    let layout = play(&steps);
    let events: Vec<_> = layout.trace().take(2).collect();
    let found = events.iter().map(|event| (event.bytes, event.stream));
    assert_eq!(found.collect::<Vec<_>>(), [(4, 9), (3, 9)]);
    assert_eq!(layout.segments(0)[0].blocks[0].requested, Some(3));
    assert_eq!(layout.segments(0)[0].stream, 9);
}
