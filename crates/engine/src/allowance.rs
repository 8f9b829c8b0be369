//! A rate limit on the work that the calls of one process cause in gpuprobe.

/// A token bucket. A program can make a million calls a second, each of which affects a million
/// objects. Work beyond the limit is dropped and counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance {
    spent: u64,
    since_ns: u64,
}

impl Allowance {
    /// Whether `amount` may be spent at `now_ns`. The bucket holds `at_once` at most and refills at
    /// `a_second` per second.
    pub(super) fn take(&mut self, amount: u64, now_ns: u64, at_once: u64, a_second: u64) -> bool {
        if self.spent == 0 {
            self.since_ns = now_ns;
        }
        if self.spent.saturating_add(amount) > at_once {
            let passed_ns = now_ns.saturating_sub(self.since_ns);
            let back = u128::from(passed_ns) * u128::from(a_second) / 1_000_000_000;
            let back = u64::try_from(back).unwrap_or(u64::MAX);
            self.spent = self.spent.saturating_sub(back);
            self.since_ns = self.since_ns.max(now_ns);
        }
        let may = self.spent.saturating_add(amount) <= at_once;
        if may {
            self.spent += amount;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_a_burst_and_a_rate() {
        let mut allowance = Allowance::default();
        let start = 1_000_000_000_000;
        let mut taken = |at_ns| {
            (0..1000)
                .filter(|_| allowance.take(10, at_ns, 1000, 500))
                .count()
        };
        assert_eq!(taken(start), 100);
        assert_eq!(taken(start), 0);
        assert_eq!(taken(start + 1_000_000_000), 50);
        assert_eq!(taken(start - 7), 0);
        assert_eq!(taken(start + 2_000_000_000), 50);
        assert_eq!(taken(start + 100_000_000_000), 100);
        assert!(!allowance.take(1001, u64::MAX, 1000, 500));
    }
}
