//! Interface from the session to a recording.

use std::cell::RefCell;
use std::path::Path;

use super::log::LogNote;
use gpuprobe_cuda::Modes;
use gpuprobe_engine::transfers::Transfer;
use gpuprobe_engine::{AddressKind, Change, HostInfo, Launches, State};
use gpuprobe_model::abi::{RawBatch, RawLaunchKey};
use gpuprobe_model::event::{Event, Task};
use gpuprobe_model::identity::Identity;

/// Consumer of the state's input. The default methods do nothing.
pub trait InputRecorder {
    /// Whether the input is recorded.
    fn is_recording(&self) -> bool {
        false
    }

    /// Why recording has stopped before the run, if it has.
    fn stopped(&self) -> Option<&str> {
        None
    }

    /// An event, after the notes with the answers to its queries; the batch that it was decoded
    /// from, if it is one, and the changes by the event, which are drained.
    fn event(
        &mut self,
        _event: Event,
        _sent: Option<(&RawBatch, &[u8])>,
        _changes: &mut Vec<Change>,
    ) {
    }

    /// Launch counters of a kernel.
    fn count(&mut self, _key: &RawLaunchKey, _runs: u64, _captured: u64) {}

    /// All launch counters have been read; `launches` has the totals.
    fn counted(&mut self, _launches: &Launches) {}

    /// Any other input of the state.
    fn note(&mut self, _note: LogNote) {}

    /// Marks the end of the input available now.
    fn pause(&mut self) {}

    /// Sets the final name of the file, in the same directory, for when it is complete.
    fn rename(&mut self, _path: &Path) {}

    /// Completes and closes the recording.
    fn finish(&mut self) {}

    /// Discards the recording because nothing was traced.
    fn discard(&mut self) {}
}

/// Records nothing.
impl InputRecorder for () {}

/// Applies an event to `state` (see [`State::apply`]) and notes the answers from `host_info` in `input_recorder`.
/// The caller then records the event and its changes.
pub fn enter(
    input_recorder: &mut dyn InputRecorder,
    state: &mut State,
    event: &Event,
    modes: Modes,
    host_info: &impl HostInfo,
) -> Option<Transfer> {
    if !input_recorder.is_recording() {
        return state.apply(event, modes, host_info);
    }
    let witness = Witness {
        host_info,
        notes: RefCell::default(),
    };
    let transfer = state.apply(event, modes, &witness);
    let notes = witness.notes.into_inner();
    notes.into_iter().for_each(|note| input_recorder.note(note));
    transfer
}

/// Forwards queries to a [`HostInfo`] and collects the answers.
struct Witness<'a, W> {
    host_info: &'a W,
    notes: RefCell<Vec<LogNote>>,
}

impl<W> Witness<'_, W> {
    fn note(&self, note: LogNote) {
        self.notes.borrow_mut().push(note);
    }
}

impl<W: HostInfo> HostInfo for Witness<'_, W> {
    fn identity(&self, task: &Task) -> Identity {
        let answer = self.host_info.identity(task);
        self.note(LogNote::Identity(task.pid, answer.clone()));
        answer
    }

    fn kernel_at(&self, pid: u32, address: u64) -> Option<String> {
        let answer = self.host_info.kernel_at(pid, address);
        self.note(LogNote::KernelAt(pid, address, answer.clone()));
        answer
    }

    fn variable_size(&self, pid: u32, name: &str) -> Option<u64> {
        let answer = self.host_info.variable_size(pid, name);
        self.note(LogNote::VariableSize(pid, name.to_owned(), answer));
        answer
    }

    fn place(&self, pid: u32, address: u64) -> Option<AddressKind> {
        let answer = self.host_info.place(pid, address);
        let on_device = answer.map(|place| matches!(place, AddressKind::Device(_)));
        self.note(LogNote::OnDevice(pid, address, on_device));
        answer
    }
}
