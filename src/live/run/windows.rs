//! The windows of a census: the times in which the hooks of frameworks' allocators are probed, so that some blocks have
//! their line. A hit takes what it takes, whatever is done with it: so they are not probed in between.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::costs::{most_spent_ns, trap_ns};
use super::reading::Reading;
use crate::live::TensorMode;
use crate::probe::{self, Hits};

/// How long a window is at most, and what comes before it at least: much less than what is between two looks of `explain`,
/// each of which closes it.
const OPEN_FOR: Duration = Duration::from_secs(1);
const CLOSED_FOR: Duration = Duration::from_millis(200);
/// The share of a thread's time that windows may take: half of what is promised, as they take more before it is noticed.
const SHARE: f64 = 0.01;
/// Nanoseconds of a thread's time that a window may take.
const MOST_NS: f64 = 10e6;

/// When the hooks are probed.
#[derive(Default)]
pub(super) struct Windows {
    /// When they were last attached or detached; `None` before the first window.
    switched: Option<Instant>,
    pub(super) is_open: bool,
    /// How much the last window has taken, of the thread that is hit most.
    last_ns: f64,
    /// By how much all have taken more than their share, as of then; as much as the last is saved for the next.
    ahead_ns: f64,
    noted: Option<Instant>,
    hits: Hits,
}

impl Windows {
    /// Notes that in this time the thread that was hit most has spent so much.
    fn note(&mut self, spent_ns: f64, now: Instant) {
        let passed = self
            .noted
            .replace(now)
            .map_or(Duration::ZERO, |noted| now - noted);
        let share_ns = passed.as_nanos() as f64 * SHARE;
        self.ahead_ns += spent_ns - share_ns;
        match self.is_open {
            true => self.last_ns += spent_ns,
            false => self.ahead_ns = self.ahead_ns.max(-self.last_ns),
        }
    }

    /// Whether a window is to be opened or closed.
    fn is_due(&self, now: Instant) -> bool {
        let passed = self.switched.map(|switched| now - switched);
        match self.is_open {
            true => passed >= Some(OPEN_FOR) || self.last_ns > MOST_NS,
            false => {
                let is_saved = self.ahead_ns <= -self.last_ns;
                is_saved && passed.is_none_or(|passed| passed >= CLOSED_FOR)
            }
        }
    }

    fn switch(&mut self, now: Instant) {
        self.is_open = !self.is_open;
        self.switched = Some(now);
        if self.is_open {
            self.last_ns = 0.0;
        }
    }
}

impl Reading<'_> {
    /// Opens or closes a window, if it is time.
    pub(super) fn step_windows(&mut self) -> Result<()> {
        if self.config.tensors != TensorMode::Census {
            return Ok(());
        }
        self.note_hits();
        if !self.windows.is_due(Instant::now()) {
            return Ok(());
        }
        if self.windows.is_open {
            return self.find_blocks();
        }
        self.open_window();
        Ok(())
    }

    fn open_window(&mut self) {
        let ledger = &mut self.sink.state.ledger;
        let pids: Vec<_> = ledger.live_processes().map(|process| process.pid).collect();
        pids.iter().for_each(|pid| ledger.count_by_census(*pid));
        self.windows.hits = probe::hits(&self.tracer.probe);
        self.tracer.switch_window(true);
        self.windows.switch(Instant::now());
    }

    /// Closes the window, if one is open, and reads what was sent in it. Returns whether the hooks are no longer probed.
    pub(super) fn close_window(&mut self) -> Result<bool> {
        if !self.windows.is_open {
            return Ok(true);
        }
        if !self.tracer.switch_window(false) {
            return Ok(false);
        }
        self.note_hits();
        self.windows.switch(Instant::now());
        self.rings.flush()?;
        self.read_until(Some(Instant::now() + OPEN_FOR), true)?;
        Ok(true)
    }

    fn note_hits(&mut self) {
        let mut spent_ns = 0.0;
        if self.windows.is_open {
            let hits = probe::hits(&self.tracer.probe);
            spent_ns = most_spent_ns(&hits, &self.windows.hits, trap_ns());
            self.windows.hits = hits;
        }
        self.windows.note(spent_ns, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_take_their_share_at_most() {
        // Of a program that spends nothing, a tenth, and all of its time in hits.
        for (spends, least, most) in [(0.0, 0.7, 0.9), (0.1, 0.08, 0.11), (1.0, 0.008, 0.011)] {
            let mut windows = Windows::default();
            let (begun, tick) = (Instant::now(), Duration::from_millis(100));
            let (mut open, mut longest) = (0, 0);
            for n in 0..6_000 {
                let now = begun + tick * n;
                let spent_ns = f64::from(u8::from(windows.is_open)) * spends * 1e8;
                windows.note(spent_ns, now);
                if windows.is_due(now) {
                    windows.switch(now);
                    longest = 0;
                }
                open += u32::from(windows.is_open);
                longest += u32::from(windows.is_open);
                assert!(longest <= 10);
            }
            let share = f64::from(open) / 6_000.0;
            assert!((least..=most).contains(&share), "{spends}: {share}");
        }
    }
}
