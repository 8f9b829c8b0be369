//! Where the session hands what a recording needs.

use std::cell::RefCell;

use super::log::Note;
use gpuprobe_engine::Whereabouts;
use gpuprobe_engine::World;
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_model::event::Task;
use gpuprobe_model::identity::Identity;

/// Takes what the state is fed with. By default, nothing is done with it.
pub trait Tap {
    /// Whether anything is done with it.
    fn is_recording(&self) -> bool {
        false
    }

    /// A record of the rings, after the notes that answer its questions.
    fn record(&mut self, _bytes: &[u8]) {}

    /// What the kernel side has counted of a kernel.
    fn count(&mut self, _key: &RawLaunchKey, _runs: u64, _captured: u64) {}

    /// Anything else.
    fn note(&mut self, _note: Note) {}

    /// Nothing more comes for the moment.
    fn pause(&mut self) {}

    /// Nothing more comes.
    fn finish(&mut self) {}

    /// Nothing was traced: there is nothing to keep.
    fn discard(&mut self) {}
}

/// Records nothing.
impl Tap for () {}

/// A world that remembers what it was asked and answered.
pub struct Witness<'a, W> {
    world: &'a W,
    notes: RefCell<Vec<Note>>,
}

impl<'a, W: World> Witness<'a, W> {
    /// Asks `world`.
    pub fn new(world: &'a W) -> Self {
        Self {
            world,
            notes: RefCell::default(),
        }
    }

    /// What was answered.
    pub fn into_notes(self) -> Vec<Note> {
        self.notes.into_inner()
    }
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
