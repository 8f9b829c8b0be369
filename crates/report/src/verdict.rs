//! Verdicts for tables.

use std::collections::HashMap;
use std::sync::Arc;

pub use gpuprobe_engine::verdict::{Judgement, Severity, Verdict};

use gpuprobe_engine::verdict::Confidence;
use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::stack::Symbolize;
use gpuprobe_os::color::Tone;

use crate::memleak::{Holder, judge_largest};
use crate::{Options, View};

/// Tone of a verdict in a table.
pub fn tone_of(verdict: Verdict) -> Tone {
    tone(verdict.severity(Confidence::Likely))
}

/// Tone of a severity.
pub fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::Leak => Tone::Bad,
        Severity::Warning => Tone::Warning,
        Severity::Fine => Tone::Good,
        Severity::Early | Severity::Note => Tone::Dim,
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
    worst: Arc<HashMap<u32, Verdict>>,
}

impl WorstVerdicts {
    /// The verdicts by process id.
    pub fn update(
        &mut self,
        ledger: &Ledger,
        options: &Options,
        symbols: &dyn Symbolize,
    ) -> Arc<HashMap<u32, Verdict>> {
        let now_ns = options.now_ns;
        // A recording may be played from an earlier time.
        let is_current = |&judged_ns: &u64| (judged_ns..judged_ns + EVERY_NS).contains(&now_ns);
        if self.judged_ns.filter(is_current).is_none() {
            self.judged_ns = Some(now_ns);
            let worst = |one: &Process| Some((one.pid, worst(one, options, symbols)?));
            let processes = ledger.processes(options.is_final);
            self.worst = Arc::new(processes.filter_map(worst).collect());
        }
        Arc::clone(&self.worst)
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
    judged.map(|judged| judged.shown()).min()
}
