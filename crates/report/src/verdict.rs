//! Text of verdicts on call sites.

use gpuprobe_engine::verdict::{Confidence, Judgement, Verdict};

const SECOND_NS: u64 = 1_000_000_000;

/// Text of a confidence.
pub(crate) fn confidence(confidence: Confidence) -> String {
    match confidence {
        Confidence::Certain => "certain".to_owned(),
        Confidence::Likely => "likely".to_owned(),
        Confidence::NotEnough(more_ns) => {
            let more = more_ns.div_ceil(SECOND_NS);
            format!("not enough data: {more} more seconds")
        }
    }
}

/// A verdict in a few words, for a table; empty if the confidence is too low.
pub fn word(judgement: &Judgement) -> &'static str {
    let is_known = !matches!(judgement.confidence, Confidence::NotEnough(_));
    match judgement.verdict {
        Verdict::Growing if is_known => "growing",
        Verdict::GrowingPerCycle if is_known => "growing per cycle",
        Verdict::Growing | Verdict::GrowingPerCycle => "growing?",
        other if is_known => other.name(),
        _ => "",
    }
}
