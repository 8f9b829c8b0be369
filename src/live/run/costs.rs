//! What gpuprobe costs the programs that it traces.

use std::sync::OnceLock;

use super::reading::Reading;
use crate::probe::{self, Hits, ProcessHits, measure_trap};
use gpuprobe_model::abi::PROCESS_PID_SHIFT;
use gpuprobe_model::{TracingCost, clock};

/// Nanoseconds over which costs are measured, at least.
const LEAST_NS: u64 = 500_000_000;

/// The costs of a time, and what the next time needs.
#[derive(Default)]
pub(super) struct Costs {
    begun_ns: u64,
    begun: Hits,
    newest: Vec<TracingCost>,
}

impl Costs {
    /// What gpuprobe costs each process: since the last time, or in the last report, since it was first seen.
    pub(super) fn read(&mut self, reading: &mut Reading<'_>, is_final: bool) -> &[TracingCost] {
        let now_ns = clock::monotonic_ns();
        if now_ns - self.begun_ns < LEAST_NS && !is_final {
            return &self.newest;
        }
        if is_final {
            (self.begun_ns, self.begun) = (0, Hits::new());
        }
        let trap_ns = trap_ns();
        let (hits, ledger) = (hits(reading), &reading.sink.state.ledger);
        self.newest.clear();
        for (id, now) in &hits {
            let (pid, before) = (id >> PROCESS_PID_SHIFT, self.begun.get(id));
            let process = match now.is_live {
                true => ledger.process_of(pid),
                // It ended long ago.
                false if before.is_some_and(|before| before.count == now.count) => None,
                false => ledger.ended(is_final).find(|process| process.pid == pid),
            };
            let Some(process) = process else {
                continue;
            };
            let begun_ns = process.first_seen_ns.unwrap_or(0).max(self.begun_ns);
            let time_ns = process.ended_ns.unwrap_or(now_ns).saturating_sub(begun_ns);
            self.newest.push(TracingCost {
                pid,
                comm: process.comm.clone(),
                ..cost(now, before, time_ns, trap_ns)
            });
        }
        self.newest.sort_by_key(|cost| cost.pid);
        (self.begun_ns, self.begun) = (now_ns, hits);
        &self.newest
    }
}

/// All hits so far.
fn hits(reading: &Reading<'_>) -> Hits {
    let mut hits = probe::hits(&reading.tracer.probe);
    // Single launches are hits of threads.
    let is_counted = !reading.config.records_launches();
    let launches = reading.sink.state.launches.counted();
    for one in launches.filter(|_| is_counted) {
        let process = hits.entry(one.key.process).or_default();
        process.count += one.counted.runs + one.counted.captured;
    }
    hits
}

/// The cost of the hits since `before`.
fn cost(
    now: &ProcessHits,
    before: Option<&ProcessHits>,
    time_ns: u64,
    trap_ns: f64,
) -> TracingCost {
    let time_ns = time_ns.max(1) as f64;
    let count = now
        .count
        .saturating_sub(before.map_or(0, |before| before.count)) as f64;
    TracingCost {
        share_of_thread: count * hit_ns(now, trap_ns) / time_ns,
        hits_per_second: count * 1e9 / time_ns,
        ..TracingCost::default()
    }
}

/// What a hit takes besides its program, measured once.
pub(super) fn trap_ns() -> f64 {
    static TRAP_NS: OnceLock<f64> = OnceLock::new();
    *TRAP_NS.get_or_init(measure_trap)
}

/// The time that hits of the hooks for tensors took since `before`, of the thread with most of them.
pub(super) fn most_spent_ns(now: &Hits, before: &Hits, trap_ns: f64) -> f64 {
    let threads = now.iter().flat_map(|(id, now)| {
        let before = before.get(id);
        now.tensors.iter().map(move |(tid, count)| {
            let before = before.and_then(|before| before.tensors.get(tid));
            let count = count.saturating_sub(before.copied().unwrap_or(0));
            count as f64 * hit_ns(now, trap_ns)
        })
    });
    threads.fold(0.0, f64::max)
}

/// The time of a hit, nanoseconds.
fn hit_ns(hits: &ProcessHits, trap_ns: f64) -> f64 {
    trap_ns + hits.timed_ns as f64 / hits.timed.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(count: u64, timed: u64, tensors: &[(u32, u64)]) -> ProcessHits {
        ProcessHits {
            is_live: true,
            count,
            timed,
            timed_ns: timed * 300,
            tensors: tensors.iter().copied().collect(),
        }
    }

    #[test]
    fn a_cost_is_of_the_hits_since_the_last_time() {
        let before = hits(100, 1, &[(7, 90)]);
        let now = hits(2_115, 34, &[(7, 1_090), (8, 500)]);
        let second = 1_000_000_000;
        // 300 ns and the trap are a microsecond.
        let spent = cost(&now, Some(&before), 2 * second, 700.0);
        assert_eq!(spent.hits_per_second, 2_015.0 / 2.0);
        assert!((spent.share_of_thread - 2_015.0 * 1e-6 / 2.0).abs() < 1e-9);
        let [now, before] = [now, before].map(|hits| Hits::from([(1, hits)]));
        assert!((most_spent_ns(&now, &before, 700.0) - 1e6).abs() < 1e-3);
        assert!((most_spent_ns(&now, &Hits::new(), 700.0) - 1.09e6).abs() < 1e-3);
    }

    #[test]
    fn hits_need_not_be_timed_nor_there() {
        // Of launches, only the number is known.
        let launches = cost(&hits(1_000, 0, &[]), None, 1_000_000, 500.0);
        assert!((launches.share_of_thread - 0.5).abs() < 1e-9);
        // A process whose count was lost.
        let none = cost(&hits(0, 0, &[]), Some(&hits(5, 1, &[(1, 3)])), 0, 700.0);
        assert_eq!(none, TracingCost::default());
    }
}
