//! The timer of periodic work.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use nix::unistd::read;
use tokio::io::unix::AsyncFd;

use crate::probe::watch;

/// Ticks of a timerfd. For a tick of Tokio's timers, which are kept in slots of 64 ms, the process wakes twice, and
/// writes to wake itself: at low rates of events much of its processor time.
pub(super) struct PollTimer(AsyncFd<OwnedFd>);

impl PollTimer {
    /// Ticks at once, and then at intervals of `period`; of ticks that are missed, one is made up for.
    ///
    /// # Errors
    /// Returns an error if the system gives no timer.
    pub(super) fn start(period: Duration) -> Result<Self> {
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )
        .context("cannot make a timer")?;
        let at_once = TimeSpec::from_duration(Duration::from_nanos(1));
        let ticks = Expiration::IntervalDelayed(at_once, TimeSpec::from_duration(period));
        timer
            .set(ticks, TimerSetTimeFlags::empty())
            .context("cannot set a timer")?;
        Ok(Self(watch(timer.into())?))
    }

    /// Completes at the next tick.
    pub(super) async fn tick(&self) -> std::io::Result<()> {
        let mut guard = self.0.readable().await?;
        // Clears the number of ticks since the last read.
        let _ = read(guard.get_inner(), &mut [0; 8]);
        guard.clear_ready();
        Ok(())
    }
}
