//! What `explain` shows while it watches, and when it has its answer.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{Instant, sleep_until};

use gpuprobe_os::{before_lines, say};
use gpuprobe_report::explain::Explain;

/// The least time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two looks is so many times as long as one takes.
const LOOK_SHARE: u32 = 20;
/// Between two lines, where standard error is no terminal.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// A leak that is sure is the answer after this time; that there is none, after this.
const LEAST_LEAK: Duration = Duration::from_secs(12);
const LEAST_CLEAN: Duration = Duration::from_secs(30);

/// Looks while processes are watched.
pub(super) struct Watch {
    began: Instant,
    next: Instant,
    say_next: Instant,
    /// The line on a terminal; hidden on anything else.
    line: ProgressBar,
}

impl Watch {
    pub(super) fn start() -> Self {
        let style = ProgressStyle::with_template("gpuprobe: {wide_msg}");
        let line = ProgressBar::new_spinner();
        let now = Instant::now();
        let shown = line.clone();
        before_lines(move || shown.finish_and_clear());
        Self {
            began: now,
            next: now + LOOK_EVERY,
            say_next: now + SAY_EVERY,
            line: line.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner())),
        }
    }

    /// Waits for the next look.
    pub(super) fn tick(&self) -> impl Future<Output = ()> + use<> {
        sleep_until(self.next)
    }

    /// Shows what was found by a look that began then. Returns whether that is the answer.
    pub(super) fn show(&mut self, explain: &Explain, begun: Instant) -> bool {
        let now = Instant::now();
        self.next = now + LOOK_EVERY.max((now - begun) * LOOK_SHARE);
        let watched = now - self.began;
        let seconds = watched.as_secs();
        let said = format!(
            "watching for {seconds}s, Ctrl-C for the verdict so far: {}",
            explain.so_far()
        );
        if !self.line.is_hidden() {
            if self.line.is_finished() {
                self.line.reset();
            }
            self.line.set_message(said);
            self.line.tick();
        } else if now >= self.say_next {
            self.say_next = now + SAY_EVERY;
            say(said);
        }
        is_answer(explain, watched)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

/// Whether this is the answer after having watched for so long.
fn is_answer(explain: &Explain, watched: Duration) -> bool {
    let least = match explain.has_growth() {
        true => LEAST_LEAK,
        false => LEAST_CLEAN,
    };
    watched >= least && explain.is_settled()
}
