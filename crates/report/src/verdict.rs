//! Verdicts for tables.

use std::collections::HashMap;
use std::sync::Arc;

pub use gpuprobe_engine::verdict::{Judgement, Severity, Verdict};

use gpuprobe_engine::verdict::Confidence;
use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::stack::Symbolize;
use gpuprobe_os::color::Tone;

use crate::label::label;
use crate::memleak::{Holder, frames_of, judge_largest};
use crate::{Options, View, function_name};

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

/// The worst verdict on the largest call sites of a process, and the label of that site.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst {
    /// The verdict.
    pub verdict: Verdict,
    /// Of several sites with it, the one that holds most; a function of CUDA without a call stack.
    pub label: String,
}

/// By process id.
pub type Verdicts = Arc<HashMap<u32, Worst>>;

/// The worst verdicts on the largest call sites of processes.
#[derive(Debug, Default)]
pub struct WorstVerdicts {
    judged_ns: Option<u64>,
    worst: Verdicts,
}

impl WorstVerdicts {
    /// The verdicts by process id.
    pub fn update(
        &mut self,
        ledger: &Ledger,
        options: &Options,
        symbols: &dyn Symbolize,
    ) -> Verdicts {
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
fn worst(process: &Process, options: &Options, symbols: &dyn Symbolize) -> Option<Worst> {
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
    let (judged, site) = judged.min_by_key(|(judged, site)| {
        let live = site.live.all().bytes;
        (judged.shown(), std::cmp::Reverse(live))
    })?;
    let (frames, _) = frames_of(process.pid, site.stack.as_deref(), symbols);
    let api = || function_name(site.row, symbols).into_owned();
    Some(Worst {
        verdict: judged.shown(),
        label: label(&frames).unwrap_or_else(api),
    })
}
