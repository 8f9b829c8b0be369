//! Replays the log of a recording and follows one process: the effect of its calls and of its
//! allocator on the memory of each device.
//!
//! In the first pass, all of its memory may be PyTorch's; segments with tensors in them are. In the
//! following passes, one per device, that is known, and the trace can be written on the way.

mod blocks;
mod mappings;

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::rc::Rc;

use anyhow::Result;
use rangemap::RangeSet;

use super::findings::FirstPass;
use super::layout::{DeviceLayout, SegmentChange, SnapshotSegment, TensorChange, TraceEvent};
use super::names::{Owner, StackId, StackNames};
use super::survey::{Incarnation, Incarnations};
use gpuprobe_cuda::{AddressSpace, KindSet, Modes, Op};
use gpuprobe_engine::{Change, Process};
use gpuprobe_model::event::{self, Call, Event, MAX_DEVICES};
use gpuprobe_model::stack::CallStack;
use gpuprobe_recording::log::{Item, LogNote, LogReader, Mark};
use gpuprobe_recording::player::{Played, Player};

/// Physical memory that can be mapped.
#[derive(Clone, Copy, Debug)]
struct MappablePhysical {
    bytes: u64,
    device: Option<u16>,
    stack: StackId,
}

/// Replays the events of one process.
struct Follow<'a, 'b> {
    incarnation: Incarnation,
    player: Player,
    incarnations: Incarnations,
    names: &'a mut StackNames<'b>,
    /// All devices in the first pass, one device in the following ones.
    layouts: BTreeMap<u16, DeviceLayout>,
    /// Results of the first pass; `None` during that pass.
    findings: Option<&'a FirstPass>,
    physical: HashMap<u64, MappablePhysical>,
    /// Number of segments and reserved address ranges so far.
    segments: u64,
    ranges: u64,
    /// Numbers of the reserved ranges, by address.
    reservations: HashMap<u64, u64>,
    /// Times of its first and of its last event.
    times_ns: Option<(u64, u64)>,
    context: BTreeMap<u16, u64>,
    nowhere: u64,
    /// Call sites of tensors, with the peak of live bytes of each.
    sites: Vec<(Rc<CallStack>, u64)>,
}

/// Call sites of the tensors of a process, with the peak of live bytes of each.
fn sites_of(process: Option<&Process>) -> Vec<(Rc<CallStack>, u64)> {
    let allocators = process
        .into_iter()
        .flat_map(|process| process.tensors.iter());
    let sites = allocators.flat_map(|allocator| allocator.blocks.sites.iter());
    let with_stack =
        sites.filter_map(|site| Some((Rc::clone(site.stack.as_ref()?), site.peak_bytes)));
    with_stack.collect()
}

/// State of a device at the end, and the time of the last event of the process.
pub(super) struct FinalState {
    pub(super) layout: DeviceLayout,
    pub(super) time_ns: u64,
}

/// Finds out which memory of a process is PyTorch's.
pub(super) fn find_torch_segments(
    log: &LogReader,
    incarnation: Incarnation,
    names: &mut StackNames<'_>,
) -> Result<FirstPass> {
    let mut follow = Follow::new(incarnation, names, None);
    log.play(|item| {
        follow.item(item);
        for layout in follow.layouts.values_mut() {
            while layout.next_event(false).is_some() {}
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if follow.is_meant(incarnation.pid) {
        follow.sites = sites_of(follow.process());
    }
    follow.names.note_sites(&follow.sites);
    let began_ns = follow.times_ns.map_or(0, |(first, _)| first);
    let mut findings = FirstPass::of(began_ns, follow.nowhere);
    for (device, layout) in follow.layouts {
        let context = follow.context.get(&device).copied().unwrap_or(0);
        findings.add(device, layout.found(), context);
    }
    Ok(findings)
}

/// Passes the trace of a device to `write`, in order.
///
/// # Errors
///
/// Returns an error if the file cannot be read or `write` fails.
pub(super) fn trace<'n>(
    log: &LogReader,
    incarnation: Incarnation,
    names: &mut StackNames<'n>,
    (device, findings): (u16, &FirstPass),
    mut write: impl FnMut(&TraceEvent, &StackNames<'n>) -> Result<()>,
) -> Result<FinalState> {
    names.begin_replay();
    let mut follow = Follow::new(incarnation, names, Some(findings));
    let found = findings.devices.get(&device);
    let mut layout =
        DeviceLayout::with(found.map_or_else(RangeSet::new, |f| f.from_before.clone()));
    let context = SnapshotSegment {
        bytes: found.map_or(0, |found| found.context),
        piece: SegmentChange::Whole,
        stack: StackId::CONTEXT,
        owner: Owner::CONTEXT,
        number: 0,
        at_gpu: false,
    };
    if context.bytes > 0 {
        layout.add_synthetic(
            (AddressSpace::Physical, u64::MAX),
            context,
            findings.began_ns,
        );
    }
    follow.layouts.insert(device, layout);
    log.play(|item| {
        follow.item(item);
        follow.write(device, false, &mut write)?;
        Ok(ControlFlow::Continue(()))
    })?;
    follow.write(device, true, &mut write)?;
    Ok(FinalState {
        layout: follow.layouts.remove(&device).unwrap_or_default(),
        time_ns: follow.times_ns.map_or(0, |(_, last)| last),
    })
}

impl<'a, 'b> Follow<'a, 'b> {
    fn new(
        incarnation: Incarnation,
        names: &'a mut StackNames<'b>,
        findings: Option<&'a FirstPass>,
    ) -> Self {
        let modes = Modes {
            memleak: true,
            ..Modes::default()
        };
        let mut player = Player::new(modes, KindSet::ALL);
        player.state.watch(true);
        Self {
            incarnation,
            player,
            incarnations: Incarnations::default(),
            names,
            layouts: BTreeMap::new(),
            findings,
            physical: HashMap::new(),
            segments: 0,
            ranges: 0,
            reservations: HashMap::new(),
            times_ns: None,
            context: BTreeMap::new(),
            nowhere: 0,
            sites: Vec::new(),
        }
    }

    fn write(
        &mut self,
        device: u16,
        is_end: bool,
        write: &mut impl FnMut(&TraceEvent, &StackNames<'b>) -> Result<()>,
    ) -> Result<()> {
        if let Some(layout) = self.layouts.get_mut(&device) {
            while let Some(event) = layout.next_event(is_end) {
                write(&event, self.names)?;
            }
        }
        Ok(())
    }

    fn is_meant(&self, pid: u32) -> bool {
        pid == self.incarnation.pid && self.incarnations.current(pid) == self.incarnation
    }

    fn item(&mut self, item: Item<'_>) {
        let vanished = match &item {
            Item::Note(LogNote::Vanished(pid)) => Some(*pid),
            _ => None,
        };
        match self.player.play(item) {
            Played::Event(event, _) => {
                let changes = std::mem::take(self.player.state.changes());
                self.event(&event, &changes);
            }
            Played::Report(mark) => {
                if self.findings.is_none() && self.is_meant(self.incarnation.pid) {
                    self.note_usage(&mark);
                }
                self.player.state.mark_reported();
            }
            Played::Nothing => {}
        }
        if let Some(pid) = vanished {
            self.end(pid);
        }
    }

    fn event(&mut self, event: &Event, changes: &[Change]) {
        match event {
            Event::Call(call) if self.is_meant(call.pid) => {
                self.at(call.end_ns);
                self.call(call, changes);
            }
            Event::Tensor(tensor) if self.is_meant(tensor.pid) => {
                self.at(tensor.time_ns);
                self.tensor(tensor);
            }
            Event::Request(request) if self.is_meant(request.pid) => {
                for layout in self.layouts.values_mut() {
                    layout.request(request.address, request.bytes, request.stream as i64);
                }
            }
            Event::Exit(task) | Event::Exec(task) => self.end(task.pid),
            _ => {}
        }
    }

    fn at(&mut self, time_ns: u64) {
        let (first, last) = self.times_ns.unwrap_or((time_ns, time_ns));
        self.times_ns = Some((first.min(time_ns), last.max(time_ns)));
    }

    /// Memory on a device, if it is followed in this pass.
    fn layout(&mut self, device: u16) -> Option<&mut DeviceLayout> {
        if self.findings.is_none() && device < MAX_DEVICES {
            return Some(self.layouts.entry(device).or_default());
        }
        self.layouts.get_mut(&device)
    }

    fn tensor(&mut self, tensor: &event::Tensor) {
        let process = self.player.state.ledger.process_of(tensor.pid);
        let stack = process.and_then(|process| process.sites.stack(tensor.stack));
        let stack = stack.map_or(StackId::NONE, |stack| self.names.stack(stack));
        // PyTorch always reports the device; PyTorch's viewers do not show tensors of other
        // frameworks.
        let Some(layout) = tensor.device.and_then(|device| self.layout(device)) else {
            return;
        };
        (layout.allocated, layout.reserved) = (tensor.allocated_bytes, tensor.reserved_bytes);
        let block = TensorChange {
            address: tensor.address,
            bytes: tensor.bytes,
            time_ns: tensor.time_ns,
            stack,
        };
        if tensor.is_free {
            layout.free(block);
        } else {
            layout.allocate(block);
        }
    }

    fn call(&mut self, call: &Call, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Allocated(block) => self.allocated(call, &block.allocation),
                Change::Freed(block) | Change::Superseded(block) => {
                    self.freed(call, &block.allocation);
                }
                Change::UnknownFree(address) => {
                    for layout in self.layouts.values_mut() {
                        layout.free_unseen(*address, call.end_ns);
                    }
                }
                _ => {}
            }
        }
        if call.result != 0 || call.captured {
            return;
        }
        match call.function.op {
            Op::Map => self.mapped(call, call.address),
            Op::Unmap => self.unmapped(call),
            Op::Reserve => {
                self.ranges += 1;
                self.reservations.insert(call.address, self.ranges);
            }
            Op::Unreserve => drop(self.reservations.remove(&call.address)),
            _ => {}
        }
    }

    fn process(&self) -> Option<&Process> {
        self.player.state.ledger.process_of(self.incarnation.pid)
    }

    /// The process has ended or called `exec`: takes what is still known of it.
    fn end(&mut self, pid: u32) {
        if self.is_meant(pid) {
            let ended = self.player.state.ledger.ended(true);
            let process = ended.filter(|process| process.pid == pid).last();
            self.sites = sites_of(process);
        }
        self.incarnations.end(pid);
    }

    /// Notes the memory use of the process on each GPU beyond traced memory.
    fn note_usage(&mut self, mark: &Mark) {
        let used = mark.usage.as_ref();
        let Some(used) = used.and_then(|usage| usage.processes.get(&self.incarnation.pid)) else {
            return;
        };
        let Some(process) = self.process() else {
            return;
        };
        let identity = &process.identity;
        let number_of = |gpu: u32| {
            let is_it = |device: &u16| identity.device(*device).physical_index == Some(gpu);
            let known = (0..MAX_DEVICES).find(is_it);
            let single = identity.single_gpu.then_some(0);
            known.or(single).or(u16::try_from(gpu).ok())
        };
        let used: Vec<_> = used
            .iter()
            .map(|&(gpu, bytes)| (number_of(gpu), bytes))
            .collect();
        for (device, bytes) in used {
            let Some(device) = device else { continue };
            let Some(layout) = self.layout(device) else {
                continue;
            };
            let (seen, beyond) = layout.at_gpu();
            let context = bytes.saturating_sub(seen).saturating_sub(beyond);
            self.context.insert(device, context);
        }
    }
}
