//! Channel between the source of reports, a session or a replay, and the screen.
//!
//! The source never waits: it replaces the report that the screen has not fetched yet.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gpuprobe_report::explain::Explain;
use gpuprobe_report::verdict::Verdicts;
use gpuprobe_report::{ProcessDetail, Report};
use ratatui::crossterm::event::Event;

/// Messages that are kept until the screen shows them.
const MAX_MESSAGES: usize = 100;

/// A report, with what views need besides.
#[derive(Clone, Debug)]
pub struct Update {
    /// The newest report; unlike that of `--format json`, it may have sums only of all processes but one.
    pub report: Arc<Report>,
    /// When it was made, on the clock of events, nanoseconds.
    pub now_ns: u64,
    /// The process that it lists in detail.
    pub detail: Option<ProcessDetail>,
    /// Parents of listed processes: the nearest ancestors that are listed, too.
    pub parents: Arc<HashMap<u32, u32>>,
    /// Verdicts on the processes, not older than some seconds.
    pub verdicts: Verdicts,
    /// Name of the recording that is played; `None` of a live session.
    pub playing: Option<PlaybackState>,
}

/// State of a recording that is played.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaybackState {
    /// Name of the file.
    pub file: String,
    /// Time since the beginning of the recording, nanoseconds.
    pub at_ns: u64,
    /// Length of the recording, nanoseconds.
    pub length_ns: u64,
    /// Factor by which it is played faster than it was recorded.
    pub speed: f64,
    /// Whether time stands still.
    pub is_stopped: bool,
}

/// A wish of the user that the source fulfils.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request {
    /// The process to list in detail, from now on.
    Detail(Option<ProcessDetail>),
    /// Explain what this process holds.
    Explain(u32),
    /// Write a flame graph of the memory that this process holds.
    Flamegraph(u32),
    /// Start a recording of this process, or stop the one that is being made.
    Record(u32),
    /// Play from a time this much later, seconds; negative for earlier.
    Seek(f64),
    /// Play this many times faster than now.
    Faster(f64),
    /// Stop time, or resume it.
    Stop,
    /// End.
    Quit,
}

/// Something for the screen besides reports.
#[derive(Clone, Debug)]
pub enum ScreenNotice {
    /// A message for the user.
    Message(String),
    /// The explanation of a process.
    Explained(u32, Box<Explain>),
}

/// What the screen has not fetched yet.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) update: Option<Update>,
    pub(crate) notices: Vec<ScreenNotice>,
    pub(crate) events: Vec<Event>,
    pub(crate) is_closing: bool,
    is_changed: bool,
}

/// Gives the screen reports and notices.
#[derive(Clone, Debug, Default)]
pub struct Feed(Arc<(Mutex<Slot>, Condvar)>);

impl Feed {
    /// Gives the screen a report, instead of one that it has not fetched.
    pub fn publish(&self, update: Update) {
        self.put(|slot| slot.update = Some(update));
    }

    /// Gives the screen a notice; the oldest of too many are dropped.
    pub fn notify(&self, notice: ScreenNotice) {
        self.put(|slot| {
            if slot.notices.len() == MAX_MESSAGES {
                slot.notices.remove(0);
            }
            slot.notices.push(notice);
        });
    }

    /// Changes what the screen has not fetched yet, and wakes it.
    pub(crate) fn put(&self, change: impl FnOnce(&mut Slot)) {
        let (slot, changed) = &*self.0;
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut slot);
        slot.is_changed = true;
        changed.notify_one();
    }

    /// Takes everything that is there, or arrives within `at_most`.
    pub(crate) fn fetch(&self, at_most: Duration) -> Slot {
        let (slot, changed) = &*self.0;
        let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(slot, at_most, |slot| !slot.is_changed);
        let (mut slot, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *slot)
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_that_fetches_nothing_holds_up_no_source() {
        let feed = Feed::default();
        for number in 0..100_000 {
            feed.notify(ScreenNotice::Message(number.to_string()));
        }
        let fetched = feed.fetch(Duration::ZERO);
        assert_eq!(fetched.notices.len(), MAX_MESSAGES);
        let ScreenNotice::Message(oldest) = &fetched.notices[0] else {
            panic!("{:?}", fetched.notices[0]);
        };
        assert_eq!(oldest, "99900");
        assert!(!fetched.is_closing && feed.fetch(Duration::ZERO).notices.is_empty());
        feed.put(|slot| slot.is_closing = true);
        assert!(feed.fetch(Duration::MAX).is_closing);
    }
}
