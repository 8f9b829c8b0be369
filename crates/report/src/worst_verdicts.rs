//! The worst verdict on each process.
//!
//! Judging all call sites of all processes takes longer than adding up what they hold, and verdicts change slowly: each
//! process is judged every few seconds only.

use std::collections::HashMap;
use std::sync::Arc;

use gpuprobe_engine::verdict::Verdict;
use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::stack::Symbolize;

use crate::Options;
use crate::memleak::{Holder, SiteGroups, largest};

/// Interval at which a process is judged, nanoseconds.
const EVERY_NS: u64 = 5 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;
/// Judged call sites of a process, and of each of its allocators.
const SITES: usize = 20;

/// The worst verdicts on the largest call sites of processes.
#[derive(Debug, Default)]
pub struct WorstVerdicts {
    judged: HashMap<u32, JudgedProcess>,
    words: Arc<HashMap<u32, &'static str>>,
}

#[derive(Debug)]
struct JudgedProcess {
    /// Distinguishes processes with the same PID.
    first_seen_ns: Option<u64>,
    /// When it was judged.
    at_ns: u64,
    /// When it is judged next.
    due_ns: u64,
}

impl WorstVerdicts {
    /// The verdicts, as words, by process id. Those that are due are judged first.
    pub fn update(
        &mut self,
        ledger: &Ledger,
        options: &Options,
        symbols: &dyn Symbolize,
    ) -> Arc<HashMap<u32, &'static str>> {
        let now_ns = options.now_ns;
        let all = || {
            ledger
                .live_processes()
                .chain(ledger.ended(options.is_final))
        };
        let due: Vec<&Process> = all().filter(|one| self.is_due(one, now_ns)).collect();
        if due.is_empty() {
            return Arc::clone(&self.words);
        }
        let words = Arc::make_mut(&mut self.words);
        for process in due {
            words.insert(process.pid, of_process(process, options, symbols));
            // Not all in the same report.
            let again_ns = match self.judged.contains_key(&process.pid) {
                true => EVERY_NS,
                false => u64::from(process.pid % 5 + 1) * SECOND_NS,
            };
            let judged = JudgedProcess {
                first_seen_ns: process.first_seen_ns,
                at_ns: now_ns,
                due_ns: now_ns.saturating_add(again_ns),
            };
            self.judged.insert(process.pid, judged);
        }
        if words.len() > all().count() {
            words.retain(|pid, _| all().any(|one| one.pid == *pid));
            self.judged.retain(|pid, _| words.contains_key(pid));
        }
        Arc::clone(&self.words)
    }

    fn is_due(&self, process: &Process, now_ns: u64) -> bool {
        let Some(judged) = self.judged.get(&process.pid) else {
            return true;
        };
        // A recording may be played from an earlier time.
        let is_current = (judged.at_ns..judged.due_ns).contains(&now_ns);
        judged.first_seen_ns != process.first_seen_ns || !is_current
    }
}

/// The word of the worst verdict on the largest call sites of `process`; empty if there is none.
fn of_process(process: &Process, options: &Options, symbols: &dyn Symbolize) -> &'static str {
    let by_lines = options.view.groups_by_lines();
    let worst = |holder: Holder<'_>, holding: &Process| {
        let groups = SiteGroups::of(holding, by_lines, symbols);
        let sites = largest(holding, &groups, SITES).into_iter();
        let judged = sites.filter_map(|members| holder.judge(&members, options.now_ns));
        let shown: Vec<_> = judged.filter_map(|judged| judged.shown()).collect();
        shown.into_iter().min()
    };
    let own = worst(Holder::Process(process), process);
    let tensors = process.tensors.iter();
    let tensors = tensors
        .filter_map(|allocator| worst(Holder::Allocator(process, allocator), &allocator.blocks));
    let found = own.into_iter().chain(tensors);
    found.min().map_or("", Verdict::name)
}
