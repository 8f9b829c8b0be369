//! Successes and failures of pushes: each change is said once.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

use super::client::PushError;
use gpuprobe_os::say;

/// A failure that lasts, or comes again, is said this often.
const SAY_EVERY: Duration = Duration::from_secs(3600);
/// Failures to connect in a row before the host is looked up again.
const LOOK_UP_AFTER: u32 = 3;

/// Outcomes of pushes to one server.
pub(super) struct PushOutcomes {
    /// Documents and server, in words.
    what: String,
    said: Option<Instant>,
    /// A failure was said, and no success since.
    has_said: bool,
    unreachable: u32,
}

impl PushOutcomes {
    /// Outcomes of pushes of `documents` to `server`; `has_said` if the process before this one has said that they fail.
    pub(super) fn new(documents: &str, server: impl Display, has_said: bool) -> Self {
        Self {
            what: format!("{documents} to {server}"),
            said: has_said.then(Instant::now),
            has_said,
            unreachable: 0,
        }
    }

    /// Notes an outcome; returns whether the host is to be looked up again.
    pub(super) fn note(&mut self, outcome: &Result<(), PushError>) -> bool {
        match outcome {
            Ok(()) => {
                if std::mem::take(&mut self.has_said) {
                    say(format_args!("pushing {}", self.what));
                }
                self.unreachable = 0;
            }
            Err(error) => {
                if self.said.is_none_or(|said| said.elapsed() > SAY_EVERY) {
                    self.said = Some(Instant::now());
                    self.has_said = true;
                    let why = &error.why;
                    say(format_args!(
                        "cannot push {}: {why:#}; trying on, and suppressing further warnings of this kind \
                         for an hour",
                        self.what
                    ));
                }
                self.unreachable = match error.is_unreachable {
                    true => self.unreachable + 1,
                    false => 0,
                };
            }
        }
        self.unreachable >= LOOK_UP_AFTER
    }
}
