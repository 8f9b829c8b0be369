//! The kernel side's clock in wall-clock terms.

use chrono::{DateTime, Duration, FixedOffset, Local, SecondsFormat};
use nix::time::{ClockId, clock_gettime};

/// Maps `CLOCK_MONOTONIC` nanoseconds, which every record carries, onto local time. Taken once,
/// so that an event keeps its time in every report even if the wall clock is stepped.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall: DateTime<FixedOffset>,
    monotonic_ns: i64,
}

impl Clock {
    /// Reads both clocks now.
    pub fn now() -> Self {
        Self {
            wall: Local::now().fixed_offset(),
            monotonic_ns: read_ns(ClockId::CLOCK_MONOTONIC),
        }
    }

    /// A clock that was read at `monotonic_ns`, when it was `wall`.
    pub fn at(wall: DateTime<FixedOffset>, monotonic_ns: i64) -> Self {
        Self { wall, monotonic_ns }
    }

    /// When the clock was read, `CLOCK_MONOTONIC` nanoseconds.
    pub fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.monotonic_ns).unwrap_or(0)
    }

    /// The local time at `monotonic_ns`.
    pub fn wall(&self, monotonic_ns: u64) -> DateTime<FixedOffset> {
        let monotonic_ns = i64::try_from(monotonic_ns).unwrap_or(i64::MAX);
        let distance = Duration::nanoseconds(monotonic_ns.saturating_sub(self.monotonic_ns));
        self.wall.checked_add_signed(distance).unwrap_or(self.wall)
    }
}

/// `CLOCK_MONOTONIC` nanoseconds.
pub fn monotonic_ns() -> u64 {
    u64::try_from(read_ns(ClockId::CLOCK_MONOTONIC)).unwrap_or(0)
}

/// `CLOCK_BOOTTIME` nanoseconds, which start times of processes are in.
pub fn boot_ns() -> u64 {
    u64::try_from(read_ns(ClockId::CLOCK_BOOTTIME)).unwrap_or(0)
}

fn read_ns(clock: ClockId) -> i64 {
    clock_gettime(clock).map_or(0, |t| t.tv_sec() * 1_000_000_000 + t.tv_nsec())
}

/// Local time with offset, to the second: the time of a report.
pub fn rfc3339_seconds(time: &DateTime<FixedOffset>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, false)
}

/// Local time with offset, to the microsecond: the time of an event.
pub fn rfc3339_micros(time: &DateTime<FixedOffset>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, false)
}
