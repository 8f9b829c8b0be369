//! The time that a run took.

use anyhow::Result;

use super::bins::Bins;
use crate::analysis::range::TIMED;
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::{Database, Session};

/// Bins from the first to the last event of any kind, and the session time of the first memory event.
pub(super) fn span(database: &Database, session: &Session) -> Result<(Bins, i64)> {
    let mut all: Option<(i64, i64)> = None;
    let mut memory = None;
    for (table, begin, end) in TIMED {
        let first = database.limit(table, begin, "ASC")?;
        let last = database.limit(table, end, "DESC")?;
        if let (Some(first), Some(last)) = (first, last) {
            let (begin, end) = all.unwrap_or((first, last));
            all = Some((begin.min(first), end.max(last)));
            memory = memory.or((table == MEMORY).then_some(first));
        }
    }
    let (begin, end) = all.unwrap_or_default();
    // A recording goes on without a row; an export ends with its last one.
    let stop_ns = session.stop_ns.filter(|_| database.is_ours());
    let end = stop_ns.map_or(end, |stop| stop.max(end));
    let first_ns = memory.unwrap_or(begin);
    let bins = Bins::between(begin.saturating_sub(first_ns), end.saturating_sub(first_ns));
    Ok((bins, first_ns))
}
