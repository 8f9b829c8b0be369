//! A snapshot for PyTorch's own viewers (`pytorch.org/memory_viz`, `torch/cuda/_memory_viz.py`): the
//! dictionaries that `torch.cuda.memory._snapshot()` returns, in the form of
//! `torch/csrc/cuda/memory_snapshot.cpp`.

use std::io::{self, Write};

use super::pickle::Pickle;
use gpuprobe_analysis::snapshot::{Snapshot, SnapshotBlock, SnapshotSegment, StackId, TraceEvent};

/// Values that are written once: lists of frames, and frames.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum Shared {
    Stack(StackId),
    Frame(String, String, u32),
}

type Out<'a> = Pickle<&'a mut dyn Write, Shared>;

/// Writes a snapshot: its traces, in the order of devices, then its segments.
pub(super) fn write(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let mut out = Pickle::begin(out)?;
    let segments = snapshot.segments();
    let has_expandable = segments.iter().any(|segment| segment.is_expandable);
    out.dict(|out| {
        out.text("device_traces")?;
        out.list(0..snapshot.devices(), |out, device| {
            out.list(snapshot.events(device), |out, one| {
                event(out, snapshot, &one)
            })
        })?;
        out.text("segments")?;
        out.list(&segments, |out, one| segment(out, snapshot, one))?;
        out.text("allocator_settings")?;
        out.dict(|out| out.boolean("expandable_segments", has_expandable))
    })?;
    out.finish()
}

fn event(out: &mut Out<'_>, snapshot: &Snapshot, event: &TraceEvent) -> io::Result<()> {
    out.dict(|out| {
        out.entry("action", event.action)?;
        out.number("addr", event.address)?;
        out.number("size", event.bytes)?;
        out.number("stream", event.stream)?;
        out.number("time_us", snapshot.time_us(event))?;
        stack(out, snapshot, event.stack)?;
        // The viewer expects that either all events have the key, or none.
        out.entry("category", snapshot.category(event))
    })
}

fn segment(out: &mut Out<'_>, snapshot: &Snapshot, segment: &SnapshotSegment) -> io::Result<()> {
    out.dict(|out| {
        out.number("device", segment.device)?;
        out.number("address", segment.address)?;
        out.number("total_size", segment.bytes)?;
        out.number("allocated_size", segment.active_bytes)?;
        out.number("active_size", segment.active_bytes)?;
        out.number("requested_size", segment.requested_bytes)?;
        out.number("stream", segment.stream)?;
        let kind = if segment.is_small { "small" } else { "large" };
        out.entry("segment_type", kind)?;
        out.number("segment_pool_id", 0)?;
        out.integer(0)?;
        out.pair()?;
        out.boolean("is_expandable", segment.is_expandable)?;
        stack(out, snapshot, segment.stack)?;
        out.text("blocks")?;
        out.list(&segment.blocks, |out, one| block(out, snapshot, one))
    })
}

fn block(out: &mut Out<'_>, snapshot: &Snapshot, block: &SnapshotBlock) -> io::Result<()> {
    let state = match block.requested {
        Some(_) => "active_allocated",
        None => "inactive",
    };
    out.dict(|out| {
        out.number("address", block.address)?;
        out.number("size", block.bytes)?;
        out.number("requested_size", block.requested.unwrap_or(0))?;
        out.entry("state", state)?;
        stack(out, snapshot, block.stack)
    })
}

/// Writes the frames of a call stack.
fn stack(out: &mut Out<'_>, snapshot: &Snapshot, stack: StackId) -> io::Result<()> {
    out.text("frames")?;
    out.once(Shared::Stack(stack), |out| {
        out.list(snapshot.frames(stack), |out, (name, file, line)| {
            out.once(Shared::Frame(name.clone(), file.clone(), line), |out| {
                out.dict(|out| {
                    out.entry("name", &name)?;
                    out.entry("filename", &file)?;
                    out.number("line", line)
                })
            })
        })
    })
}
