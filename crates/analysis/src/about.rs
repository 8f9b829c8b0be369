//! What a report of a file says of the file itself.

use super::Filter;
use super::file::Analysis;
use super::played::Played;
use gpuprobe_report::about::About;

/// Of a report about the selected time.
pub(super) fn new(question: Analysis, filter: &Filter) -> About {
    let seconds = |ns: i64| ns as f64 / 1e9;
    About {
        analysis: format!("{question:?}").to_lowercase(),
        from: filter.begin_ns().map(seconds),
        to: filter.end_ns().map(seconds),
        ..About::default()
    }
}

/// Adds times and totals of the memory that was played.
pub(super) fn set_memory(about: &mut About, question: Analysis, played: &Played) {
    let first_ns = played.first_ns().unwrap_or(0);
    about.first_ns = played.event_ns(first_ns);
    let since_first = |ns: i64| ns.saturating_sub(first_ns);
    about.last_ns = played.last_ns().map(since_first);
    (about.from, about.to) = played.range();
    about.findings = Some(played.findings);
    let live = match question {
        Analysis::Watermark => {
            let peak_ns = played.peak_ns();
            about.time_ns = peak_ns.map(since_first);
            about.time = peak_ns.and_then(|peak| played.wall(peak));
            played.at_peak
        }
        _ => played.never_freed(),
    };
    about.totals = Some(live.gpu);
    about.host = Some(live.host);
}
