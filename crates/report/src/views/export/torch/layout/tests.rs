//! The viewer can play the trace of any sequence of events backwards.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::views::export::torch::names::{Owner, StackId};

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

const OTHER: Owner = Owner::CONTEXT;

/// Result of a run: its trace, and the final memory.
struct Outcome {
    events: Vec<TraceEvent>,
    layout: DeviceLayout,
}

/// Applies the steps as `follow` does: known segments are those in which tensors were seen.
fn play(steps: &[Step], known: Option<&AllocatorState>, from_before: RangeSet<u64>) -> Outcome {
    let mut layout = DeviceLayout::with(from_before);
    let mut events = Vec::new();
    for (time_ns, step) in (100..).zip(steps) {
        apply(&mut layout, *step, time_ns, known);
        while let Some(event) = layout.next_event(false) {
            events.push(event);
        }
    }
    while let Some(event) = layout.next_event(true) {
        events.push(event);
    }
    Outcome { events, layout }
}

fn apply(layout: &mut DeviceLayout, step: Step, time_ns: u64, known: Option<&AllocatorState>) {
    let stack = StackId::NONE;
    match step {
        Take(address, bytes, range) => {
            let is_torch = known.is_none_or(|known| {
                let is_in_range = range.is_some_and(|range| known.ranges.contains(&range));
                is_in_range || known.segments.contains(&time_ns)
            });
            let segment = SnapshotSegment {
                bytes,
                piece: range.map_or(SegmentChange::Whole, SegmentChange::Mapped),
                stack,
                owner: if is_torch { Owner::PYTORCH } else { OTHER },
                number: time_ns,
                at_gpu: true,
            };
            layout.add_segment(address, segment, time_ns);
        }
        Give(address) => layout.remove_segment(address, time_ns),
        Unmap(address, bytes) => {
            for begin in layout.unmap(address, bytes, time_ns) {
                layout.remove_segment(begin, time_ns);
            }
        }
        FreeUnseen(address) => layout.free_unseen(address, time_ns),
        HandOut(address, bytes) => layout.allocate(TensorChange {
            address,
            bytes,
            time_ns,
            stack,
        }),
        TakeBack(address, bytes, ago) => layout.free(TensorChange {
            address,
            bytes,
            time_ns: time_ns - ago,
            stack,
        }),
        Request(address, bytes, stream) => layout.request(address, bytes, stream),
    }
}

/// Both passes over the same steps.
fn follow(steps: &[Step]) -> Outcome {
    let found = play(steps, None, RangeSet::new()).layout.found();
    play(steps, Some(&found), found.from_before.clone())
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
        for run in layout.runs() {
            let mut at = run.address;
            for tile in layout.tiles(&run) {
                assert_eq!(tile.address, at, "{run:?}");
                at += tile.bytes;
                if let Some(block) = tile.block {
                    assert!(0 < block.requested && block.requested <= block.bytes);
                    viewer.blocks.insert(tile.address, block.requested);
                }
            }
            assert_eq!(at, run.address + run.bytes, "{run:?}");
            viewer.segments.push((run.address, run.bytes, run.stream));
        }
        assert_eq!(viewer.blocks.len(), layout.blocks.len());
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
            TraceAction::Alloc => {
                assert_eq!(self.blocks.remove(&address), Some(bytes), "{event:?}");
            }
            TraceAction::Free => assert_eq!(self.blocks.insert(address, bytes), None, "{event:?}"),
            TraceAction::SegmentAlloc => {
                let at = self.segments.iter().position(|s| s.0 == address);
                let gone = self.segments.remove(at.unwrap());
                assert_eq!(gone.1, bytes);
            }
            TraceAction::SegmentFree => self.insert(event),
            TraceAction::SegmentUnmap => {
                let at = self.insert_at(event);
                self.merge(at);
                if let Some(before) = at.checked_sub(1) {
                    self.merge(before);
                }
            }
            TraceAction::SegmentMap => self.cut(address, address + bytes),
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
fn check(run: &Outcome) {
    let mut viewer = Viewer::at_end(&run.layout);
    viewer.check();
    for event in run.events.iter().rev() {
        viewer.undo(event);
        // Within one step, a segment may be there without its block.
        viewer.check();
    }
    for two in run.events.windows(2) {
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
        check(&follow(&steps));
    }
}

#[test]
fn requested_sizes_may_arrive_late() {
    let mut steps = vec![Take(WHOLE, 4, None), HandOut(WHOLE, 4)];
    for number in 0..1000 {
        steps.push(HandOut(0x1000 + number, 1));
    }
    steps.push(Request(WHOLE, 3, 9));
    let outcome = follow(&steps);
    let found = (outcome.events[1].bytes, outcome.events[1].stream);
    assert_eq!(found, (3, 9));
    assert_eq!((outcome.events[0].bytes, outcome.events[0].stream), (4, 9));
    assert_eq!(outcome.layout.blocks[&WHOLE].requested, 3);
    assert_eq!(outcome.layout.runs()[0].stream, 9);
}
