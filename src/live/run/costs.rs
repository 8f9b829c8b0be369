//! What gpuprobe costs the programs that it traces.

use super::reading::Reading;
use crate::live::TensorMode;
use crate::probe::{self, Hits, ProcessHits, measure_trap};
use gpuprobe_model::abi::PROCESS_PID_SHIFT;
use gpuprobe_model::{TracingCost, clock};

/// Nanoseconds over which costs are measured, at least; where they may turn tensors off, almost the interval of a server.
const LEAST_NS: u64 = 500_000_000;
const LEAST_FOR_TENSORS_NS: u64 = 9_900_000_000;
/// From this share of a thread's time on, tensors cost too much.
const MOST_FOR_TENSORS: f64 = 0.03;

/// The costs of a time, and what the next time needs.
#[derive(Default)]
pub(super) struct Costs {
    trap_ns: Option<f64>,
    begun_ns: u64,
    begun: Hits,
    newest: Vec<TracingCost>,
}

impl Costs {
    /// What gpuprobe costs each process: since the last time, or in the last report, since it was first seen.
    pub(super) fn read(&mut self, reading: &mut Reading<'_>, is_final: bool) -> &[TracingCost] {
        let config = reading.config;
        let limits_tensors = config.serve.is_some() && config.tensors != TensorMode::Off;
        let least_ns = [LEAST_NS, LEAST_FOR_TENSORS_NS][usize::from(limits_tensors)];
        let now_ns = clock::monotonic_ns();
        if now_ns - self.begun_ns < least_ns && !is_final {
            return &self.newest;
        }
        if is_final {
            (self.begun_ns, self.begun) = (0, Hits::new());
        }
        let trap_ns = *self.trap_ns.get_or_insert_with(measure_trap);
        let (hits, ledger) = (hits(reading), &mut reading.sink.state.ledger);
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
            let (cost, of_tensors) = cost(now, before, time_ns, trap_ns);
            let mut cost = TracingCost {
                pid,
                comm: process.comm.clone(),
                tensors_not_recorded: process.tensors_cost,
                ..cost
            };
            let is_too_much = of_tensors >= MOST_FOR_TENSORS && cost.tensors_not_recorded.is_none();
            let turns_off = limits_tensors && is_too_much && now.is_live && time_ns >= least_ns;
            if turns_off && reading.tracer.probe.stop_tensors(pid).is_ok() {
                ledger.stop_tensors(pid, of_tensors);
                cost.tensors_not_recorded = Some(of_tensors);
            }
            self.newest.push(cost);
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

/// The cost of the hits since `before`, and the share of its time that tensors took of the thread with most of them.
fn cost(
    now: &ProcessHits,
    before: Option<&ProcessHits>,
    time_ns: u64,
    trap_ns: f64,
) -> (TracingCost, f64) {
    let time_ns = time_ns.max(1) as f64;
    let hit_ns = trap_ns + now.timed_ns as f64 / now.timed.max(1) as f64;
    let count = now
        .count
        .saturating_sub(before.map_or(0, |before| before.count)) as f64;
    let tensors = now.tensors.iter().map(|(tid, count)| {
        let before = before.and_then(|before| before.tensors.get(tid));
        count.saturating_sub(before.copied().unwrap_or(0))
    });
    let cost = TracingCost {
        share_of_thread: count * hit_ns / time_ns,
        hits_per_second: count * 1e9 / time_ns,
        ..TracingCost::default()
    };
    (cost, tensors.max().unwrap_or(0) as f64 * hit_ns / time_ns)
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
        let (spent, of_tensors) = cost(&now, Some(&before), 2 * second, 700.0);
        assert_eq!(spent.hits_per_second, 2_015.0 / 2.0);
        assert!((spent.share_of_thread - 2_015.0 * 1e-6 / 2.0).abs() < 1e-9);
        assert!((of_tensors - 1_000.0 * 1e-6 / 2.0).abs() < 1e-9);
    }

    #[test]
    fn hits_need_not_be_timed_nor_there() {
        // Of launches, only the number is known.
        let (launches, of_tensors) = cost(&hits(1_000, 0, &[]), None, 1_000_000, 500.0);
        assert!((launches.share_of_thread - 0.5).abs() < 1e-9);
        assert_eq!(of_tensors, 0.0);
        // A process whose count was lost.
        let (none, _) = cost(&hits(0, 0, &[]), Some(&hits(5, 1, &[(1, 3)])), 0, 700.0);
        assert_eq!(none, TracingCost::default());
    }
}
