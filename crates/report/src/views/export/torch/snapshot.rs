//! A snapshot of PyTorch's memory: the dictionaries that `torch.cuda.memory._snapshot()` returns,
//! in the form of `torch/csrc/cuda/memory_snapshot.cpp`.

use std::collections::HashMap;
use std::io::{self, Write};

use super::layout::{DeviceLayout, Run, SnapshotBlock, Tile, TraceAction, TraceEvent};
use super::names::{StackId, StackNames, UNKNOWN};
use super::pickle::{Memo, Pickle, PickleList};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::stack::Frame;

/// Shown in place of a call stack for context memory.
const CONTEXT: &str = "what nvidia-smi says that the process uses beyond what was traced";

/// Writes a snapshot: its traces first, in the order of devices, then its segments.
pub(super) struct Snapshot<W> {
    pickle: Pickle<W>,
    clock: WallClock,
    /// Memos of frame lists, by call stack.
    stacks: HashMap<StackId, Memo>,
    frames: HashMap<FrameKey, Memo>,
    /// The list that is being written.
    list: PickleList,
    /// The list of traces, around `list`.
    traces: PickleList,
    /// Whether any segment is expandable.
    has_expandable: bool,
}

/// Function, file and line.
type FrameKey = (String, String, u32);

impl<W: Write> Snapshot<W> {
    pub(super) fn begin(out: W, clock: WallClock) -> io::Result<Self> {
        let mut pickle = Pickle::begin(out)?;
        pickle.dict()?;
        pickle.fill()?;
        pickle.text("device_traces")?;
        let traces = pickle.list()?;
        Ok(Self {
            pickle,
            clock,
            stacks: HashMap::new(),
            frames: HashMap::new(),
            list: PickleList::default(),
            traces,
            has_expandable: false,
        })
    }

    /// Begins the trace of the next device.
    pub(super) fn begin_trace(&mut self) -> io::Result<()> {
        self.pickle.item(&mut self.traces)?;
        self.list = self.pickle.list()?;
        Ok(())
    }

    /// Ends the trace; the snapshot was taken at `time_ns`, if anything was traced.
    pub(super) fn end_trace(&mut self, time_ns: Option<u64>) -> io::Result<()> {
        if let Some(time_ns) = time_ns {
            self.entry("snapshot", (0, 0, 0), time_ns)?;
            self.empty_frames()?;
            // The viewer expects that either all events have the key, or none.
            self.pickle.text("category")?;
            self.pickle.text(UNKNOWN)?;
            self.pickle.filled()?;
        }
        self.pickle.end(std::mem::take(&mut self.list))
    }

    /// Ends the traces, and begins the list of segments.
    pub(super) fn begin_segments(&mut self) -> io::Result<()> {
        self.pickle.end(std::mem::take(&mut self.traces))?;
        self.pickle.text("segments")?;
        self.list = self.pickle.list()?;
        Ok(())
    }

    /// Ends the list of segments and the snapshot.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.pickle.end(std::mem::take(&mut self.list))?;
        self.pickle.text("allocator_settings")?;
        self.pickle.dict()?;
        self.pickle.fill()?;
        self.pickle.text("expandable_segments")?;
        self.pickle.boolean(self.has_expandable)?;
        self.pickle.filled()?;
        self.pickle.filled()?;
        self.pickle.finish()
    }

    /// Writes an event of the trace.
    pub(super) fn event(&mut self, event: &TraceEvent, names: &StackNames<'_>) -> io::Result<()> {
        // The viewer expects both actions of a free, one after the other.
        let actions: &[&str] = match event.action {
            TraceAction::Alloc => &["alloc"],
            TraceAction::Free => &["free_requested", "free_completed"],
            TraceAction::SegmentAlloc => &["segment_alloc"],
            TraceAction::SegmentFree => &["segment_free"],
            TraceAction::SegmentMap => &["segment_map"],
            TraceAction::SegmentUnmap => &["segment_unmap"],
        };
        for action in actions {
            let what = (event.address, event.bytes, event.stream);
            self.entry(action, what, event.time_ns)?;
            self.stack(event.stack, names)?;
            let category = match event.action {
                TraceAction::Alloc | TraceAction::Free => names.category(event.owner, event.stack),
                _ => names.name(event.owner),
            };
            self.pickle.text("category")?;
            self.pickle.text(category)?;
            self.pickle.filled()?;
        }
        Ok(())
    }

    /// Begins an event, up to its frames, which the caller writes.
    fn entry(
        &mut self,
        action: &str,
        (address, bytes, stream): (u64, u64, i64),
        time_ns: u64,
    ) -> io::Result<()> {
        self.pickle.item(&mut self.list)?;
        self.pickle.dict()?;
        self.pickle.fill()?;
        self.pickle.text("action")?;
        self.pickle.text(action)?;
        self.number("addr", address)?;
        self.number("size", bytes)?;
        self.number("stream", stream)?;
        self.number("time_us", self.clock.wall(time_ns).timestamp_micros())
    }

    fn number(&mut self, key: &str, value: impl Into<i128>) -> io::Result<()> {
        self.pickle.text(key)?;
        self.pickle.integer(value)
    }

    fn empty_frames(&mut self) -> io::Result<()> {
        self.pickle.text("frames")?;
        let none = self.pickle.list()?;
        self.pickle.end(none)
    }

    /// Writes the frames of a call stack, or a reference to them.
    fn stack(&mut self, stack: StackId, names: &StackNames<'_>) -> io::Result<()> {
        if stack == StackId::NONE {
            return self.empty_frames();
        }
        self.pickle.text("frames")?;
        if let Some(memo) = self.stacks.get(&stack) {
            return self.pickle.again(*memo);
        }
        let mut list = self.pickle.list()?;
        let memo = self.pickle.memoise()?;
        self.stacks.insert(stack, memo);
        if stack == StackId::CONTEXT {
            self.pickle.item(&mut list)?;
            self.frame((CONTEXT.to_owned(), String::new(), 0))?;
        }
        for frame in names.frames(stack) {
            self.pickle.item(&mut list)?;
            self.frame(key(frame))?;
        }
        self.pickle.end(list)
    }

    fn frame(&mut self, key: FrameKey) -> io::Result<()> {
        if let Some(memo) = self.frames.get(&key) {
            return self.pickle.again(*memo);
        }
        self.pickle.dict()?;
        let memo = self.pickle.memoise()?;
        let (name, file, line) = &key;
        self.pickle.fill()?;
        self.pickle.text("name")?;
        self.pickle.text(name)?;
        self.pickle.text("filename")?;
        self.pickle.text(file)?;
        self.number("line", *line)?;
        self.pickle.filled()?;
        self.frames.insert(key, memo);
        Ok(())
    }

    /// Writes the segments of a device.
    pub(super) fn segments(
        &mut self,
        device: u16,
        layout: &DeviceLayout,
        names: &StackNames<'_>,
    ) -> io::Result<()> {
        for run in layout.runs() {
            self.has_expandable |= run.is_expandable;
            self.segment(device, &run, &layout.tiles(&run), names)?;
        }
        Ok(())
    }

    fn segment(
        &mut self,
        device: u16,
        run: &Run,
        tiles: &[Tile<'_>],
        names: &StackNames<'_>,
    ) -> io::Result<()> {
        let sum = |of: fn(&SnapshotBlock) -> u64| -> u64 {
            tiles.iter().filter_map(|tile| tile.block).map(of).sum()
        };
        let active = sum(|block| block.bytes);
        let kind = if run.is_small { "small" } else { "large" };
        self.pickle.item(&mut self.list)?;
        self.pickle.dict()?;
        self.pickle.fill()?;
        self.number("device", device)?;
        self.number("address", run.address)?;
        self.number("total_size", run.bytes)?;
        self.number("allocated_size", active)?;
        self.number("active_size", active)?;
        self.number("requested_size", sum(|block| block.requested))?;
        self.number("stream", run.stream)?;
        self.pickle.text("segment_type")?;
        self.pickle.text(kind)?;
        self.pickle.text("segment_pool_id")?;
        self.pickle.integer(0)?;
        self.pickle.integer(0)?;
        self.pickle.pair()?;
        self.pickle.text("is_expandable")?;
        self.pickle.boolean(run.is_expandable)?;
        self.stack(run.stack, names)?;
        self.pickle.text("blocks")?;
        let mut blocks = self.pickle.list()?;
        for tile in tiles {
            self.pickle.item(&mut blocks)?;
            self.tile(tile, names)?;
        }
        self.pickle.end(blocks)?;
        self.pickle.filled()
    }

    fn tile(&mut self, tile: &Tile<'_>, names: &StackNames<'_>) -> io::Result<()> {
        let state = match tile.block {
            Some(_) => "active_allocated",
            None => "inactive",
        };
        self.pickle.dict()?;
        self.pickle.fill()?;
        self.number("address", tile.address)?;
        self.number("size", tile.bytes)?;
        self.number(
            "requested_size",
            tile.block.map_or(0, |block| block.requested),
        )?;
        self.pickle.text("state")?;
        self.pickle.text(state)?;
        let stack = tile.block.map_or(StackId::NONE, |block| block.stack);
        self.stack(stack, names)?;
        self.pickle.filled()
    }
}

/// Without a source file, the binary stands for it.
fn key(frame: Frame) -> FrameKey {
    let file = frame.file.unwrap_or(frame.module);
    (frame.function, file, frame.line.unwrap_or(0))
}
