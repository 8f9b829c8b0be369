//! Counters: sums that never go back, whatever of a process has a series of its own.
//!
//! A series counts what its items were counted on by while it was theirs. An item that gets a series of its
//! own takes nothing out of the sum of the others, and one that loses it brings along what that counted; so
//! each sum over all series is exact.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{self, Write};

use super::labels::{SharedLabels, with};
use super::{Metric, MetricValue, text};

/// A thing that is counted, as reports have it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CountedItem {
    pub(super) metric: Metric,
    /// Number of the process in its part of the state.
    pub(super) process: u32,
    /// Handle of a kernel without a name.
    pub(super) handle: Option<u64>,
    pub(super) labels: SharedLabels,
}

/// Labels of a series: of its process, and further ones.
pub(super) type SeriesLabels = (SharedLabels, SharedLabels);

/// The newest total of an item, and the series that counts it.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) item: CountedItem,
    pub(super) labels: SeriesLabels,
    /// Whether the series counts other items, too.
    pub(super) is_shared: bool,
    pub(super) total: u64,
    pub(super) has_ended: bool,
}

/// An item as of the last report.
#[derive(Debug)]
struct KnownItem {
    total: u64,
    labels: SeriesLabels,
    is_shared: bool,
    /// Its process has ended, and a scrape has seen its last total.
    is_over: bool,
    has_ended: bool,
    round: u64,
}

type SeriesKey = (Metric, SeriesLabels);

/// A series: what it has counted, and its text up to the value, once that was made.
#[derive(Debug, Default)]
struct CounterSeries {
    value: u64,
    text: OnceCell<String>,
}

/// All counters with the labels of processes.
#[derive(Debug, Default)]
pub(super) struct ProcessCounters {
    items: HashMap<CountedItem, KnownItem>,
    values: HashMap<SeriesKey, CounterSeries>,
    /// Sums of several items, which stay.
    shared: HashSet<SeriesKey>,
    /// Series of items that are in no report any more, and still in the next scrape.
    leaving: HashSet<SeriesKey>,
    round: u64,
}

impl ProcessCounters {
    /// Takes in the totals of a report. Totals of one item in several rows, of processes with one id, are
    /// added up.
    pub(super) fn update(&mut self, counted: Vec<Counted>) {
        self.round += 1;
        let mut rows: HashMap<CountedItem, Counted> = HashMap::new();
        for one in counted {
            match rows.get_mut(&one.item) {
                Some(known) => {
                    known.total = known.total.saturating_add(one.total);
                    known.has_ended &= one.has_ended;
                }
                None => drop(rows.insert(one.item.clone(), one)),
            }
        }
        let used: HashSet<SeriesKey> = rows
            .values()
            .map(|one| (one.item.metric, one.labels.clone()))
            .collect();
        let mut counted_before = self.take_renamed(&rows, &used);
        for one in rows.into_values() {
            self.count(one, &used, &mut counted_before);
        }
        let round = self.round;
        // Reports list the end of a process once.
        let gone = self.items.extract_if(|_, item| item.round != round);
        let gone = gone.filter(|(_, known)| !known.is_over);
        let gone = gone.map(|(item, known)| (item.metric, known.labels));
        self.leaving.extend(gone);
    }

    /// Takes out items without a name that are in no row of a process that lives: they have got a name, and are
    /// other items. Returns what was counted on in series that stay, by process.
    fn take_renamed(
        &mut self,
        rows: &HashMap<CountedItem, Counted>,
        used: &HashSet<SeriesKey>,
    ) -> HashMap<u32, u64> {
        let unnamed = self.items.keys().filter(|item| item.handle.is_some());
        if unnamed.clone().all(|item| rows.contains_key(item)) {
            return HashMap::new();
        }
        let live = rows.values().filter(|one| !one.has_ended);
        let live: HashSet<u32> = live.map(|one| one.item.process).collect();
        let renamed = self.items.extract_if(|item, known| {
            let is_gone = item.handle.is_some() && !rows.contains_key(item);
            is_gone && !known.is_over && live.contains(&item.process)
        });
        let mut stays = HashMap::new();
        for (item, known) in renamed {
            let key = (item.metric, known.labels);
            if known.is_shared || used.contains(&key) {
                *stays.entry(item.process).or_default() += known.total;
            } else {
                self.values.remove(&key);
            }
        }
        stays
    }

    fn count(
        &mut self,
        one: Counted,
        used: &HashSet<SeriesKey>,
        counted_before: &mut HashMap<u32, u64>,
    ) {
        let metric = one.item.metric;
        let before = match one.item.handle {
            None => counted_before.get_mut(&one.item.process),
            Some(_) => None,
        };
        let known = self.items.entry(one.item).or_insert_with(|| KnownItem {
            total: before.map_or(0, |left| {
                let part = one.total.min(*left);
                *left -= part;
                part
            }),
            labels: one.labels.clone(),
            is_shared: one.is_shared,
            is_over: false,
            has_ended: false,
            round: 0,
        });
        let more = one.total.saturating_sub(known.total);
        if known.is_over && more == 0 {
            known.round = self.round;
            return;
        }
        let key = (metric, one.labels);
        let mut value = more;
        if known.labels != key.1 {
            let before = (metric, std::mem::replace(&mut known.labels, key.1.clone()));
            if !known.is_shared && !used.contains(&before) {
                let before = self.values.remove(&before);
                value = value.saturating_add(before.map_or(0, |series| series.value));
            }
        }
        known.is_shared = one.is_shared;
        known.is_over = false;
        known.has_ended = one.has_ended;
        known.total = one.total;
        known.round = self.round;
        if one.is_shared {
            self.shared.insert(key.clone());
        }
        let sum = &mut self.values.entry(key).or_default().value;
        *sum = sum.saturating_add(value);
    }

    /// Removes the series of processes that have ended.
    pub(super) fn mark_scraped(&mut self) {
        let items = self.items.iter();
        let live: HashSet<SeriesKey> = items
            .filter(|(_, known)| !known.has_ended)
            .map(|(item, known)| (item.metric, known.labels.clone()))
            .collect();
        let mut leaving = std::mem::take(&mut self.leaving);
        for (item, known) in self.items.iter_mut().filter(|(_, known)| known.has_ended) {
            known.is_over = true;
            leaving.insert((item.metric, known.labels.clone()));
        }
        leaving.retain(|key| !live.contains(key) && !self.shared.contains(key));
        self.values.retain(|key, _| !leaving.contains(key));
    }

    /// Whether an item has a series of its own.
    pub(super) fn has_own_series(&self, item: &CountedItem) -> bool {
        self.items.get(item).is_some_and(|known| !known.is_shared)
    }

    /// Whether the series of an item is gone, as its process has ended.
    pub(super) fn is_over(&self, item: &CountedItem) -> bool {
        self.items.get(item).is_some_and(|known| known.is_over)
    }

    /// All series with their values.
    #[cfg(test)]
    pub(super) fn series(&self) -> impl Iterator<Item = (Metric, super::Labels, u64)> {
        let values = self.values.iter();
        values.map(|((metric, (process, further)), series)| {
            (*metric, with(process.get(), further.get()), series.value)
        })
    }

    /// Adds the samples of each metric to `texts`.
    ///
    /// # Errors
    /// Returns the encoder's error; none is expected, as it writes to memory.
    pub(super) fn write(&self, texts: &mut BTreeMap<Metric, String>) -> fmt::Result {
        for ((metric, (process, further)), series) in &self.values {
            let begin = match series.text.get() {
                Some(text) => text,
                None => {
                    let labels = with(process.get(), further.get());
                    let one = BTreeMap::from([(labels, MetricValue::Integer(0))]);
                    let mut line = text::samples(*metric, one)?;
                    line.truncate(line.len() - "0\n".len());
                    series.text.get_or_init(|| line)
                }
            };
            let text = texts.entry(*metric).or_default();
            writeln!(text, "{begin}{}", series.value)?;
        }
        Ok(())
    }

    /// Number of series.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Number of items that are summed with others.
    pub(super) fn merged(&self) -> u64 {
        let items = self.items.values();
        items
            .filter(|known| known.is_shared && !known.is_over)
            .count() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::metrics::labels::LabelPool;

    fn counted(handle: Option<u64>, series: &str, total: u64) -> Counted {
        thread_local!(static POOL: RefCell<LabelPool> = RefCell::default());
        let shared = |labels| POOL.with_borrow_mut(|pool| pool.shared(labels));
        let process = shared(vec![]);
        let labels = shared(vec![("kernel", series.to_owned())]);
        Counted {
            item: CountedItem {
                metric: Metric::Launches,
                process: 1,
                handle,
                labels: labels.clone(),
            },
            labels: (process, labels),
            is_shared: series == "other",
            total,
            has_ended: false,
        }
    }

    fn values(counters: &ProcessCounters) -> Vec<(String, u64)> {
        let series = counters.series();
        let mut values: Vec<_> = series
            .map(|(_, labels, value)| (labels[0].1.clone(), value))
            .collect();
        values.sort();
        values
    }

    fn expected(values: &[(&str, u64)]) -> Vec<(String, u64)> {
        let values = values.iter();
        values
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect()
    }

    #[test]
    fn a_kernel_that_gets_its_name_late_is_counted_once() {
        let mut counters = ProcessCounters::default();
        counters.update(vec![counted(Some(7), "unknown", 100)]);
        counters.update(vec![counted(None, "add", 120)]);
        assert_eq!(values(&counters), expected(&[("add", 120)]));
        // The series of others without a name stays, and so does what it has counted.
        let mut counters = ProcessCounters::default();
        counters.update(vec![
            counted(Some(7), "unknown", 100),
            counted(Some(8), "unknown", 5),
        ]);
        counters.update(vec![
            counted(None, "add", 120),
            counted(Some(8), "unknown", 6),
        ]);
        assert_eq!(
            values(&counters),
            expected(&[("add", 20), ("unknown", 106)])
        );
        counters.update(vec![
            counted(None, "add", 121),
            counted(Some(8), "unknown", 6),
        ]);
        assert_eq!(
            values(&counters),
            expected(&[("add", 21), ("unknown", 106)])
        );
        let mut counters = ProcessCounters::default();
        counters.update(vec![
            counted(Some(7), "other", 100),
            counted(None, "sub", 1),
        ]);
        counters.update(vec![counted(None, "add", 120), counted(None, "sub", 1)]);
        let sum: u64 = values(&counters).iter().map(|(_, value)| value).sum();
        assert_eq!(sum, 121);
    }
}
