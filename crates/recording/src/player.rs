//! Replay of a log: feeds a state as the live session did, optionally recording again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use anyhow::Result;

use super::log::{self, Item, LogNote, Mark};
use super::{Facts, Recorder};
use gpuprobe_cuda::{KindSet, Modes};
use gpuprobe_engine::AddressKind;
use gpuprobe_engine::transfers::Transfer;
use gpuprobe_engine::{HostInfo, Ledger, State};
use gpuprobe_model::abi::{RawBatch, RawLaunchKey};
use gpuprobe_model::activity::BatchDecoder;
use gpuprobe_model::event::{Event, Task};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::KnownFrames;

/// Answers to the queries of the next event.
#[derive(Debug, Default)]
struct Answers(RefCell<Vec<LogNote>>);

impl Answers {
    fn find<T>(&self, answer: impl Fn(&LogNote) -> Option<T>) -> Option<T> {
        self.0.borrow().iter().find_map(answer)
    }
}

impl HostInfo for Answers {
    fn identity(&self, task: &Task) -> Identity {
        let answer = self.find(|note| match note {
            LogNote::Identity(of, answer) if *of == task.pid => Some(answer.clone()),
            _ => None,
        });
        answer.unwrap_or_default()
    }

    fn kernel_at(&self, pid: u32, address: u64) -> Option<String> {
        self.find(|note| match note {
            LogNote::KernelAt(of, at, answer) if (*of, *at) == (pid, address) => {
                Some(answer.clone())
            }
            _ => None,
        })?
    }

    fn variable_size(&self, pid: u32, name: &str) -> Option<u64> {
        self.find(|note| match note {
            LogNote::VariableSize(of, what, size) if *of == pid && what == name => Some(*size),
            _ => None,
        })?
    }

    fn place(&self, pid: u32, address: u64) -> Option<AddressKind> {
        let on_device = self.find(|note| match note {
            LogNote::OnDevice(of, at, answer) if (*of, *at) == (pid, address) => Some(*answer),
            _ => None,
        })??;
        Some(if on_device {
            AddressKind::Device(None)
        } else {
            AddressKind::Host
        })
    }
}

/// Result of a replayed item.
#[derive(Clone, Debug)]
pub enum Played {
    /// An event, and its transfer if it was a copy.
    Event(Event, Option<Transfer>),
    /// A report was printed here.
    Report(Mark),
    /// An item without a visible effect.
    Nothing,
}

/// A state that is fed from a log.
pub struct Player {
    /// State of the engine.
    pub state: State,
    /// Frames recorded so far.
    pub symbols: KnownFrames,
    /// Modes of the run.
    pub modes: Modes,
    /// Losses so far, by name.
    pub lost: BTreeMap<String, u64>,
    answers: Answers,
    batches: BatchDecoder,
    recorder: Recorder,
    /// Launch counters were read that the recording does not have yet.
    has_counts: bool,
}

impl Player {
    /// Creates a player that records again into the new file `path`, until [`Self::finish`].
    ///
    /// # Errors
    /// Returns an error if the file exists or cannot be written.
    pub fn recording(path: &Path, facts: Facts) -> Result<Self> {
        let mut player = Self::new(facts.modes, facts.kinds);
        player.recorder = Recorder::start(path, facts, None)?;
        player.state.watch(true);
        Ok(player)
    }

    /// Creates a player with an empty state; `kinds` filters the memory kinds of reports.
    pub fn new(modes: Modes, kinds: KindSet) -> Self {
        Self {
            state: State {
                ledger: Ledger::counting(kinds),
                ..State::default()
            },
            symbols: KnownFrames::default(),
            modes,
            lost: BTreeMap::new(),
            answers: Answers::default(),
            batches: BatchDecoder::default(),
            recorder: Recorder::default(),
            has_counts: false,
        }
    }

    /// Replays an item of the log.
    pub fn play(&mut self, item: Item<'_>) -> Played {
        let played = match item {
            Item::Event(event) => self.event(event, None),
            Item::Batch(raw, batch) => {
                let event = Event::Activity(self.batches.decode(&raw, batch));
                self.event(event, Some((&raw, batch)))
            }
            Item::Count(key, runs, captured) => {
                self.count(key, runs, captured);
                return Played::Nothing;
            }
            Item::Note(note) => return self.note(note),
        };
        self.answers.0.borrow_mut().clear();
        played
    }

    /// Replays a record as the BPF side sends it.
    pub fn record(&mut self, bytes: &[u8]) -> Played {
        log::item_of_record(bytes).map_or(Played::Nothing, |item| self.play(item))
    }

    fn event(&mut self, event: Event, sent: Option<(&RawBatch, &[u8])>) -> Played {
        if let Event::Exit(task) | Event::Exec(task) = &event {
            self.batches.end(task.process);
        }
        let (recorder, state) = (&mut self.recorder, &mut self.state);
        let transfer = recorder.enter(state, &event, self.modes, &self.answers);
        if recorder.is_recording() {
            recorder.event(event.clone(), sent, state.changes());
        }
        Played::Event(event, transfer)
    }

    /// Marks the end of the entries available now.
    pub fn pause(&mut self) {
        if std::mem::take(&mut self.has_counts) {
            self.recorder.counted(&self.state.launches);
        }
        self.recorder.pause();
    }

    /// Ends the recording, if there is one.
    pub fn finish(&mut self) {
        self.pause();
        self.recorder.finish();
    }

    /// Replays launch counters of a kernel.
    pub fn count(&mut self, key: RawLaunchKey, runs: u64, captured: u64) {
        self.state.launches.set_counts(key, runs, captured);
        self.recorder.count(&key, runs, captured);
        self.has_counts = true;
    }

    /// Replays a note of the log.
    pub fn note(&mut self, note: LogNote) -> Played {
        // Answers are recorded when they are used.
        if self.recorder.is_recording() && !note.is_answer() {
            self.recorder.note(note.clone());
        }
        match note {
            answer if answer.is_answer() => self.answers.0.borrow_mut().push(answer),
            LogNote::Vanished(pid) => self.state.ledger.end_at(pid, None),
            LogNote::Lost(lost) => self.lost = lost,
            LogNote::Report(mark) => return Played::Report(mark),
            LogNote::Stack(pid, number, stack) => {
                self.state.ledger.set_stack(pid, number, Rc::new(stack));
            }
            LogNote::Frames(pid, location, is_innermost, frames) => {
                self.symbols.insert(pid, location, is_innermost, frames);
            }
            LogNote::Function(number, name) => self.symbols.insert_function(number, name),
            LogNote::Module(module, path) => self.symbols.insert_module(module, &path),
            LogNote::ProcessesUsed(now_ns, used) => self.state.ledger.note_used(now_ns, &used),
            LogNote::Incident(id, used) => self.state.ledger.incidents.learn(id, used),
            _ => {}
        }
        Played::Nothing
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use gpuprobe_model::stack::{Location, ModuleId, Symbolize, bare_frame};
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;
    use gpuprobe_model::abi::{RawTask, record};

    #[test]
    fn answers_are_found_by_what_was_asked() {
        let identity = Identity {
            command: Some("app".to_owned()),
            ..Identity::default()
        };
        let answers = Answers(RefCell::new(vec![
            LogNote::Vanished(1),
            LogNote::Identity(1, identity.clone()),
            LogNote::KernelAt(1, 0x10, Some("k".to_owned())),
            LogNote::VariableSize(1, "a".to_owned(), Some(4)),
            LogNote::OnDevice(1, 0x10, Some(true)),
            LogNote::OnDevice(1, 0x20, Some(false)),
            LogNote::OnDevice(1, 0x30, None),
        ]));
        let task = |pid| {
            let mut raw = RawTask::new_zeroed();
            raw.tgid = pid;
            Task::from(&raw)
        };
        assert_eq!(answers.identity(&task(1)), identity);
        assert_eq!(answers.identity(&task(2)), Identity::default());
        assert_eq!(answers.kernel_at(1, 0x10).as_deref(), Some("k"));
        assert_eq!(
            (answers.kernel_at(2, 0x10), answers.kernel_at(1, 0x11)),
            (None, None)
        );
        let size = |pid, name| answers.variable_size(pid, name);
        assert_eq!(
            [size(1, "a"), size(2, "a"), size(1, "b")],
            [Some(4), None, None]
        );
        let place = |pid, address| answers.place(pid, address);
        assert!(matches!(place(1, 0x10), Some(AddressKind::Device(None))));
        assert!(matches!(place(1, 0x20), Some(AddressKind::Host)));
        assert!(place(1, 0x30).is_none() && place(2, 0x10).is_none());
    }

    #[test]
    fn notes_are_played_and_answers_kept_until_the_next_event() {
        let mut player = Player::new(Modes::default(), KindSet::default());
        let lost = BTreeMap::from([("memory".to_owned(), 3)]);
        let location = Location {
            address: 0x10,
            module: Some(ModuleId(1)),
            offset: 5,
        };
        let frame = bare_frame(&location);
        for note in [
            LogNote::Lost(lost.clone()),
            LogNote::Frames(7, location, false, vec![frame]),
            LogNote::Module(ModuleId(2), "/lib".to_owned()),
            LogNote::KernelAt(1, 2, None),
        ] {
            assert!(matches!(player.play(Item::Note(note)), Played::Nothing));
        }
        assert_eq!(player.lost, lost);
        assert!(player.symbols.contains(7, &location, false));
        let elsewhere = Location {
            module: Some(ModuleId(2)),
            ..location
        };
        assert_eq!(player.symbols.module(&elsewhere).as_deref(), Some("/lib"));
        assert_eq!(player.answers.0.borrow().len(), 1);
        let mut raw = RawTask::new_zeroed();
        raw.record_type = record::THREAD;
        let played = player.record(raw.as_bytes());
        assert!(matches!(played, Played::Event(Event::Thread(_), None)));
        assert!(player.answers.0.borrow().is_empty());
        let mut key = RawLaunchKey::new_zeroed();
        key.process = 1;
        player.play(Item::Count(key, 5, 6));
        assert!(player.has_counts);
        player.finish();
        assert!(!player.has_counts);
    }
}
