//! Consumer of the ring records.

use std::time::Duration;

use super::filter::EventFilter;
use super::stacks::StackState;
use crate::host::host_info::ProcFs;
use crate::probe::Consumer;
use gpuprobe_cuda::Modes;
use gpuprobe_engine::transfers::Transfer;
use gpuprobe_engine::{HostInfo, State};
use gpuprobe_model::activity::ActivityBatch;
use gpuprobe_model::event;
use gpuprobe_model::event::Event;
use gpuprobe_recording::Recorder;
use gpuprobe_recording::frames::RecordedFrames;

/// Everything that the ring records update.
pub(super) struct Sink {
    pub(super) modes: Modes,
    pub(super) state: State,
    pub(super) host_info: ProcFs,
    pub(super) filter: EventFilter,
    pub(super) decoder: event::RecordDecoder,
    pub(super) undecodable: u64,
    /// Call stacks; `None` if they are off.
    pub(super) stacks: Option<StackState>,
    /// Copies to write one by one; `None` if not requested.
    pub(super) copies: Option<Vec<Transfer>>,
    /// GPU records to write one by one; `None` if not requested.
    pub(super) records: Option<Vec<ActivityBatch>>,
    /// The recording; a no-op if there is none.
    pub(super) input_recorder: Recorder,
}

impl Consumer for Sink {
    /// Decodes and applies one record.
    fn take(&mut self, bytes: &[u8]) {
        // Applied where it is: it is large, and moved only to be recorded.
        let mut decoded = self.decoder.decode(bytes);
        let event = match &mut decoded {
            Ok(event) => event,
            Err(error) => {
                self.undecodable += 1;
                tracing::debug!("{error}");
                return;
            }
        };
        if let (Event::Exit(task) | Event::Exec(task), Some(stacks)) = (&*event, &mut self.stacks) {
            stacks.end(task);
        }
        let host_info = &self.host_info;
        if !self.filter.passes(event, |task| host_info.identity(task)) {
            return;
        }
        self.enter(event);
        let changes = self.state.changes();
        match decoded {
            Ok(event) if self.input_recorder.is_recording() => {
                let sent = event::batch(bytes);
                let sent = sent.as_ref().map(|(raw, batch)| (raw, *batch));
                self.input_recorder.event(event, sent, changes);
            }
            // Of a recording that has stopped.
            _ => changes.clear(),
        }
    }

    fn end_round(&mut self) {
        if let Some(stacks) = &mut self.stacks {
            stacks.end_round();
        }
    }
}

impl Sink {
    /// Applies and records an event that gpuprobe itself makes, unless the filter rejects its process.
    pub(super) fn take_own(&mut self, mut event: Event) {
        let host_info = &self.host_info;
        if !self.filter.passes(&event, |task| host_info.identity(task)) {
            return;
        }
        self.enter(&mut event);
        let changes = self.state.changes();
        if self.input_recorder.is_recording() {
            self.input_recorder.event(event, None, changes);
        }
        changes.clear();
    }

    /// Applies an accepted event.
    fn enter(&mut self, event: &mut Event) {
        self.name_stack(event);
        let (input_recorder, state) = (&mut self.input_recorder, &mut self.state);
        let transfer = input_recorder.enter(state, event, self.modes, &self.host_info);
        if let (Some(copies), Some(transfer)) = (&mut self.copies, transfer) {
            copies.push(transfer);
        }
        if let (Some(records), Event::Activity(batch)) = (&mut self.records, &*event) {
            records.push(batch.clone());
        }
    }

    /// Replaces the stack number of an event by that of the stack store.
    fn name_stack(&mut self, event: &mut Event) {
        let Some(stacks) = &mut self.stacks else {
            return;
        };
        if let Event::Blocks(found) = event {
            let (pid, time_ns) = (found.pid, found.time_ns);
            let devices = found.devices.iter_mut();
            let numbers =
                devices.flat_map(|device| device.blocks.iter_mut().map(|it| &mut it.stack));
            for number in numbers.filter(|number| **number != 0) {
                if let Some(note) = stacks.name(pid, number, time_ns, &mut self.state.ledger) {
                    self.input_recorder.note(note);
                }
            }
        }
        let (pid, time_ns, stack) = match event {
            Event::Call(call) => (call.pid, call.start_ns, &mut call.stack),
            Event::Tensor(tensor) => (tensor.pid, tensor.time_ns, &mut tensor.stack),
            Event::OutOfMemory(refused) => (refused.pid, refused.time_ns, &mut refused.stack),
            Event::Launch(launch) => (launch.pid, launch.start_ns, &mut launch.stack),
            Event::Copy(copy) => (copy.pid, copy.start_ns, &mut copy.stack),
            _ => return,
        };
        if *stack == 0 {
            return;
        }
        let note = stacks.name(pid, stack, time_ns, &mut self.state.ledger);
        if let Some(note) = note {
            self.input_recorder.note(note);
        }
    }

    /// Waits up to `at_most` for requested frames, and adds those found since the last call to the recording.
    pub(super) fn find_frames(&mut self, recorded_frames: &mut RecordedFrames, at_most: Duration) {
        let stacks = self.stacks.iter_mut();
        for note in stacks.flat_map(|stacks| stacks.found(recorded_frames, at_most)) {
            self.input_recorder.note(note);
        }
    }
}
