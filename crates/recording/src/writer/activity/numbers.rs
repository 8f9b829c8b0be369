//! Mapping of CUPTI's correlation ids, which are per process, to the recording's.

use std::collections::{HashMap, VecDeque};

/// Number of ids per page.
const PAGE: usize = 1 << 10;
/// Maximum number of pages per process: a record follows its call within four million calls.
const PAGES: usize = 1 << 12;

/// Correlation ids of one process.
#[derive(Debug, Default)]
pub(super) struct CorrelationIds {
    pages: HashMap<u32, Box<[u32; PAGE]>>,
    /// Pages, oldest first.
    order: VecDeque<u32>,
}

fn place(id: u32) -> (u32, usize) {
    // The remainder is below PAGE.
    (id / PAGE as u32, id as usize % PAGE)
}

impl CorrelationIds {
    /// The recording's number for CUPTI's `id`.
    pub(super) fn get(&self, id: u32) -> Option<i64> {
        let (page, index) = place(id);
        let number = *self.pages.get(&page)?.get(index)?;
        (number != 0).then_some(i64::from(number))
    }

    /// Sets the number for CUPTI's `id`. Numbers beyond 32 bits are not stored.
    pub(super) fn set(&mut self, id: u32, number: i64) {
        let (page, index) = place(id);
        if !self.pages.contains_key(&page) {
            if self.order.len() >= PAGES
                && let Some(oldest) = self.order.pop_front()
            {
                self.pages.remove(&oldest);
            }
            self.order.push_back(page);
        }
        let page = self
            .pages
            .entry(page)
            .or_insert_with(|| Box::new([0; PAGE]));
        page[index] = u32::try_from(number).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_old_ones_are_dropped() {
        let mut numbers = CorrelationIds::default();
        assert_eq!(numbers.get(7), None);
        numbers.set(7, 70);
        numbers.set(u32::MAX, 71);
        numbers.set(7, 72);
        assert_eq!((numbers.get(7), numbers.get(8)), (Some(72), None));
        assert_eq!(numbers.get(u32::MAX), Some(71));
        for page in 1..=PAGES as u32 {
            numbers.set(page * PAGE as u32, 1);
        }
        assert_eq!(numbers.get(7), None);
        assert_eq!(numbers.pages.len(), PAGES);
    }
}
