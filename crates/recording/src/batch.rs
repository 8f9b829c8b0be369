//! What the tracing side hands to the thread that writes a recording.

use std::sync::Arc;

use super::log::Note;
use gpuprobe_engine::Change;
use gpuprobe_engine::launches::Counted;
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_model::activity::Activity;
use gpuprobe_model::event::Event;

/// The log is cut into pieces of about this many bytes.
pub(super) const LOG_BYTES: usize = 1 << 18;

/// What has happened, in the order of the log.
#[derive(Debug)]
pub(super) enum Step {
    /// An event, and the number of its changes.
    Event(Event, usize),
    /// Anything else; there are few.
    Note(Box<Note>),
    /// What has been launched so far.
    Counted(Vec<Launched>),
}

/// A kernel or graph, and its launches.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) key: RawLaunchKey,
    /// Process id.
    pub(super) pid: u32,
    /// The mangled name, if it is known.
    pub(super) mangled: Option<Arc<str>>,
    pub(super) counted: Counted,
}

/// A piece of the log, and what it means.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) log: Vec<u8>,
    /// Records in it.
    pub(super) records: u64,
    pub(super) steps: Vec<Step>,
    /// The changes of all events, in order.
    pub(super) changes: Vec<Change>,
    /// Bytes that steps take elsewhere, where that may be many.
    elsewhere: usize,
}

impl Batch {
    /// Has room for as much as `before` has.
    pub(super) fn after(before: &Self) -> Self {
        Self {
            log: Vec::with_capacity(LOG_BYTES * 2),
            steps: Vec::with_capacity(before.steps.len()),
            changes: Vec::with_capacity(before.changes.len()),
            ..Self::default()
        }
    }

    pub(super) fn event(&mut self, event: Event, changes: &mut Vec<Change>) {
        if let Event::Activity(batch) = &event {
            self.elsewhere += size_of::<Activity>() * batch.activities.len();
        }
        self.records += 1;
        self.steps.push(Step::Event(event, changes.len()));
        self.changes.append(changes);
    }

    pub(super) fn counted(&mut self, launched: Vec<Launched>) {
        self.elsewhere += size_of::<Launched>() * launched.len();
        self.steps.push(Step::Counted(launched));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.log.is_empty() && self.steps.is_empty()
    }

    /// About the memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.log.len()
            + size_of::<Step>() * self.steps.len()
            + size_of::<Change>() * self.changes.len()
            + self.elsewhere
    }
}
