//! Channel between the source of reports, a session or a replay, and the screen.
//!
//! The source never waits: it replaces the report that the screen has not fetched yet.

use std::collections::HashMap;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use gpuprobe_report::explain::Explain;
use gpuprobe_report::{ProcessDetail, Report};
use gpuprobe_stacks::symbols::{SourceExcerpt, SourcePlace};

/// Messages that are kept until the screen shows them.
const MAX_MESSAGES: usize = 100;

/// The worst verdict on each process, as a word; empty if there is none.
pub type Verdicts = Arc<HashMap<u32, &'static str>>;

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
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// The process to list in detail, from now on.
    Detail(Option<ProcessDetail>),
    /// Explain what this process holds.
    Explain(u32),
    /// Read the source lines around this place.
    Source(SourcePlace),
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
    /// Source lines.
    Source(SourceExcerpt),
}

#[derive(Debug, Default)]
struct Slot {
    update: Option<Update>,
    notices: Vec<ScreenNotice>,
    is_closing: bool,
    /// A byte for the contents is in the pipe.
    is_woken: bool,
}

#[derive(Debug)]
struct Shared {
    slot: Mutex<Slot>,
    wake: PipeWriter,
    is_gone: AtomicBool,
}

impl Shared {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the slot and wakes the screen. There is never more than one byte in the pipe, so writing does not wait.
    fn put(&self, change: impl FnOnce(&mut Slot)) {
        let mut slot = self.slot();
        change(&mut slot);
        if !std::mem::replace(&mut slot.is_woken, true) {
            let _ = (&self.wake).write(&[0]);
        }
    }
}

/// Sender of reports and receiver of requests.
#[derive(Debug)]
pub struct Source {
    shared: Arc<Shared>,
    requests: Receiver<Request>,
}

impl Source {
    /// Gives the screen a report, instead of one that it has not fetched.
    pub fn publish(&self, update: Update) {
        self.shared.put(|slot| slot.update = Some(update));
    }

    /// Gives the screen a notice.
    pub fn notify(&self, notice: ScreenNotice) {
        self.messenger().notify(notice);
    }

    /// The next request of the user, if there is one.
    pub fn request(&self) -> Option<Request> {
        self.requests.try_recv().ok()
    }

    /// The next request of the user within `at_most`; [`Request::Quit`] once the screen has ended.
    pub fn wait(&self, at_most: Duration) -> Option<Request> {
        match self.requests.recv_timeout(at_most) {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Request::Quit),
        }
    }

    /// Whether the screen has ended.
    pub fn is_gone(&self) -> bool {
        self.shared.is_gone.load(Ordering::Acquire)
    }

    /// A way for others to give the screen notices.
    pub fn messenger(&self) -> Messenger {
        Messenger(Arc::clone(&self.shared))
    }

    pub(crate) fn close(&self) {
        self.shared.put(|slot| slot.is_closing = true);
    }
}

/// Gives the screen notices.
#[derive(Clone, Debug)]
pub struct Messenger(Arc<Shared>);

impl Messenger {
    /// Gives the screen a notice; the oldest of too many are dropped.
    pub fn notify(&self, notice: ScreenNotice) {
        self.0.put(|slot| {
            if slot.notices.len() == MAX_MESSAGES {
                slot.notices.remove(0);
            }
            slot.notices.push(notice);
        });
    }
}

/// Contents of the channel at one time.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) update: Option<Update>,
    pub(crate) notices: Vec<ScreenNotice>,
    pub(crate) is_closing: bool,
}

/// The screen's end.
#[derive(Debug)]
pub(crate) struct ScreenInbox {
    shared: Arc<Shared>,
    requests: Sender<Request>,
    /// Readable when there is something to fetch.
    pub(crate) woken: PipeReader,
}

impl ScreenInbox {
    /// Takes everything that is there.
    pub(crate) fn fetch(&mut self) -> Fetched {
        let mut slot = self.shared.slot();
        if std::mem::take(&mut slot.is_woken) {
            let _ = std::io::Read::read(&mut self.woken, &mut [0]);
        }
        Fetched {
            update: slot.update.take(),
            notices: std::mem::take(&mut slot.notices),
            is_closing: slot.is_closing,
        }
    }

    /// Passes a request on; a source that has ended does not need it.
    pub(crate) fn ask(&self, request: Request) {
        let _ = self.requests.send(request);
    }
}

impl Drop for ScreenInbox {
    fn drop(&mut self) {
        self.shared.is_gone.store(true, Ordering::Release);
    }
}

/// Both ends.
pub(crate) fn feed() -> Result<(Source, ScreenInbox)> {
    let (woken, wake) = pipe().context("cannot create a pipe")?;
    let (sender, receiver) = mpsc::channel();
    let shared = Arc::new(Shared {
        slot: Mutex::default(),
        wake,
        is_gone: AtomicBool::new(false),
    });
    let source = Source {
        shared: Arc::clone(&shared),
        requests: receiver,
    };
    let sink = ScreenInbox {
        shared,
        requests: sender,
        woken,
    };
    Ok((source, sink))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn message(notice: &ScreenNotice) -> &str {
        match notice {
            ScreenNotice::Message(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_screen_that_fetches_nothing_holds_up_no_source() {
        let (source, mut sink) = feed().unwrap();
        // More than a pipe holds.
        for number in 0..100_000 {
            source.notify(ScreenNotice::Message(number.to_string()));
        }
        let fetched = sink.fetch();
        assert_eq!(fetched.notices.len(), MAX_MESSAGES);
        assert_eq!(message(&fetched.notices[0]), "99900");
        assert!(!fetched.is_closing && sink.fetch().notices.is_empty());
        source.close();
        assert!(sink.fetch().is_closing);
    }

    #[test]
    fn requests_arrive_in_order_and_the_end_is_seen() {
        let (source, sink) = feed().unwrap();
        sink.ask(Request::Explain(7));
        sink.ask(Request::Stop);
        assert_eq!(source.request(), Some(Request::Explain(7)));
        assert_eq!(source.wait(Duration::ZERO), Some(Request::Stop));
        assert_eq!(source.request(), None);
        assert!(!source.is_gone());
        drop(sink);
        assert!(source.is_gone());
        assert_eq!(source.wait(Duration::ZERO), Some(Request::Quit));
    }
}
