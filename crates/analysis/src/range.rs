//! The selected time, for all that is not memory: kernels, copies, calls, waits, NVTX ranges and launches.

use anyhow::Result;

use super::Filter;
use super::work::work_of;
use gpuprobe_model::activity::{ActivityBatch, ActivityRecord};
use gpuprobe_recording::Database;
use gpuprobe_recording::gpu_rows::{ZERO_NS, record_ns};
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_wire::marker::END;

/// Tables with times, and their columns of begin and end; the memory events first.
pub(crate) const TIMED: [(&str, &str, &str); 7] = [
    (MEMORY, "start", "start"),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "start", "end"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", "start", "end"),
    ("CUPTI_ACTIVITY_KIND_MEMSET", "start", "end"),
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "start", "end"),
    ("GPUPROBE_COPIES", "t0", "t1"),
    ("GPUPROBE_TENSORS", "t0", "t0"),
];

/// Session times of the first and of the last record of [`TIMED`].
pub(crate) fn span(database: &Database) -> Result<Option<(i64, i64)>> {
    let (mut first, mut last) = (None::<i64>, None);
    for (table, begin, end) in TIMED {
        first = first
            .into_iter()
            .chain(database.limit(table, begin, "ASC")?)
            .min();
        last = last.max(database.limit(table, end, "DESC")?);
    }
    Ok(first.zip(last))
}

/// Time 0 of selections: the session time of the first memory event, or of the first record if there is none.
pub fn first_ns(database: &Database) -> Result<Option<i64>> {
    match database.limit(MEMORY, "start", "ASC")? {
        None => Ok(span(database)?.map(|(first, _)| first)),
        first => Ok(first),
    }
}

/// Session times within which rows begin, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeRange {
    from_ns: i64,
    to_ns: i64,
}

impl TimeRange {
    /// The whole file.
    pub(crate) const WHOLE: Self = Self {
        from_ns: i64::MIN,
        to_ns: i64::MAX,
    };

    /// The selected time of a file.
    pub(crate) fn of(database: &Database, filter: &Filter) -> Result<Self> {
        if !filter.has_range() {
            return Ok(Self::WHOLE);
        }
        let first = first_ns(database)?.unwrap_or(0);
        let session_ns = |ns: i64| first.saturating_add(ns);
        Ok(Self {
            from_ns: filter.begin_ns().map_or(i64::MIN, session_ns),
            to_ns: filter.end_ns().map_or(i64::MAX, session_ns),
        })
    }

    pub(crate) fn is_whole(self) -> bool {
        self == Self::WHOLE
    }

    /// Whether a row that begins at this session time is selected.
    pub(crate) fn has(self, session_ns: i64) -> bool {
        (self.from_ns..=self.to_ns).contains(&session_ns)
    }

    /// The part of a time of records that is selected.
    pub(crate) fn part(self, start_ns: u64, end_ns: u64) -> Option<(u64, u64)> {
        if self.is_whole() {
            return Some((start_ns, end_ns));
        }
        let from = record_ns(self.from_ns);
        // What begins with the last selected nanosecond takes up all of it.
        let to = record_ns(self.to_ns.saturating_add(1));
        let (start, end) = (start_ns.max(from), end_ns.min(to));
        (start <= end && start < to && (end > from || start_ns >= from)).then_some((start, end))
    }
}

/// The records of `batch` that begin within `range`. The end of an NVTX range follows its begin: `marker` has the number
/// of the range that began last.
pub(crate) fn part_of(batch: &ActivityBatch, range: TimeRange, marker: &mut u32) -> ActivityBatch {
    let mut part = batch.clone();
    part.activities.retain(|activity| {
        let begun = times(&activity.record).map(|(start_ns, _)| start_ns.cast_signed());
        let is_selected = begun.is_none_or(|ns| range.has(ns.saturating_sub_unsigned(ZERO_NS)));
        match &activity.record {
            ActivityRecord::Marker(mark) if mark.flags & END != 0 => *marker == mark.id,
            ActivityRecord::Marker(mark) => {
                *marker = if is_selected { mark.id } else { 0 };
                is_selected
            }
            _ => is_selected,
        }
    });
    part
}

/// Begin and end of what a record is about, if it has both.
pub(crate) fn times(record: &ActivityRecord) -> Option<(u64, u64)> {
    Some(match record {
        ActivityRecord::Api(r) => (r.start_ns, r.end_ns),
        ActivityRecord::Sync(r) => (r.start_ns, r.end_ns),
        ActivityRecord::Overhead(r) => (r.start_ns, r.end_ns),
        ActivityRecord::Marker(r) => (r.time_ns, r.time_ns),
        _ => return work_of(record).map(|(_, _, start_ns, end_ns)| (start_ns, end_ns)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_model::activity::Activity;
    use gpuprobe_wire as wire;

    const RANGE: TimeRange = TimeRange {
        from_ns: 10,
        to_ns: 19,
    };

    fn clipped(start: i64, end: i64) -> Option<(i64, i64)> {
        let part = RANGE.part(record_ns(start), record_ns(end));
        let session = |ns: u64| ns.cast_signed() - ZERO_NS.cast_signed();
        part.map(|(start, end)| (session(start), session(end)))
    }

    #[test]
    fn times_are_clipped() {
        assert_eq!(clipped(0, 10), None);
        assert_eq!(clipped(0, 11), Some((10, 11)));
        assert_eq!(clipped(12, 15), Some((12, 15)));
        assert_eq!(clipped(19, 40), Some((19, 20)));
        assert_eq!(clipped(20, 40), None);
        assert_eq!(clipped(10, 10), Some((10, 10)));
        assert_eq!(clipped(0, 100), Some((10, 20)));
        let whole = TimeRange::WHOLE;
        assert_eq!(whole.part(0, u64::MAX), Some((0, u64::MAX)));
    }

    #[test]
    fn an_nvtx_range_is_selected_by_its_begin() {
        let mark = |time: i64, flags, id| Activity {
            pid: 1,
            record: ActivityRecord::Marker(wire::Marker {
                time_ns: record_ns(time),
                flags,
                id,
                ..wire::Marker::default()
            }),
            name: None,
            qualifier: None,
        };
        let batch = ActivityBatch {
            pid: 1,
            process: 1,
            cupti_version: 0,
            is_last: true,
            activities: vec![
                mark(5, wire::marker::START, 1),
                mark(12, END, 1),
                mark(15, wire::marker::START, 2),
                mark(30, END, 2),
                mark(19, wire::marker::INSTANTANEOUS, 3),
                mark(20, wire::marker::INSTANTANEOUS, 4),
            ],
        };
        let selected = part_of(&batch, RANGE, &mut 0);
        let ids = selected.activities.iter().map(|one| match &one.record {
            ActivityRecord::Marker(mark) => mark.id,
            _ => 0,
        });
        assert_eq!(ids.collect::<Vec<_>>(), [2, 2, 3]);
    }
}
