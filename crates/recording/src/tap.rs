//! Where the session hands what a recording needs.

use std::cell::RefCell;
use std::path::Path;

use super::log::Note;
use gpuprobe_cuda::Modes;
use gpuprobe_engine::transfers::Transfer;
use gpuprobe_engine::{Change, Launches, State, Whereabouts, World};
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_model::event::{Event, Task};
use gpuprobe_model::identity::Identity;

/// Takes what the state is fed with. By default, nothing is done with it.
pub trait Tap {
    /// Whether anything is done with it.
    fn is_recording(&self) -> bool {
        false
    }

    /// A record of the rings, after the notes that answer its questions; the event that it is, and
    /// what that has changed, which is taken away.
    fn record(&mut self, _bytes: &[u8], _event: Event, _changes: &mut Vec<Change>) {}

    /// What the kernel side has counted of a kernel.
    fn count(&mut self, _key: &RawLaunchKey, _runs: u64, _captured: u64) {}

    /// All that is counted has been read: these are the launches so far.
    fn counted(&mut self, _launches: &Launches) {}

    /// Anything else.
    fn note(&mut self, _note: Note) {}

    /// Nothing more comes for the moment.
    fn pause(&mut self) {}

    /// What is recorded is to be in this file, in the same folder, once it is whole.
    fn rename(&mut self, _path: &Path) {}

    /// Nothing more comes.
    fn finish(&mut self) {}

    /// Nothing was traced: there is nothing to keep.
    fn discard(&mut self) {}
}

/// Records nothing.
impl Tap for () {}

/// Enters an event into `state`, as [`State::apply`], and tells `tap` what the world was asked for
/// that. The event itself, and what it has changed, are to be recorded next.
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

/// A world that remembers what it was asked and answered.
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
