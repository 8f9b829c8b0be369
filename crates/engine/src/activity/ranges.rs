//! NVTX ranges of a process, by domain and name.

use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap};
use indexmap::IndexMap;

use super::tally::Tally;

/// Names counted separately; ranges with further names are counted together. Some programs number
/// their ranges.
const MAX_NAMES: usize = 16_384;
/// Ranges open at the same time.
const MAX_OPEN: usize = 65_536;

/// Domain and name.
type RangeName = (Option<Arc<str>>, Arc<str>);

/// NVTX ranges of one domain and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvtxRange {
    /// Domain; `None` for the default domain.
    pub domain: Option<Arc<str>>,
    /// Name of the ranges.
    pub name: Arc<str>,
    /// Ended ranges. Nested ranges of the same name are counted separately.
    pub times: Tally,
}

/// A range that has begun and not ended.
#[derive(Clone, Copy, Debug)]
struct OpenRange {
    start_ns: u64,
    /// Index into the ranges by name; `None` beyond the limit on names.
    range: Option<usize>,
}

/// The NVTX ranges of a process.
#[derive(Clone, Debug, Default)]
pub struct NvtxRanges {
    ranges: IndexMap<RangeName, NvtxRange, DefaultHashBuilder>,
    /// Open ranges by CUPTI's marker id.
    open: HashMap<u32, OpenRange>,
    /// Ranges with names beyond the limit.
    pub others: Tally,
    /// Number of ranges dropped because too many were open.
    pub dropped: u64,
}

impl NvtxRanges {
    /// The ranges by name that are counted separately.
    pub fn iter(&self) -> impl Iterator<Item = &NvtxRange> {
        self.ranges.values()
    }

    /// Number of ranges that have not ended.
    pub fn open(&self) -> u64 {
        self.open.len() as u64
    }

    pub(super) fn begin(
        &mut self,
        id: u32,
        domain: Option<&Arc<str>>,
        name: Option<&Arc<str>>,
        start_ns: u64,
    ) {
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&id) {
            self.dropped += 1;
            return;
        }
        let name = name.cloned().unwrap_or_else(|| "?".into());
        let range = self.index_of((domain.cloned(), name));
        self.open.insert(id, OpenRange { start_ns, range });
    }

    /// Ends a range; ignored if its begin was not seen.
    pub(super) fn end(&mut self, id: u32, end_ns: u64) {
        let Some(OpenRange { start_ns, range }) = self.open.remove(&id) else {
            return;
        };
        let times = match range {
            Some(index) => &mut self.ranges[index].times,
            None => &mut self.others,
        };
        times.add(start_ns, end_ns);
    }

    fn index_of(&mut self, key: RangeName) -> Option<usize> {
        if let Some(index) = self.ranges.get_index_of(&key) {
            return Some(index);
        }
        if self.ranges.len() >= MAX_NAMES {
            return None;
        }
        let range = NvtxRange {
            domain: key.0.clone(),
            name: Arc::clone(&key.1),
            times: Tally::default(),
        };
        Some(self.ranges.insert_full(key, range).0)
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_ranges_of_a_name_count_each() {
        let mut ranges = NvtxRanges::default();
        let (step, domain) = (Arc::from("step"), Arc::from("app"));
        ranges.begin(1, None, Some(&step), 100);
        ranges.begin(2, None, Some(&step), 110);
        ranges.begin(3, Some(&domain), Some(&step), 120);
        ranges.begin(4, None, Some(&step), 130);
        ranges.end(2, 120);
        ranges.end(1, 200);
        ranges.end(3, 121);
        ranges.end(9, 999);
        let found: Vec<_> = ranges
            .iter()
            .map(|range| {
                (
                    range.domain.as_deref(),
                    range.times.count,
                    range.times.total_ns,
                )
            })
            .collect();
        assert_eq!(found, [(None, 2, 110), (Some("app"), 1, 1)]);
        assert_eq!((ranges.open(), ranges.dropped), (1, 0));
    }

    #[test]
    fn names_and_open_ranges_are_bounded() {
        let mut ranges = NvtxRanges::default();
        let most = u32::try_from(MAX_NAMES).unwrap_or(0);
        for id in 0..most + 10 {
            ranges.begin(id, None, Some(&Arc::from(format!("step {id}"))), 1);
            ranges.end(id, 3);
        }
        assert_eq!(ranges.iter().count(), MAX_NAMES);
        assert_eq!((ranges.others.count, ranges.others.total_ns), (10, 20));
        let most = u32::try_from(MAX_OPEN).unwrap_or(0);
        for id in 0..most + 7 {
            ranges.begin(id, None, None, 1);
        }
        assert_eq!((ranges.open(), ranges.dropped), (MAX_OPEN as u64, 7));
    }

    #[test]
    fn a_range_that_is_open_may_begin_again() {
        let mut ranges = NvtxRanges::default();
        for id in 6..MAX_OPEN as u32 + 6 {
            ranges.begin(id, None, None, 1);
        }
        assert_eq!((ranges.open(), ranges.dropped), (MAX_OPEN as u64, 0));
        ranges.begin(6, None, None, 1);
        assert_eq!(ranges.dropped, 0);
        ranges.begin(5, None, None, 1);
        assert_eq!(ranges.dropped, 1);
    }
}
