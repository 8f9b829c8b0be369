//! The most bytes that several call sites held together.

/// What is known of the highest point of call sites that are one: each has its own, and these need not
/// have been at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// It was no less: that of one of them, or what is live now.
    pub least: u64,
    /// It was no more: the sum of theirs.
    pub most: u64,
    live: u64,
}

impl Peak {
    /// Of one site, which is known exactly.
    pub(super) fn of(bytes: u64, live: u64) -> Self {
        Self {
            least: bytes,
            most: bytes,
            live,
        }
    }

    /// Of this and another.
    pub(super) fn merge(&mut self, other: Self) {
        self.live = self.live.saturating_add(other.live);
        self.least = self.least.max(other.least).max(self.live);
        self.most = self.most.saturating_add(other.most).max(self.least);
    }

    /// If it is known: where there is one site, or all of them are at their highest point now.
    pub fn exact(&self) -> Option<u64> {
        (self.least == self.most).then_some(self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_told_only_where_it_is_known() {
        let mut peak = Peak::of(10, 4);
        assert_eq!(peak.exact(), Some(10));
        // Both were freed in between: it was 10 to 18, depending on when.
        peak.merge(Peak::of(8, 2));
        assert_eq!((peak.least, peak.most, peak.exact()), (10, 18, None));
        // Nothing was ever freed.
        let mut grown = Peak::of(10, 10);
        grown.merge(Peak::of(8, 8));
        assert_eq!(grown.exact(), Some(18));
        // A program can give any sizes.
        grown.merge(Peak::of(u64::MAX, 0));
        grown.merge(Peak::of(u64::MAX, u64::MAX));
        assert_eq!(grown.exact(), Some(u64::MAX));
    }
}
