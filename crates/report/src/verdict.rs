//! Verdicts in a few words, for tables.

use std::collections::HashMap;
pub use std::sync::Arc;

pub use gpuprobe_engine::verdict::{Severity, Verdict};

use gpuprobe_engine::verdict::{Confidence, Judgement};
use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::stack::Symbolize;
use gpuprobe_os::color::Tone;

use crate::memleak::{Holder, judge_largest};
use crate::{Options, View};

/// A verdict in a few words, for a table; empty if the confidence is too low.
pub fn word(judgement: &Judgement) -> &'static str {
    judgement.shown().map_or("", Verdict::name)
}

/// How much a verdict matters, by its word: the smaller, the more.
pub fn rank(word: &str) -> usize {
    Verdict::by_name(word).map_or(usize::MAX, |verdict| verdict as usize)
}

/// Tone of a verdict in a table, by its word.
pub fn word_tone(word: &str) -> Option<Tone> {
    let verdict = Verdict::by_name(word)?;
    Some(tone(verdict.severity(Confidence::Likely)))
}

/// Tone of a severity.
pub fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::Leak => Tone::Bad,
        Severity::Warning => Tone::Warning,
        Severity::Fine => Tone::Good,
        Severity::Note => Tone::Dim,
    }
}

/// Interval at which all call sites are judged, nanoseconds: it takes longer than adding up what they hold, and
/// verdicts change slowly.
const EVERY_NS: u64 = 5_000_000_000;
/// Judged call sites of a process, and of each of its allocators.
const SITES: usize = 20;

/// The worst verdicts on the largest call sites of processes.
#[derive(Debug, Default)]
pub struct WorstVerdicts {
    judged_ns: Option<u64>,
    words: Arc<HashMap<u32, &'static str>>,
}

impl WorstVerdicts {
    /// The verdicts, as words, by process id.
    pub fn update(
        &mut self,
        ledger: &Ledger,
        options: &Options,
        symbols: &dyn Symbolize,
    ) -> Arc<HashMap<u32, &'static str>> {
        let now_ns = options.now_ns;
        // A recording may be played from an earlier time.
        let is_current = |&judged_ns: &u64| (judged_ns..judged_ns + EVERY_NS).contains(&now_ns);
        if self.judged_ns.filter(is_current).is_none() {
            self.judged_ns = Some(now_ns);
            let word = |one: &Process| worst(one, options, symbols).map_or("", Verdict::name);
            let processes = ledger.processes(options.is_final);
            self.words = Arc::new(processes.map(|one| (one.pid, word(one))).collect());
        }
        Arc::clone(&self.words)
    }
}

/// The worst verdict on the largest call sites of `process`.
fn worst(process: &Process, options: &Options, symbols: &dyn Symbolize) -> Option<Verdict> {
    let view = View {
        group: options.view.group,
        ..View::default()
    };
    let options = Options {
        top: Some(SITES),
        view,
        ..*options
    };
    let judged = Holder::all(process).flat_map(|holder| judge_largest(holder, &options, symbols));
    judged.filter_map(|judged| judged.shown()).min()
}
