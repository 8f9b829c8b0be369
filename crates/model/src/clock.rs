//! Conversion of `CLOCK_MONOTONIC` to wall-clock time.

use chrono::{DateTime, Duration, FixedOffset, Local, SecondsFormat};
use nix::time::{ClockId, clock_gettime};

/// Maps `CLOCK_MONOTONIC` nanoseconds, the time of every record, to local time. Both clocks are
/// read once, so that an event has the same time in every report even if the wall clock is stepped.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    wall: DateTime<FixedOffset>,
    monotonic_ns: i64,
}

impl WallClock {
    /// Reads both clocks now.
    pub fn now() -> Self {
        Self {
            wall: Local::now().fixed_offset(),
            monotonic_ns: read_ns(ClockId::CLOCK_MONOTONIC),
        }
    }

    /// Builds a clock from an earlier reading: `wall` is the local time at `monotonic_ns`.
    pub fn at(wall: DateTime<FixedOffset>, monotonic_ns: i64) -> Self {
        Self { wall, monotonic_ns }
    }

    /// `CLOCK_MONOTONIC` nanoseconds at which the clocks were read.
    pub fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.monotonic_ns).unwrap_or(0)
    }

    /// Nanoseconds from the reading of the clocks to this time of `CLOCK_MONOTONIC`; negative before it.
    pub fn since_start(&self, monotonic_ns: u64) -> i64 {
        let since = i128::from(monotonic_ns) - i128::from(self.monotonic_ns());
        i64::try_from(since).unwrap_or_default()
    }

    /// Converts `CLOCK_MONOTONIC` nanoseconds to local time.
    pub fn wall(&self, monotonic_ns: u64) -> DateTime<FixedOffset> {
        let monotonic_ns = i64::try_from(monotonic_ns).unwrap_or(i64::MAX);
        let distance = Duration::nanoseconds(monotonic_ns.saturating_sub(self.monotonic_ns));
        self.wall.checked_add_signed(distance).unwrap_or(self.wall)
    }
}

/// The current `CLOCK_MONOTONIC` time, nanoseconds.
pub fn monotonic_ns() -> u64 {
    u64::try_from(read_ns(ClockId::CLOCK_MONOTONIC)).unwrap_or(0)
}

/// The current `CLOCK_BOOTTIME` time, nanoseconds; process start times are on this clock.
pub fn boot_ns() -> u64 {
    u64::try_from(read_ns(ClockId::CLOCK_BOOTTIME)).unwrap_or(0)
}

fn read_ns(clock: ClockId) -> i64 {
    clock_gettime(clock).map_or(0, |t| t.tv_sec() * 1_000_000_000 + t.tv_nsec())
}

/// Formats local time with its offset, to the second: the time of a report.
pub fn rfc3339_seconds(time: &DateTime<FixedOffset>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, false)
}

/// Formats local time with its offset, to the microsecond: the time of an event.
pub fn rfc3339_micros(time: &DateTime<FixedOffset>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_as_far_from_the_reading_on_both_clocks() {
        let wall = DateTime::parse_from_rfc3339("2026-01-02T03:04:05.250+02:00").unwrap();
        let clock = WallClock::at(wall, 5_000_000_000);
        assert_eq!(clock.monotonic_ns(), 5_000_000_000);
        assert_eq!(WallClock::at(wall, -1).monotonic_ns(), 0);
        for (monotonic_ns, expected) in [
            (5_000_000_000, "2026-01-02T03:04:05.250000+02:00"),
            (6_500_001_000, "2026-01-02T03:04:06.750001+02:00"),
            (4_000_000_000, "2026-01-02T03:04:04.250000+02:00"),
        ] {
            assert_eq!(rfc3339_micros(&clock.wall(monotonic_ns)), expected);
        }
        assert_eq!(rfc3339_seconds(&wall), "2026-01-02T03:04:05+02:00");
        assert!(clock.wall(u64::MAX) > wall);
    }

    #[test]
    fn clocks_are_read_in_nanoseconds() {
        let second = 1_000_000_000;
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: u64 = uptime.split('.').next().unwrap().parse().unwrap();
        let boot = boot_ns();
        assert!((uptime * second..(uptime + 60) * second).contains(&boot));
        let mut before = monotonic_ns();
        assert!(before > second && before < boot_ns());
        for _ in 0..50 {
            let now = monotonic_ns();
            assert!((before..before + 60 * second).contains(&now));
            before = now;
        }
        let clock = WallClock::now();
        assert!(clock.monotonic_ns() >= before);
        let distance = Local::now().fixed_offset() - clock.wall(monotonic_ns());
        assert!(distance.num_seconds().abs() < 60);
    }
}
