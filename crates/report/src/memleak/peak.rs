//! Peak of several call sites together.

/// Bounds on the peak of a group of call sites: the peak of each site is known, but they need not
/// have been at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Lower bound: the largest peak of one site, or the current live bytes.
    pub least: u64,
    /// Upper bound: the sum of the peaks.
    pub most: u64,
    live: u64,
}

impl Peak {
    /// The peak of one site, which is exact.
    pub(super) fn of(bytes: u64, live: u64) -> Self {
        Self {
            least: bytes,
            most: bytes,
            live,
        }
    }

    /// The bounds for this group and another one together.
    pub(super) fn merge(&mut self, other: Self) {
        self.live = self.live.saturating_add(other.live);
        self.least = self.least.max(other.least).max(self.live);
        self.most = self.most.saturating_add(other.most).max(self.least);
    }

    /// The peak, if it is exact: for one site, or if all sites are at their peak now.
    pub fn exact(&self) -> Option<u64> {
        (self.least == self.most).then_some(self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_exact_only_where_it_is_known() {
        let mut peak = Peak::of(10, 4);
        assert_eq!(peak.exact(), Some(10));
        // Both were freed in between: the peak was between 10 and 18.
        peak.merge(Peak::of(8, 2));
        assert_eq!((peak.least, peak.most, peak.exact()), (10, 18, None));
        // Nothing was ever freed.
        let mut grown = Peak::of(10, 10);
        grown.merge(Peak::of(8, 8));
        assert_eq!(grown.exact(), Some(18));
        // A program can request any size.
        grown.merge(Peak::of(u64::MAX, 0));
        grown.merge(Peak::of(u64::MAX, u64::MAX));
        assert_eq!(grown.exact(), Some(u64::MAX));
    }
}
