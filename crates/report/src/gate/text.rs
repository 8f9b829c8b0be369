//! Why a run fails, for people: a few lines.

use super::found::Excuse;
use super::pattern::Pattern;
use super::{GateResult, Leak};
use crate::words::{amount, plural};
use gpuprobe_model::Total;
use gpuprobe_model::text::{printable, size};

/// Leaks that are named at most.
const MAX_NAMED: usize = 10;

/// The lines that are said at the end.
pub(super) fn lines(judgement: &GateResult, patterns: &[Pattern]) -> Vec<String> {
    let mut lines = vec![verdict(judgement)];
    let leaks = &judgement.leaks;
    lines.extend(
        leaks
            .iter()
            .take(MAX_NAMED)
            .map(|leak| format!("  {}", told(leak))),
    );
    if let Some(more) = leaks.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        lines.push(format!(
            "  ... and {}",
            plural(more as u64, "more call site")
        ));
    }
    lines.extend(suppressed(judgement, patterns));
    for (excuse, sites, held) in &judgement.excused {
        let why = match excuse {
            Excuse::Pattern(_) => continue,
            Excuse::Baseline => "as in the baseline",
            Excuse::Once => "allocated once by a library",
            Excuse::Variable => "of variables of modules",
            Excuse::Pool => "in pools of frameworks, whose tensors are judged where these are told",
        };
        let sites = plural(*sites, "call stack");
        lines.push(format!("no leak: {} at {sites} {why}", size(held.bytes)));
    }
    lines.extend(unused(judgement, patterns));
    if judgement.running > 0 {
        let running = plural(judgement.running, "process");
        lines.push(format!(
            "not judged: {running} that did not end while traced"
        ));
    }
    lines
}

fn verdict(judgement: &GateResult) -> String {
    let GateResult {
        leaks,
        leaked,
        tolerated_bytes,
        ..
    } = judgement;
    if leaks.is_empty() {
        return "leaked: nothing".to_owned();
    }
    let sites = plural(leaks.len() as u64, "call site");
    let held = amount(leaked.bytes, leaked.allocations);
    let tolerated = match tolerated_bytes {
        0 => String::new(),
        bytes => format!(" ({} tolerated)", size(*bytes)),
    };
    format!("leaked: {held} at {sites}{tolerated}")
}

/// `8.00 MiB in 20 allocations  train.py:41 step  libtorch, python3 train.py pid 574`.
fn told(leak: &Leak) -> String {
    let held = amount(leak.amount.bytes, leak.amount.allocations);
    let before = before(leak);
    let Leak { label, owner, .. } = leak;
    format!("{held}{before}  {label}  ({owner}, {})", who(leak))
}

/// The program and its processes.
pub(super) fn who(leak: &Leak) -> String {
    match leak.pids.as_slice() {
        [0] => leak.program.clone(),
        [pid] => format!("{} pid {pid}", leak.program),
        several => format!(
            "{} in {}",
            leak.program,
            plural(several.len() as u64, "process")
        ),
    }
}

/// The amount in the baseline, as text.
pub(super) fn before(leak: &Leak) -> String {
    let known = leak.before.filter(|before| *before != Total::default());
    known.map_or(String::new(), |before| {
        format!(
            ", {} in the baseline",
            amount(before.bytes, before.allocations)
        )
    })
}

/// Lines on suppressed memory, grouped by the reason.
fn suppressed(judgement: &GateResult, patterns: &[Pattern]) -> Vec<String> {
    let mut groups: Vec<(String, u64, Total)> = Vec::new();
    for (excuse, sites, held) in &judgement.excused {
        let Excuse::Pattern(number) = excuse else {
            continue;
        };
        let pattern = &patterns[*number];
        let name = printable(pattern.reason.as_ref().unwrap_or(&pattern.text));
        let place = groups.iter().position(|(known, ..)| *known == name);
        let place = place.unwrap_or_else(|| {
            groups.push((name, 0, Total::default()));
            groups.len() - 1
        });
        groups[place].1 += sites;
        groups[place].2.merge(*held);
    }
    let line = |(name, sites, held): (String, u64, Total)| {
        let sites = plural(sites, "call stack");
        format!("suppressed: {sites}, {} ({name})", size(held.bytes))
    };
    groups.into_iter().map(line).collect()
}

/// Suppressions in files that nothing matched.
fn unused(judgement: &GateResult, patterns: &[Pattern]) -> Vec<String> {
    let is_used = |number: usize| {
        let mut excused = judgement.excused.iter();
        excused.any(|(excuse, ..)| *excuse == Excuse::Pattern(number))
    };
    let all = patterns.iter().enumerate();
    let unused = all.filter(|(number, _)| !is_used(*number));
    let said = unused.filter_map(|(_, pattern)| {
        let place = pattern.place.as_ref()?;
        Some(format!(
            "unused suppression: {} ({place})",
            printable(&pattern.text)
        ))
    });
    said.collect()
}
