//! Recent calls of probes by thread, for those that CUPTI reports, too: a probe delivers a call at
//! its return, CUPTI up to seconds later.

use std::collections::{BTreeMap, HashMap};

use gpuprobe_cuda::nsys::class;

/// A call that a probe saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::writer) struct ProbedCall {
    /// Time of function return, `CLOCK_MONOTONIC` nanoseconds.
    pub(in crate::writer) end_ns: u64,
    /// `correlationId` of the call.
    pub(in crate::writer) number: i64,
    /// `nameId` of the function.
    pub(in crate::writer) function: i64,
    /// `eventClass` of the function.
    pub(in crate::writer) class: i64,
    /// `callchainId` of its call stack.
    pub(in crate::writer) chain: Option<i64>,
}

/// Maximum number of calls that are kept.
const MAX_CALLS: usize = 1 << 20;
/// Age after which CUPTI no longer delivers a call.
const MAX_AGE_NS: u64 = 10_000_000_000;

/// Recent calls of all threads, by process and thread id, and by function entry.
#[derive(Debug, Default)]
pub(in crate::writer) struct ProbedCalls {
    by_thread: HashMap<(u32, u32), BTreeMap<u64, ProbedCall>>,
    newest_ns: u64,
}

impl ProbedCalls {
    /// Adds a call that begins at `start_ns`.
    pub(in crate::writer) fn add(&mut self, thread: (u32, u32), start_ns: u64, call: ProbedCall) {
        self.newest_ns = self.newest_ns.max(call.end_ns);
        let calls = self.by_thread.entry(thread).or_default();
        calls.insert(start_ns, call);
        if calls.len() > MAX_CALLS / 2 {
            calls.pop_first();
        }
    }

    /// Sets the call stack of the call that begins at `start_ns`.
    pub(in crate::writer) fn set_chain(&mut self, thread: (u32, u32), start_ns: u64, chain: i64) {
        let calls = self.by_thread.get_mut(&thread);
        if let Some(call) = calls.and_then(|calls| calls.get_mut(&start_ns)) {
            call.chain = Some(chain);
        }
    }

    /// Drops calls that CUPTI will not report, and earlier if there are too many.
    pub(super) fn expire(&mut self) {
        let count: usize = self.by_thread.values().map(BTreeMap::len).sum();
        let age_ns = match count > MAX_CALLS {
            true => MAX_AGE_NS / 4,
            false => MAX_AGE_NS,
        };
        let before = self.newest_ns.saturating_sub(age_ns);
        for calls in self.by_thread.values_mut() {
            while calls
                .first_entry()
                .is_some_and(|call| call.get().end_ns < before)
            {
                calls.pop_first();
            }
        }
        self.by_thread.retain(|_, calls| !calls.is_empty());
    }

    /// Removes the calls of a thread that are the one of this class from `start` to `end`, or within it.
    ///
    /// Calls of a thread are disjoint or nested, so two that overlap by half of the shorter one are
    /// the same call or nested. A call of the driver is not one of the runtime around it.
    pub(super) fn take(
        &mut self,
        thread: (u32, u32),
        (start, end): (u64, u64),
        class: i64,
    ) -> Vec<ProbedCall> {
        let Some(calls) = self.by_thread.get_mut(&thread) else {
            return Vec::new();
        };
        // Those of probes are disjoint: of the earlier ones, only the last can overlap this one.
        let first = calls.range(..start).next_back();
        let first = first.map_or(start, |(first, _)| *first);
        let is_same = |entry: &u64, call: &mut ProbedCall| {
            (class == class::RUNTIME || call.class == class)
                && overlap((start, end), (*entry, call.end_ns))
        };
        calls
            .extract_if(first..=end, is_same)
            .map(|(_, call)| call)
            .collect()
    }

    /// The thread of `pid` in which a probe saw this call, if there is exactly one.
    pub(super) fn thread_of(
        &self,
        pid: u32,
        function: i64,
        (start, end): (u64, u64),
    ) -> Option<u32> {
        let is_same = |(entry, call): (&u64, &ProbedCall)| {
            call.function == function && overlap((start, end), (*entry, call.end_ns))
        };
        let threads = self.by_thread.iter().filter(|((of, _), _)| *of == pid);
        let mut found = threads.filter(|(_, calls)| calls.range(..=end).rev().take(2).any(is_same));
        let ((_, tid), _) = found.next()?;
        found.next().is_none().then_some(*tid)
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

    const THREAD: (u32, u32) = (1, 2);

    /// Calls of these functions and times, whose numbers are their starts.
    fn probed(calls: &[(i64, u64, u64)]) -> ProbedCalls {
        let mut probed = ProbedCalls::default();
        for (function, start_ns, end_ns) in calls {
            let call = ProbedCall {
                end_ns: *end_ns,
                number: start_ns.cast_signed(),
                function: *function,
                class: class::RUNTIME,
                chain: None,
            };
            probed.add(THREAD, *start_ns, call);
        }
        probed
    }

    #[test]
    fn calls_are_the_same_or_in_each_other() {
        let calls = [
            (5, 100_000, 101_000),
            (6, 101_100, 101_200),
            (5, 101_300, 105_000),
        ];
        let same = |start, end| {
            let same = probed(&calls)
                .take(THREAD, (start, end), class::RUNTIME)
                .into_iter();
            same.map(|call| call.number).collect::<Vec<_>>()
        };
        assert_eq!(same(100_100, 100_900), [100_000]);
        assert_eq!(same(101_350, 104_900), [101_300]);
        assert_eq!(same(99_000, 110_000), [100_000, 101_100, 101_300]);
        assert!(same(105_001, 106_000).is_empty());
        // The clocks differ slightly.
        assert_eq!(same(101_140, 101_240), [101_100]);
        assert!(same(101_190, 101_290).is_empty());
        let mut probed = probed(&calls);
        assert!(
            probed
                .take((1, 3), (100_100, 100_900), class::RUNTIME)
                .is_empty()
        );
        let thread_of =
            |probed: &ProbedCalls, function, times| probed.thread_of(1, function, times);
        assert_eq!(thread_of(&probed, 5, (100_100, 100_900)), Some(2));
        assert_eq!(thread_of(&probed, 5, (102_000, 102_100)), Some(2));
        assert_eq!(thread_of(&probed, 6, (99_000, 99_100)), None);
        // Each is taken once.
        assert_eq!(
            probed
                .take(THREAD, (100_100, 100_900), class::RUNTIME)
                .len(),
            1
        );
        assert!(
            probed
                .take(THREAD, (100_100, 100_900), class::RUNTIME)
                .is_empty()
        );
    }

    #[test]
    fn old_calls_are_dropped() {
        let late = 300 + MAX_AGE_NS;
        let mut probed = probed(&[(5, 100, 200), (5, 300, 400), (5, late - 9, late)]);
        probed.set_chain(THREAD, 300, 7);
        probed.expire();
        assert!(probed.take(THREAD, (100, 200), class::RUNTIME).is_empty());
        let kept = probed.take(THREAD, (300, 400), class::RUNTIME);
        assert_eq!((kept.len(), kept[0].chain), (1, Some(7)));
        probed.newest_ns += 2 * MAX_AGE_NS;
        probed.expire();
        assert!(probed.by_thread.is_empty());
    }
}
