//! Recent calls by thread, for matching of probes and CUPTI: a probe delivers a call at its return,
//! CUPTI up to seconds later, and both belong to one row.

use std::collections::{BTreeMap, HashMap};

/// A call that has a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::writer) struct Seen {
    /// Time of function entry, `CLOCK_MONOTONIC` nanoseconds.
    pub(in crate::writer) start_ns: u64,
    /// Time of function return, `CLOCK_MONOTONIC` nanoseconds.
    pub(in crate::writer) end_ns: u64,
    /// Row id of the call.
    pub(in crate::writer) row: i64,
    /// `correlationId` of the call.
    pub(in crate::writer) number: i64,
    /// `nameId` of the row.
    pub(in crate::writer) name: i64,
    /// `nameId` of the function without CUPTI's version suffix.
    pub(in crate::writer) function: i64,
    /// `eventClass` of the row.
    pub(in crate::writer) class: i64,
    /// `returnValue` of the row.
    pub(in crate::writer) result: i64,
    /// `callchainId`, in this row or its second one.
    pub(in crate::writer) chain: Option<i64>,
    /// It has a second row, of class 67.
    pub(in crate::writer) has_twin: bool,
    /// The call allocates memory.
    pub(in crate::writer) allocates: bool,
    /// Rows of other tables refer to the call.
    pub(in crate::writer) has_rows: bool,
    /// CUPTI has delivered the call.
    pub(in crate::writer) from_cupti: bool,
}

/// Relation of a call from CUPTI to the calls that have rows. Calls are identified by their start
/// times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallOverlap {
    /// It overlaps no other call.
    New,
    /// It is the same call as this one.
    Same(u64),
    /// It is nested in this call.
    Within(u64),
    /// It contains these calls.
    Around(Vec<u64>),
}

/// Maximum number of calls that are kept.
const MAX_CALLS: usize = 1 << 20;

/// Recent calls of all threads.
#[derive(Debug, Default)]
pub(super) struct Threads {
    by_thread: HashMap<(u32, u32), BTreeMap<u64, Seen>>,
    count: usize,
    newest_ns: u64,
}

impl Threads {
    /// Adds a call that has a row.
    pub(super) fn add(&mut self, pid: u32, tid: u32, call: Seen) {
        self.newest_ns = self.newest_ns.max(call.end_ns);
        let calls = self.by_thread.entry((pid, tid)).or_default();
        if calls.insert(call.start_ns, call).is_none() {
            self.count += 1;
        }
        if calls.len() > MAX_CALLS / 2 {
            self.count -= usize::from(calls.pop_first().is_some());
        }
    }

    /// The call of a thread with this start time.
    pub(super) fn get(&mut self, pid: u32, tid: u32, start_ns: u64) -> Option<&mut Seen> {
        self.by_thread.get_mut(&(pid, tid))?.get_mut(&start_ns)
    }

    /// Removes a call.
    pub(super) fn remove(&mut self, pid: u32, tid: u32, start_ns: u64) -> Option<Seen> {
        let call = self.by_thread.get_mut(&(pid, tid))?.remove(&start_ns);
        self.count -= usize::from(call.is_some());
        call
    }

    /// Drops calls that ended more than `age_ns` before the newest one, or earlier if there are too
    /// many.
    pub(super) fn expire(&mut self, age_ns: u64) {
        let age_ns = if self.count > MAX_CALLS {
            age_ns / 4
        } else {
            age_ns
        };
        let before = self.newest_ns.saturating_sub(age_ns);
        for calls in self.by_thread.values_mut() {
            while let Some(first) = calls.first_entry() {
                if first.get().end_ns >= before {
                    break;
                }
                first.remove();
                self.count -= 1;
            }
        }
        self.by_thread.retain(|_, calls| !calls.is_empty());
    }

    /// Relation of a call of `function` from `start` to `end` to the other calls of its thread.
    ///
    /// Calls of a thread are disjoint or nested, so two that overlap by half of the shorter one are
    /// the same call or nested.
    pub(super) fn overlap(
        &self,
        (pid, tid): (u32, u32),
        function: i64,
        (start, end): (u64, u64),
    ) -> CallOverlap {
        let end = end.max(start);
        let Some(calls) = self.by_thread.get(&(pid, tid)) else {
            return CallOverlap::New;
        };
        let mut within = Vec::new();
        let mut around = None;
        // They are disjoint: of the earlier calls, only the last can overlap this one.
        let earlier = calls.range(..start).next_back();
        let later = calls.range(start..=end);
        for (_, other) in earlier.into_iter().chain(later) {
            if !overlap((start, end), (other.start_ns, other.end_ns)) {
                continue;
            }
            if other.function == function && !other.from_cupti {
                return CallOverlap::Same(other.start_ns);
            }
            if other.end_ns.saturating_sub(other.start_ns) >= end - start {
                around = Some(other.start_ns);
            } else {
                within.push(other.start_ns);
            }
        }
        match around {
            Some(around) => CallOverlap::Within(around),
            None if within.is_empty() => CallOverlap::New,
            None => CallOverlap::Around(within),
        }
    }

    /// The thread of `pid` in which a probe saw this call, if there is exactly one.
    pub(super) fn thread_of(
        &self,
        pid: u32,
        function: i64,
        (start, end): (u64, u64),
    ) -> Option<u32> {
        let mut found = None;
        for ((_, tid), calls) in self.by_thread.iter().filter(|((of, _), _)| *of == pid) {
            let mut before = calls.range(..=end).rev().take(2);
            let is_same = |call: &Seen| {
                let times = (call.start_ns, call.end_ns);
                call.function == function && !call.from_cupti && overlap((start, end), times)
            };
            if before.any(|(_, call)| is_same(call)) && found.replace(*tid).is_some() {
                return None;
            }
        }
        found
    }
}

/// Whether two time spans overlap by at least half of the shorter one.
fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    let both = a.1.min(b.1).saturating_sub(a.0.max(b.0));
    let shorter = a.1.saturating_sub(a.0).min(b.1.saturating_sub(b.0));
    let touches = a.0.max(b.0) <= a.1.min(b.1);
    touches && both * 2 >= shorter
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(function: i64, start_ns: u64, end_ns: u64) -> Seen {
        Seen {
            start_ns,
            end_ns,
            row: 1,
            number: 1,
            name: function,
            function,
            class: 0,
            result: 0,
            chain: None,
            has_twin: false,
            allocates: false,
            has_rows: false,
            from_cupti: false,
        }
    }

    fn threads(calls: &[Seen]) -> Threads {
        let mut threads = Threads::default();
        calls
            .iter()
            .for_each(|call| threads.add(1, 2, call.clone()));
        threads
    }

    #[test]
    fn calls_are_the_same_within_or_around() {
        let threads = threads(&[
            seen(5, 100_000, 101_000),
            seen(6, 101_100, 101_200),
            seen(5, 101_300, 105_000),
        ]);
        let overlap = |function, start, end| threads.overlap((1, 2), function, (start, end));
        assert_eq!(overlap(5, 100_100, 100_900), CallOverlap::Same(100_000));
        assert_eq!(overlap(5, 101_350, 104_900), CallOverlap::Same(101_300));
        assert_eq!(overlap(9, 100_100, 100_900), CallOverlap::Within(100_000));
        let all = CallOverlap::Around(vec![100_000, 101_100, 101_300]);
        assert_eq!(overlap(9, 99_000, 110_000), all);
        assert_eq!(overlap(9, 105_001, 106_000), CallOverlap::New);
        // The clocks differ slightly.
        assert_eq!(overlap(6, 101_140, 101_240), CallOverlap::Same(101_100));
        assert_eq!(overlap(6, 101_190, 101_290), CallOverlap::New);
        let other = threads.overlap((1, 3), 5, (100_100, 100_900));
        assert_eq!(other, CallOverlap::New);
        assert_eq!(threads.thread_of(1, 5, (100_100, 100_900)), Some(2));
        assert_eq!(threads.thread_of(1, 5, (102_000, 102_100)), Some(2));
        assert_eq!(threads.thread_of(1, 6, (99_000, 99_100)), None);
    }

    #[test]
    fn a_call_from_cupti_matches_once() {
        let mut threads = threads(&[seen(5, 100, 200), seen(5, 300, 400)]);
        if let Some(first) = threads.get(1, 2, 100) {
            first.from_cupti = true;
        }
        let overlap = |start, end| threads.overlap((1, 2), 5, (start, end));
        assert_eq!(overlap(110, 190), CallOverlap::Within(100));
        assert_eq!(overlap(310, 390), CallOverlap::Same(300));
    }

    #[test]
    fn old_calls_are_dropped() {
        let mut threads = threads(&[seen(5, 100, 200), seen(5, 300, 400)]);
        threads.expire(100);
        assert_eq!(threads.count, 1);
        assert!(threads.get(1, 2, 100).is_none() && threads.get(1, 2, 300).is_some());
        assert!(threads.remove(1, 2, 300).is_some());
        threads.expire(0);
        assert_eq!((threads.count, threads.by_thread.len()), (0, 0));
    }
}
