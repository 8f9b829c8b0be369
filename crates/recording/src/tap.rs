//! Interface from the session to a recording.

use std::cell::RefCell;
use std::path::Path;

use super::log::Note;
use gpuprobe_cuda::Modes;
use gpuprobe_engine::transfers::Transfer;
use gpuprobe_engine::{Change, Launches, State, Whereabouts, World};
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_model::event::{Event, Task};
use gpuprobe_model::identity::Identity;

/// Consumer of the state's input. The default methods do nothing.
pub trait Tap {
    /// Whether the input is recorded.
    fn is_recording(&self) -> bool {
        false
    }

    /// Approximate memory of what waits to be written, and is carried to the next file, bytes.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// A ring record, after the notes with the answers to its queries; its decoded event, and the
    /// changes by the event, which are drained.
    fn record(&mut self, _bytes: &[u8], _event: Event, _changes: &mut Vec<Change>) {}

    /// Launch counters of a kernel.
    fn count(&mut self, _key: &RawLaunchKey, _runs: u64, _captured: u64) {}

    /// All launch counters have been read; `launches` has the totals.
    fn counted(&mut self, _launches: &Launches) {}

    /// Any other input of the state.
    fn note(&mut self, _note: Note) {}

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
impl Tap for () {}

/// Applies an event to `state` (see [`State::apply`]) and notes the answers from `world` in `tap`.
/// The caller then records the event and its changes.
pub fn enter(
    tap: &mut dyn Tap,
    state: &mut State,
    event: &Event,
    modes: Modes,
    world: &impl World,
) -> Option<Transfer> {
    if !tap.is_recording() {
        return state.apply(event, modes, world);
    }
    let witness = Witness {
        world,
        notes: RefCell::default(),
    };
    let transfer = state.apply(event, modes, &witness);
    let notes = witness.notes.into_inner();
    notes.into_iter().for_each(|note| tap.note(note));
    transfer
}

/// Forwards queries to a [`World`] and collects the answers.
struct Witness<'a, W> {
    world: &'a W,
    notes: RefCell<Vec<Note>>,
}

impl<W: World> World for Witness<'_, W> {
    fn identity(&self, task: &Task) -> Identity {
        let answer = self.world.identity(task);
        self.notes
            .borrow_mut()
            .push(Note::Identity(task.pid, answer.clone()));
        answer
    }

    fn kernel_at(&self, pid: u32, address: u64) -> Option<String> {
        let answer = self.world.kernel_at(pid, address);
        self.notes
            .borrow_mut()
            .push(Note::KernelAt(pid, address, answer.clone()));
        answer
    }

    fn variable_size(&self, pid: u32, name: &str) -> Option<u64> {
        let answer = self.world.variable_size(pid, name);
        self.notes
            .borrow_mut()
            .push(Note::VariableSize(pid, name.to_owned(), answer));
        answer
    }

    fn place(&self, pid: u32, address: u64) -> Option<Whereabouts> {
        let answer = self.world.place(pid, address);
        let on_device = answer.map(|place| matches!(place, Whereabouts::Device(_)));
        self.notes
            .borrow_mut()
            .push(Note::OnDevice(pid, address, on_device));
        answer
    }
}
