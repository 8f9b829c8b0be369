//! A snapshot for PyTorch's own viewers (`pytorch.org/memory_viz`, `torch/cuda/_memory_viz.py`): the
//! dictionaries that `torch.cuda.memory._snapshot()` returns, in the form of
//! `torch/csrc/cuda/memory_snapshot.cpp`.

use std::io::{self, Write};

use super::pickle::Pickle;
use gpuprobe_analysis::snapshot::{
    FoundSnapshot, FrameTexts, Snapshot, SnapshotBlock, SnapshotSegment, StackId, TraceEvent,
};

/// Values that are written once: lists of frames, and frames.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum Shared {
    Stack(StackId),
    Frame(String, String, u32),
}

type Out<'a> = Pickle<&'a mut dyn Write, Shared>;

/// The frames of a call stack: function, file and line, innermost first.
type Frames<'a> = &'a dyn Fn(StackId) -> Vec<FrameTexts>;

/// Writes a snapshot: its traces, in the order of devices, then its segments.
pub(super) fn write(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let frames: Frames<'_> = &|stack| snapshot.frames(stack);
    let devices = snapshot.devices();
    write_parts(devices, &snapshot.segments(), frames, out, |out, device| {
        out.list(snapshot.events(device), |out, one| {
            event(out, snapshot, &one)
        })
    })
}

/// Writes a snapshot of blocks that were just found in the memory of a process. The traces have nothing but the time.
///
/// # Errors
/// Returns the error of `out`.
pub fn write_found(found: &FoundSnapshot, out: &mut dyn Write) -> io::Result<()> {
    let time_us = chrono::Utc::now().timestamp_micros();
    let last = found.segments.iter().map(|segment| segment.device).max();
    let devices = last.map_or(0, |last| last + 1);
    let frames: Frames<'_> = &|stack| found.frames(stack);
    write_parts(devices, &found.segments, frames, out, |out, _| {
        out.list([()], |out, ()| {
            out.dict(|out| {
                out.entry("action", "snapshot")?;
                out.number("addr", 0)?;
                out.number("size", 0)?;
                out.number("stream", 0)?;
                out.number("time_us", time_us)?;
                stack(out, frames, StackId::None)
            })
        })
    })
}

fn write_parts(
    devices: u16,
    segments: &[SnapshotSegment],
    frames: Frames<'_>,
    out: &mut dyn Write,
    trace: impl Fn(&mut Out<'_>, u16) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = Pickle::begin(out)?;
    let has_expandable = segments.iter().any(|segment| segment.is_expandable);
    out.dict(|out| {
        out.text("device_traces")?;
        out.list(0..devices, trace)?;
        out.text("segments")?;
        out.list(segments, |out, one| segment(out, frames, one))?;
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
        stack(out, &|stack| snapshot.frames(stack), event.stack)?;
        // The viewer expects that either all events have the key, or none.
        out.entry("category", snapshot.category(event))
    })
}

fn segment(out: &mut Out<'_>, frames: Frames<'_>, segment: &SnapshotSegment) -> io::Result<()> {
    out.dict(|out| {
        out.number("device", segment.device)?;
        out.number("address", segment.address)?;
        out.number("total_size", segment.bytes)?;
        let [allocated, active, requested] = segment.sums();
        out.number("allocated_size", allocated)?;
        out.number("active_size", active)?;
        out.number("requested_size", requested)?;
        out.number("stream", segment.stream)?;
        let kind = if segment.is_small { "small" } else { "large" };
        out.entry("segment_type", kind)?;
        out.number("segment_pool_id", segment.pool.0)?;
        out.integer(segment.pool.1)?;
        out.pair()?;
        out.boolean("is_expandable", segment.is_expandable)?;
        stack(out, frames, segment.stack)?;
        out.text("blocks")?;
        out.list(&segment.blocks, |out, one| block(out, frames, one))
    })
}

fn block(out: &mut Out<'_>, frames: Frames<'_>, block: &SnapshotBlock) -> io::Result<()> {
    let state = match block.requested {
        Some(_) if block.is_pending => "active_pending_free",
        Some(_) => "active_allocated",
        None => "inactive",
    };
    out.dict(|out| {
        out.number("address", block.address)?;
        out.number("size", block.bytes)?;
        out.number("requested_size", block.requested.unwrap_or(0))?;
        out.entry("state", state)?;
        stack(out, frames, block.stack)
    })
}

/// Writes the frames of a call stack.
fn stack(out: &mut Out<'_>, frames: Frames<'_>, stack: StackId) -> io::Result<()> {
    out.text("frames")?;
    out.once(Shared::Stack(stack), |out| {
        out.list(frames(stack), |out, (name, file, line)| {
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
