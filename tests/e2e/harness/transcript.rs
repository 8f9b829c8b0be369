//! The lines that a process writes, as they arrive.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::{DEADLINE, patience};

#[derive(Default)]
struct State {
    lines: Vec<String>,
    ended: bool,
}

/// Ignores poisoning: a test that fails while it waits must not make the reading thread panic too.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a stream on a thread of its own, so that its writer never waits for the test.
pub(crate) struct Transcript {
    shared: Arc<(Mutex<State>, Condvar)>,
    next: usize,
}

impl Transcript {
    /// With `GPUPROBE_LOG` set, the lines are also in the test's output.
    #[allow(clippy::print_stderr)]
    pub(crate) fn of(stream: impl Read + Send + 'static) -> Self {
        let is_shown = std::env::var_os("GPUPROBE_LOG").is_some();
        let shared = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let written = Arc::clone(&shared);
        thread::spawn(move || {
            let (state, changed) = &*written;
            let mut stream = BufReader::new(stream);
            let mut bytes = Vec::new();
            while matches!(stream.read_until(b'\n', &mut bytes), Ok(n) if n > 0) {
                let line = String::from_utf8_lossy(&bytes);
                let line = line.trim_end_matches('\n').to_owned();
                if is_shown {
                    eprintln!("{line}");
                }
                lock(state).lines.push(line);
                changed.notify_all();
                bytes.clear();
            }
            lock(state).ended = true;
            changed.notify_all();
        });
        Self { shared, next: 0 }
    }

    /// The next line, or `None` at the end.
    ///
    /// # Panics
    ///
    /// At the timeout.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        let next = self.next;
        let line = self.wait("another line", |state| match state.lines.get(next) {
            Some(line) => Some(Some(line.clone())),
            None => state.ended.then_some(None),
        });
        self.next += usize::from(line.is_some());
        line
    }

    /// The first line, read or not, that starts with `prefix`.
    ///
    /// # Panics
    ///
    /// At the end of the stream, and at the timeout.
    pub(crate) fn line_starting(&self, prefix: &str) -> String {
        let what = format!("a line that starts with '{prefix}'");
        let found = self.wait(&what, |state| {
            let found = state.lines.iter().find(|line| line.starts_with(prefix));
            match found {
                Some(line) => Some(Ok(line.clone())),
                None => state.ended.then(|| Err(state.lines.clone())),
            }
        });
        found.unwrap_or_else(|lines| panic!("ended without {what}: {lines:#?}"))
    }

    /// Waits for a line that contains all of these parts.
    pub(crate) fn line_with(&self, parts: &[&str]) -> String {
        let has_all = |line: &&String| parts.iter().all(|part| line.contains(part));
        self.wait(&format!("a line with {parts:?}"), |state| {
            state.lines.iter().find(has_all).cloned()
        })
    }

    /// Every line, once the stream has ended.
    pub(crate) fn to_end(&self) -> Vec<String> {
        self.wait("the end of a stream", |state| {
            state.ended.then(|| state.lines.clone())
        })
    }

    /// Every line so far.
    pub(crate) fn so_far(&self) -> Vec<String> {
        lock(&self.shared.0).lines.clone()
    }

    fn wait<T>(&self, what: &str, mut done: impl FnMut(&State) -> Option<T>) -> T {
        let end = Instant::now() + DEADLINE * patience();
        let (state, changed) = &*self.shared;
        let mut state = lock(state);
        loop {
            if let Some(value) = done(&state) {
                return value;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "timed out waiting for {what} after {:#?}",
                state.lines
            );
            state = changed.wait_timeout(state, left).unwrap().0;
        }
    }
}
