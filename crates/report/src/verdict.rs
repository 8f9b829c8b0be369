//! Words of verdicts in tables.

pub(crate) use gpuprobe_engine::verdict::{Severity, Verdict};

use gpuprobe_engine::verdict::{Confidence, Judgement};
use gpuprobe_os::color::Tone;

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
pub(crate) fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::Leak => Tone::Bad,
        Severity::Warning => Tone::Warning,
        Severity::Fine => Tone::Good,
        Severity::Note => Tone::Dim,
    }
}
