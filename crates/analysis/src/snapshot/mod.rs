//! Snapshots of the memory of a process as PyTorch makes them (`torch.cuda.memory._snapshot()`), also
//! with memory that is not from PyTorch's allocator, by the library that owns it.
//!
//! The file is played once. Until then it is not known which process has the most tensors, which of
//! its memory is PyTorch's, and what its frames are called: the traces are kept.

mod layout;
mod process;

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use indexmap::IndexSet;

use crate::{File, Played};
use gpuprobe_engine::{Allocator, Process};
use gpuprobe_model::blocks::{FoundBlock, FoundBlocks};
use gpuprobe_model::stack::{Frame, Symbolize};
use gpuprobe_model::text::size;
use gpuprobe_recording::Source;
use gpuprobe_recording::log::LogReader;
use gpuprobe_report::label::label;
use gpuprobe_report::owners::{Owners, UNKNOWN};
use process::{ProcessTrace, Traces, pytorch};

/// Call sites of tensors with a category of their own: the viewer has ten colours in all.
const SITES: usize = 5;

/// Shown in place of a call stack for context memory.
const CONTEXT: &str = "what nvidia-smi says that the process uses beyond what was traced";

/// Function, file and line of a frame.
pub type FrameTexts = (String, String, u32);

/// Number of a call stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StackId {
    /// No stack was captured.
    #[default]
    None,
    /// Stands for context memory, which has a description instead of a stack.
    Context,
    /// A stack of the process.
    Known(usize),
}

/// Whose memory an event is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Category {
    /// A block of PyTorch's.
    Tensor,
    /// A segment of PyTorch's.
    Torch,
    /// Memory of another library.
    #[default]
    Other,
}

/// An event of the trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceEvent {
    /// As PyTorch names it: `alloc`, `segment_map`.
    pub action: &'static str,
    /// Time of the event, `CLOCK_MONOTONIC` nanoseconds.
    time_ns: u64,
    /// Address of the block or segment.
    pub address: u64,
    /// Its bytes; of a block, as requested.
    pub bytes: u64,
    /// Its stream.
    pub stream: i64,
    /// Where it was allocated or freed.
    pub stack: StackId,
    category: Category,
}

/// A segment at the end.
#[derive(Clone, Debug)]
pub struct SnapshotSegment {
    /// Device as the process numbers it.
    pub device: u16,
    /// Its address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Whether it consists of mappings.
    pub is_expandable: bool,
    /// Whether it is one for small blocks.
    pub is_small: bool,
    /// Its stream.
    pub stream: i64,
    /// Where it was allocated.
    pub stack: StackId,
    /// Blocks and free memory in it, without a gap.
    pub blocks: Vec<SnapshotBlock>,
    /// Id of its private pool; zeroes for none.
    pub pool: (u64, u64),
}

impl SnapshotSegment {
    /// Bytes of allocated blocks; of these and those that wait for a stream; and what was requested for them.
    pub fn sums(&self) -> [u64; 3] {
        let mut sums = [0u64; 3];
        for block in &self.blocks {
            let active = block.requested.map_or(0, |_| block.bytes);
            let allocated = if block.is_pending { 0 } else { active };
            let parts = [allocated, active, block.requested.unwrap_or(0)];
            sums = std::array::from_fn(|one| sums[one].saturating_add(parts[one]));
        }
        sums
    }
}

/// A block, or the free memory between two.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotBlock {
    /// Its address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Bytes requested, if known; else its size. `None` if it is free.
    pub requested: Option<u64>,
    /// It was freed, and a stream may still use it.
    pub is_pending: bool,
    /// Where it was allocated.
    pub stack: StackId,
}

/// PyTorch's blocks that were found in the memory of a process, and where they were allocated as far as that was traced.
#[derive(Debug)]
pub struct FoundSnapshot {
    /// The segments of all devices.
    pub segments: Vec<SnapshotSegment>,
    /// Function, file and line of the frames of each stack.
    frames: IndexSet<Vec<FrameTexts>>,
}

impl FoundSnapshot {
    /// Of what was found in a process, which may be traced.
    pub fn new(found: &FoundBlocks, traced: Option<(&Process, &dyn Symbolize)>) -> Self {
        let (mut segments, mut frames) = (Vec::new(), IndexSet::default());
        for device in &found.devices {
            let traced_frames = |block: &FoundBlock| {
                let (process, symbols) = traced?;
                let stack = pytorch(process, device.device)?.stack_of(block, found.time_ns)?;
                Some(stack.frames(found.pid, symbols))
            };
            let mut stack_of = |block: &FoundBlock| {
                let noted = || device.stacks.get(&block.stack).cloned();
                let stack = traced_frames(block).or_else(noted).map(texts);
                stack.map_or(StackId::None, |stack| {
                    StackId::Known(frames.insert_full(stack).0)
                })
            };
            let mut rest = &device.blocks[..];
            segments.extend(device.segments.iter().map(|segment| {
                let end = segment.address.saturating_add(segment.bytes);
                let here = rest.partition_point(|block| block.address < end);
                let (here, behind) = rest.split_at(here);
                rest = behind;
                layout::segment_found(device.device, segment, here, &mut stack_of)
            }));
        }
        Self { segments, frames }
    }

    /// Function, file and line of the frames of a stack, innermost first.
    pub fn frames(&self, stack: StackId) -> Vec<FrameTexts> {
        match stack {
            StackId::Known(number) => self.frames[number].clone(),
            _ => Vec::new(),
        }
    }
}

/// The memory of a process at its end, or at that of the recording, with all events before.
pub struct Snapshot {
    played: Played,
    pid: u32,
    trace: ProcessTrace,
    /// Categories of tensors, and of other memory, by the call stack of the allocation.
    sites: HashMap<StackId, String>,
    owners: HashMap<StackId, String>,
    /// What the user should know of it.
    pub notes: Vec<String>,
}

impl Snapshot {
    /// Reads the selected process of a recording, or the process with the most tensors, or with the most calls if none has
    /// tensors.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, if it is not a recording made with `--memleak`,
    /// or if it has no memory of such a process.
    pub fn read(file: &File) -> Result<Self> {
        let (database, session) = (&file.database, &file.session);
        let shown = database.path().display();
        if !LogReader::new(database, session)?.modes().memleak {
            bail!("{shown} was recorded without --memleak: there is no memory in it");
        }
        let mut traces = Traces::default();
        let played = Played::read(database, session, &file.filter, None, &mut traces)?;
        Self::choose(played, traces).with_context(|| format!("cannot make a snapshot of {shown}"))
    }

    fn choose(played: Played, Traces(mut traces): Traces) -> Result<Self> {
        let with_tensors = traces.values().filter(|trace| trace.tensors > 0).count();
        let most = |(_, trace): &(_, &ProcessTrace)| (trace.tensors, trace.calls);
        let chosen = traces.iter().max_by_key(most);
        let chosen = chosen.filter(|one| most(one) > (0, 0)).map(|(key, _)| *key);
        let Some(((pid, incarnation), mut trace)) =
            chosen.and_then(|key| traces.remove_entry(&key))
        else {
            bail!("no memory of a GPU is recorded");
        };
        let began_ns = trace.first_ns.unwrap_or(0);
        for layout in trace.devices.values_mut() {
            layout.finish(began_ns);
        }
        let process = played.process(pid, incarnation);
        let notes = notes(pid, process, &trace, with_tensors.saturating_sub(1));
        let symbols = played.symbols();
        let allocators = process.iter().flat_map(|process| process.tensors.iter());
        let sites = allocators.flat_map(|allocator| allocator.blocks.sites.iter());
        let sites = largest(sites.filter_map(|site| {
            let stack = site.stack.as_ref()?;
            let label = label(&stack.frames(pid, symbols))?;
            Some((label, site.peak_bytes, trace.stack(Some(stack))))
        }));
        let mut owner_of = Owners::new(symbols);
        let mut owners = HashMap::from([(StackId::Context, "context".to_owned())]);
        for (id, stack) in trace.stacks.values().enumerate() {
            let owner = owner_of.of_stack(Some(stack)).owner().to_owned();
            owners.insert(StackId::Known(id), owner);
        }
        Ok(Self {
            played,
            pid,
            trace,
            sites,
            owners,
            notes,
        })
    }

    /// Number of devices up to the last one used.
    pub fn devices(&self) -> u16 {
        let last = self.trace.devices.keys().next_back();
        last.map_or(0, |last| last + 1)
    }

    /// The events on a device, in order; the last one is the snapshot itself.
    pub fn events(&self, device: u16) -> impl Iterator<Item = TraceEvent> {
        let layout = self.trace.devices.get(&device).into_iter();
        let end = TraceEvent {
            action: "snapshot",
            time_ns: self.trace.last_ns,
            ..TraceEvent::default()
        };
        layout.flat_map(move |layout| layout.trace().chain([end]))
    }

    /// The segments of all devices.
    pub fn segments(&self) -> Vec<SnapshotSegment> {
        let devices = self.trace.devices.iter();
        let segments = devices.flat_map(|(&device, layout)| layout.segments(device));
        segments.collect()
    }

    /// Time of an event, microseconds since the Unix epoch.
    pub fn time_us(&self, event: &TraceEvent) -> i64 {
        let wall = self.played.wall(self.played.session_ns(event.time_ns));
        wall.map_or(0, |wall| wall.timestamp_micros())
    }

    /// The category of an event: the owner of the memory, or the call site of a tensor.
    pub fn category(&self, event: &TraceEvent) -> &str {
        let (site, owner) = (self.sites.get(&event.stack), self.owners.get(&event.stack));
        match event.category {
            Category::Tensor => site.map_or("PyTorch", String::as_str),
            Category::Torch => "PyTorch",
            Category::Other => owner.map_or(UNKNOWN, String::as_str),
        }
    }

    /// Function, file and line of the frames of a stack, innermost first.
    pub fn frames(&self, stack: StackId) -> Vec<FrameTexts> {
        let stack = match stack {
            StackId::None => return Vec::new(),
            StackId::Context => return vec![(CONTEXT.to_owned(), String::new(), 0)],
            StackId::Known(number) => &self.trace.stacks[number],
        };
        texts(stack.frames(self.pid, self.played.symbols()))
    }
}

fn texts(frames: Vec<Frame>) -> Vec<FrameTexts> {
    // Without a source file, the binary stands for it.
    let text = |frame: Frame| {
        let file = frame.file.unwrap_or(frame.module);
        (frame.function, file, frame.line.unwrap_or(0))
    };
    frames.into_iter().map(text).collect()
}

/// The largest call sites, of their labels, peaks of live bytes, and stacks.
fn largest(sites: impl Iterator<Item = (String, u64, StackId)>) -> HashMap<StackId, String> {
    let mut labels: HashMap<String, (u64, Vec<StackId>)> = HashMap::new();
    for (label, bytes, stack) in sites {
        let (sum, stacks) = labels.entry(label).or_default();
        *sum = sum.saturating_add(bytes);
        stacks.push(stack);
    }
    let mut labels: Vec<_> = labels.into_iter().collect();
    labels.sort_by(|a, b| (b.1.0, &a.0).cmp(&(a.1.0, &b.0)));
    let labels = labels.into_iter().take(SITES);
    let labels = labels.flat_map(|(label, (_, stacks))| {
        let stacks = stacks.into_iter();
        stacks.map(move |stack| (stack, label.clone()))
    });
    labels.collect()
}

/// What the snapshot is of, and memory that is not in it.
fn notes(pid: u32, process: Option<&Process>, trace: &ProcessTrace, others: usize) -> Vec<String> {
    let comm = process.and_then(|process| process.comm.as_deref());
    let tensors = match trace.tensors {
        0 => "no tensors of PyTorch were seen".to_owned(),
        tensors => format!("{tensors} tensors"),
    };
    let among = match others {
        0 => String::new(),
        others => format!("; {others} more have tensors (--pid)"),
    };
    let comm = comm.unwrap_or_default();
    let mut notes = vec![format!(
        "snapshot of process {pid} ({comm}): {tensors}{among}"
    )];
    for (device, layout) in &trace.devices {
        let pytorch = process.and_then(|process| pytorch(process, *device));
        let before = pytorch.map_or(0, Allocator::bytes_from_before);
        if before > 0 {
            notes.push(format!(
                "cuda:{device}: {} in tensors created before tracing are not in the snapshot (addresses \
                 unknown)",
                size(before)
            ));
        }
        if layout.left_out > 0 {
            notes.push(format!(
                "cuda:{device}: {} events match no known memory and are not in the snapshot",
                layout.left_out
            ));
        }
    }
    if trace.nowhere > 0 {
        let nowhere = size(trace.nowhere);
        notes.push(format!(
            "{nowhere} on an unknown device are not in the snapshot"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_call_sites_are_categories() {
        // Two stacks each; later ones have more bytes.
        let site = |number: usize| (StackId::Known(number), format!("line {}", number / 2));
        let sites = (0..14).map(|number| {
            let (stack, label) = site(number);
            (label, number as u64, stack)
        });
        let found = largest(sites);
        assert_eq!(found, (4..14).map(site).collect());
    }
}
