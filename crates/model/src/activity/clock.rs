//! Conversion of CUPTI timestamps to `CLOCK_MONOTONIC`.

use std::collections::VecDeque;

/// Maximum number of clock readings, and their minimum distance; times before the oldest reading
/// are extrapolated from the oldest two.
const MAX_READINGS: usize = 512;
const APART_NS: u64 = 100_000_000;

/// Upper bound of the relative drift of two clocks of one machine; readings that imply more were
/// disturbed and are rejected.
const MOST_DRIFT: f64 = 0.001;

/// Maps CUPTI timestamps of one process to `CLOCK_MONOTONIC`, by linear interpolation between the
/// moments at which both clocks were read, so that drift is followed.
#[derive(Clone, Debug, Default)]
pub(super) struct CuptiClock {
    /// Pairs of (CUPTI, `CLOCK_MONOTONIC`) nanoseconds, both ascending.
    readings: VecDeque<(u64, u64)>,
}

impl CuptiClock {
    /// Adds a reading of both clocks at one moment.
    pub(super) fn read(&mut self, cupti_ns: u64, monotonic_ns: u64) {
        if let Some(&(cupti, monotonic)) = self.readings.back() {
            let is_later = cupti_ns > cupti && monotonic_ns > monotonic;
            if !is_later || cupti_ns - cupti < APART_NS {
                return;
            }
        }
        self.readings.push_back((cupti_ns, monotonic_ns));
        if self.readings.len() > MAX_READINGS {
            self.readings.pop_front();
        }
    }

    /// Converts a CUPTI timestamp to `CLOCK_MONOTONIC` nanoseconds; 0 (no time) stays 0.
    pub(super) fn to_monotonic(&self, cupti_ns: u64) -> u64 {
        let Some(&(newest, _)) = self.readings.back() else {
            return cupti_ns;
        };
        if cupti_ns == 0 {
            return 0;
        }
        // Index of the first reading after the timestamp; most records fall into the last interval
        // but one.
        let after = if cupti_ns >= newest {
            self.readings.len()
        } else {
            self.readings
                .partition_point(|&(cupti, _)| cupti <= cupti_ns)
        };
        // Times before the first and after the last reading are extrapolated.
        let line = after.clamp(1, (self.readings.len() - 1).max(1));
        let from = self.readings[after.saturating_sub(1)];
        along(from, self.slope_to(line), cupti_ns)
    }

    /// Slope (nanoseconds per nanosecond) from the previous reading to the reading `index`.
    fn slope_to(&self, index: usize) -> f64 {
        let (Some(a), Some(b)) = (self.readings.get(index - 1), self.readings.get(index)) else {
            return 1.0;
        };
        let slope = (b.1 - a.1) as f64 / (b.0 - a.0) as f64;
        if (slope - 1.0).abs() < MOST_DRIFT {
            slope
        } else {
            1.0
        }
    }
}

fn along(from: (u64, u64), slope: f64, cupti_ns: u64) -> u64 {
    let distance = i128::from(cupti_ns) - i128::from(from.0);
    // Only the drift is rounded.
    let drift = (distance as f64 * (slope - 1.0)).round() as i128;
    let moment = i128::from(from.1) + distance + drift;
    u64::try_from(moment.max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn times_are_interpolated_and_extrapolated() {
        let mut clock = CuptiClock::default();
        assert_eq!(clock.to_monotonic(77), 77);
        clock.read(10 * SECOND, 50 * SECOND);
        // A single reading gives the offset only.
        assert_eq!(clock.to_monotonic(9 * SECOND), 49 * SECOND);
        // Drift of 100 us per second.
        clock.read(11 * SECOND, 51 * SECOND + 100_000);
        assert_eq!(
            clock.to_monotonic(10 * SECOND + SECOND / 2),
            50 * SECOND + SECOND / 2 + 50_000
        );
        assert_eq!(clock.to_monotonic(9 * SECOND), 49 * SECOND - 100_000);
        assert_eq!(clock.to_monotonic(12 * SECOND), 52 * SECOND + 200_000);
        // The drift changes: earlier times stay where they were.
        clock.read(12 * SECOND, 52 * SECOND);
        assert_eq!(clock.to_monotonic(11 * SECOND), 51 * SECOND + 100_000);
        assert_eq!(clock.to_monotonic(12 * SECOND), 52 * SECOND);
        assert_eq!(clock.to_monotonic(13 * SECOND), 53 * SECOND - 100_000);
        assert_eq!(clock.to_monotonic(0), 0);
    }

    #[test]
    fn disturbed_readings_are_rejected() {
        let mut clock = CuptiClock::default();
        clock.read(10 * SECOND, 50 * SECOND);
        clock.read(9 * SECOND, 51 * SECOND);
        clock.read(11 * SECOND, 49 * SECOND);
        clock.read(10 * SECOND + 5, 60 * SECOND);
        assert_eq!(clock.to_monotonic(12 * SECOND), 52 * SECOND);
        // The two halves of this reading are 0.1 s apart.
        clock.read(11 * SECOND, 51 * SECOND + SECOND / 10);
        assert_eq!(clock.to_monotonic(10 * SECOND + 7), 50 * SECOND + 7);
    }

    #[test]
    fn readings_are_a_tenth_of_a_second_apart_and_few() {
        let mut clock = CuptiClock::default();
        let begin = 10 * SECOND;
        clock.read(begin, begin);
        for (cupti, monotonic, count) in [
            (begin + APART_NS - 1, begin + APART_NS, 1),
            (begin + SECOND, begin, 1),
            (begin, begin + SECOND, 1),
            (begin + APART_NS, begin + 1, 2),
            (begin + 3 * APART_NS, begin + 3 * APART_NS, 3),
        ] {
            clock.read(cupti, monotonic);
            assert_eq!(clock.readings.len(), count, "{cupti} {monotonic}");
        }
        for n in 4..=MAX_READINGS as u64 {
            clock.read(begin + n * APART_NS, begin + n * APART_NS);
        }
        assert_eq!(clock.readings.len(), MAX_READINGS);
        assert_eq!(clock.readings[0], (begin, begin));
        clock.read(begin + 600 * APART_NS, begin + 600 * APART_NS);
        assert_eq!(clock.readings.len(), MAX_READINGS);
        assert_eq!(clock.readings[0], (begin + APART_NS, begin + 1));
        // Nothing is before the beginning of time.
        assert_eq!(clock.to_monotonic(1), 1);
    }

    proptest::proptest! {
        #[test]
        fn never_panics_and_keeps_order(
            readings in proptest::collection::vec((0u64.., 0u64..), 0..8),
            times in proptest::collection::vec(1u64.., 2),
        ) {
            let mut clock = CuptiClock::default();
            readings.iter().for_each(|&(cupti, monotonic)| clock.read(cupti, monotonic));
            let _ = (clock.to_monotonic(times[0]), clock.to_monotonic(times[1]));
        }
    }
}
