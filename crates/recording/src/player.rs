//! Feeds a state from a log, as the session fed its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::log::{Entry, Mark, Note};
use gpuprobe_cuda::{KindSet, Modes};
use gpuprobe_engine::Whereabouts;
use gpuprobe_engine::transfers::Transfer;
use gpuprobe_engine::{Ledger, State, World};
use gpuprobe_model::event;
use gpuprobe_model::event::{Event, Task};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::KnownFrames;

/// The answers to the next record.
#[derive(Debug, Default)]
struct Answers(RefCell<Vec<Note>>);

impl Answers {
    fn find<T>(&self, answer: impl Fn(&Note) -> Option<T>) -> Option<T> {
        self.0.borrow().iter().find_map(answer)
    }
}

impl World for Answers {
    fn identity(&self, task: &Task) -> Identity {
        let answer = self.find(|note| match note {
            Note::Identity(of, answer) if *of == task.pid => Some(answer.clone()),
            _ => None,
        });
        answer.unwrap_or_default()
    }

    fn kernel_at(&self, pid: u32, address: u64) -> Option<String> {
        self.find(|note| match note {
            Note::KernelAt(of, at, answer) if (*of, *at) == (pid, address) => Some(answer.clone()),
            _ => None,
        })?
    }

    fn variable_size(&self, pid: u32, name: &str) -> Option<u64> {
        self.find(|note| match note {
            Note::VariableSize(of, what, size) if *of == pid && what == name => Some(*size),
            _ => None,
        })?
    }

    fn place(&self, pid: u32, address: u64) -> Option<Whereabouts> {
        let on_device = self.find(|note| match note {
            Note::OnDevice(of, at, answer) if (*of, *at) == (pid, address) => Some(*answer),
            _ => None,
        })??;
        Some(if on_device {
            Whereabouts::Device(None)
        } else {
            Whereabouts::Host
        })
    }
}

/// What an entry was.
#[derive(Clone, Debug)]
pub enum Played {
    /// An event, and the copy that it was, if it was one.
    Event(Event, Option<Transfer>),
    /// Launches were counted.
    Counts,
    /// Losses are known.
    Lost,
    /// A report is to be made.
    Report(Mark),
    /// Nothing to be seen.
    Nothing,
}

/// A state that is fed from a log.
#[derive(Debug)]
pub struct Player {
    /// The state.
    pub state: State,
    /// The frames of call stacks that have been found so far.
    pub symbols: KnownFrames,
    /// What it is fed with.
    pub modes: Modes,
    /// What has been lost so far, by name.
    pub lost: BTreeMap<String, u64>,
    /// Records that did not find their way into the recording.
    pub dropped: u64,
    /// Records that could not be decoded.
    pub undecodable: u64,
    answers: Answers,
    decoder: event::Decoder,
}

impl Player {
    /// Nothing has happened yet; reports are about these kinds of memory.
    pub fn new(modes: Modes, kinds: KindSet) -> Self {
        Self {
            state: State {
                ledger: Ledger::counting(kinds),
                ..State::default()
            },
            symbols: KnownFrames::default(),
            modes,
            lost: BTreeMap::new(),
            dropped: 0,
            undecodable: 0,
            answers: Answers::default(),
            decoder: event::Decoder::default(),
        }
    }

    /// Feeds the state with an entry.
    pub fn play(&mut self, entry: Entry<'_>) -> Played {
        match entry {
            Entry::Record(bytes) => {
                let played = self.record(bytes);
                self.answers.0.borrow_mut().clear();
                played
            }
            Entry::Count(key, runs, captured) => {
                self.state.launches.set_counts(key, runs, captured);
                Played::Counts
            }
            Entry::Note(note) => self.note(note),
        }
    }

    fn record(&mut self, bytes: &[u8]) -> Played {
        match self.decoder.decode(bytes) {
            Ok(event) => {
                let transfer = self.state.apply(&event, self.modes, &self.answers);
                Played::Event(event, transfer)
            }
            Err(error) => {
                tracing::debug!("{error}");
                self.undecodable += 1;
                Played::Nothing
            }
        }
    }

    fn note(&mut self, note: Note) -> Played {
        match note {
            Note::Identity(..)
            | Note::KernelAt(..)
            | Note::VariableSize(..)
            | Note::OnDevice(..) => {
                self.answers.0.borrow_mut().push(note);
                Played::Nothing
            }
            Note::Vanished(pid) => {
                self.state.ledger.end_unseen(pid);
                Played::Nothing
            }
            Note::Lost(lost) => {
                self.lost = lost;
                Played::Lost
            }
            Note::Dropped(records) => {
                self.dropped = records;
                Played::Lost
            }
            Note::Report(mark) => Played::Report(mark),
            Note::Stack(pid, number, stack) => {
                self.state.ledger.learn_stack(pid, number, Rc::new(stack));
                Played::Nothing
            }
            Note::Frames(pid, location, is_innermost, frames) => {
                self.symbols.learn(pid, location, is_innermost, frames);
                Played::Nothing
            }
            Note::Used(..) => Played::Nothing,
        }
    }
}
