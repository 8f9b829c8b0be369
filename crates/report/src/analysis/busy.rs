//! How busy each GPU was, where a file has its times.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::Selection;
use super::activity::is_selected;
use gpuprobe_recording::Database;
use gpuprobe_recording::row::integer;

/// Tables of what occupies a GPU.
const WORK: [&str; 4] = [
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
];

/// The time of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Busy {
    /// Device.
    pub device: i64,
    /// Time with anything running: a kernel, a copy, a memory set or a graph.
    pub busy_ns: u64,
    /// Time from the first of these to the end of the last.
    pub span_ns: u64,
    /// Share of that time, 0 to 1.
    pub share: f64,
    /// Times in between with nothing running.
    pub gaps: u64,
    /// The longest of them.
    pub longest_gap_ns: u64,
}

/// A GPU up to some time.
struct Running {
    first: i64,
    until: i64,
    found: Busy,
}

impl Running {
    fn from(device: i64, start: i64) -> Self {
        let found = Busy {
            device,
            ..Busy::default()
        };
        Self {
            first: start,
            until: start,
            found,
        }
    }

    /// Something ran; nothing that is entered later started earlier.
    fn enter(&mut self, start: i64, end: i64) {
        if start > self.until {
            let gap = start.abs_diff(self.until);
            self.found.gaps += 1;
            self.found.longest_gap_ns = self.found.longest_gap_ns.max(gap);
        }
        let from = start.max(self.until);
        if end > from {
            self.found.busy_ns = self.found.busy_ns.saturating_add(end.abs_diff(from));
        }
        self.until = self.until.max(end);
    }

    fn finish(mut self) -> Busy {
        self.found.span_ns = self.until.abs_diff(self.first);
        self.found.share = self.found.busy_ns as f64 / self.found.span_ns.max(1) as f64;
        self.found
    }
}

/// How busy each GPU was; empty if the file has no times of GPUs.
///
/// # Errors
/// Those of the file.
pub fn busy(database: &Database, selection: &Selection) -> Result<Vec<Busy>> {
    let columns = ["start", "end", "globalPid", "deviceId"];
    let mut tables = Vec::new();
    for table in WORK {
        tables.extend(database.select(table, &columns, "ORDER BY start")?);
    }
    let mut rows = Vec::new();
    for table in &mut tables {
        rows.push(table.query([]).map_err(|e| database.explain(e))?);
    }
    // Each table is in order: the earliest of their next rows is the next of all.
    let mut next = Vec::new();
    for rows in &mut rows {
        next.push(span(database, selection, rows)?);
    }
    let mut gpus: BTreeMap<i64, Running> = BTreeMap::new();
    while let Some((index, (start, end, device))) = earliest(&next) {
        let gpu = gpus.entry(device);
        gpu.or_insert_with(|| Running::from(device, start))
            .enter(start, end);
        next[index] = span(database, selection, &mut rows[index])?;
    }
    Ok(gpus.into_values().map(Running::finish).collect())
}

/// Start, end and device.
type Span = (i64, i64, i64);

fn earliest(next: &[Option<Span>]) -> Option<(usize, Span)> {
    let there = next.iter().enumerate();
    there
        .filter_map(|(index, span)| span.map(|span| (index, span)))
        .min_by_key(|(_, span)| span.0)
}

/// The next span that is selected and makes sense.
fn span(
    database: &Database,
    selection: &Selection,
    rows: &mut rusqlite::Rows<'_>,
) -> Result<Option<Span>> {
    while let Some(row) = rows.next().map_err(|e| database.explain(e))? {
        let (process, device) = (integer(row, 2), integer(row, 3));
        let times = integer(row, 0).zip(integer(row, 1));
        match times {
            Some((start, end)) if end >= start && is_selected(selection, process, device) => {
                return Ok(Some((start, end, device.unwrap_or(0))));
            }
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_at_once_is_busy_once() {
        let mut gpu = Running::from(0, 100);
        for (start, end) in [(100, 200), (150, 180), (190, 250), (300, 310), (500, 500)] {
            gpu.enter(start, end);
        }
        let found = gpu.finish();
        assert_eq!((found.busy_ns, found.span_ns), (160, 400));
        assert_eq!((found.gaps, found.longest_gap_ns), (2, 190));
        assert!((found.share - 0.4).abs() < 1e-9);
    }
}
