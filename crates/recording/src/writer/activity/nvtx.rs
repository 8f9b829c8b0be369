//! NVTX ranges and markers.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use crate::ids::global_pid;
use crate::writer::common::RowContext;
use crate::writer::insert::Insert;
use gpuprobe_cuda::nsys::event_type::{DOMAIN, MARK, PUSH_POP, START_END};
use gpuprobe_model::activity::Activity;
use gpuprobe_wire as wire;

/// Maximum number of open ranges; beyond it, the open ones get no end.
const MAX_OPEN: usize = 1 << 16;

/// Process and thread id, if the object of the marker is a thread.
type Thread = Option<(u32, u32)>;

/// A range without an end so far.
#[derive(Debug)]
struct OpenRangeRow {
    start: i64,
    text: String,
    thread: Thread,
    domain: i64,
}

/// Values of a row.
struct NvtxRow<'a> {
    start: i64,
    end: Option<i64>,
    kind: i64,
    id: Option<u32>,
    text: &'a str,
    thread: Option<i64>,
    end_thread: Option<i64>,
    domain: i64,
}

/// Writer of NVTX ranges and markers.
pub(super) struct Nvtx<'c> {
    rows: Insert<'c>,
    open: HashMap<(u32, u32), OpenRangeRow>,
    /// Ids of the open ranges of each thread, innermost last.
    stacks: HashMap<(u32, u32), Vec<u32>>,
    /// Numbers of domains; 0 is the default domain.
    domains: HashMap<(u32, String), i64>,
}

impl<'c> Nvtx<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self {
            rows: Insert::into(connection, "NVTX_EVENTS"),
            open: HashMap::new(),
            stacks: HashMap::new(),
            domains: HashMap::new(),
        }
    }

    /// Writes a marker, or the start or end of a range.
    pub(super) fn marker(
        &mut self,
        activity: &Activity,
        marker: &wire::Marker,
        thread: Thread,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        let (pid, time) = (activity.pid, common.time(marker.time_ns));
        let text = activity.name.as_deref().unwrap_or("");
        if marker.flags & wire::marker::END != 0 {
            return self.end((pid, marker.id), time, thread, common);
        }
        let domain = self.domain(pid, activity.qualifier.as_deref(), time)?;
        if marker.flags & wire::marker::START != 0 {
            if self.open.len() >= MAX_OPEN {
                self.finish(common)?;
            }
            if let Some(thread) = thread {
                self.stacks.entry(thread).or_default().push(marker.id);
            }
            let open = OpenRangeRow {
                start: time,
                text: text.to_owned(),
                thread,
                domain,
            };
            self.open.insert((pid, marker.id), open);
        } else if marker.flags & wire::marker::INSTANTANEOUS != 0 {
            let global = thread
                .map(|(pid, tid)| common.thread(pid, tid))
                .transpose()?;
            self.row(&NvtxRow {
                start: time,
                end: None,
                kind: MARK,
                id: None,
                text,
                thread: global.or(Some(global_pid(pid))),
                end_thread: None,
                domain,
            })?;
        }
        Ok(())
    }

    /// Ends a range. Ranges that end on their own thread, innermost first, are push/pop ranges.
    fn end(
        &mut self,
        key: (u32, u32),
        time: i64,
        thread: Thread,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        // The start was before tracing, or was lost.
        let Some(open) = self.open.remove(&key) else {
            return Ok(());
        };
        let mut is_innermost = false;
        if let Some(stack) = open.thread.and_then(|thread| self.stacks.get_mut(&thread)) {
            is_innermost = stack.last() == Some(&key.1);
            stack.retain(|id| *id != key.1);
        }
        let is_popped = is_innermost && thread.is_none_or(|thread| Some(thread) == open.thread);
        let kind = if is_popped { PUSH_POP } else { START_END };
        self.range(key, &open, (Some(time), kind), thread, common)
    }

    fn range(
        &mut self,
        (pid, id): (u32, u32),
        open: &OpenRangeRow,
        (end, kind): (Option<i64>, i64),
        end_thread: Thread,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        let mut global = |thread: Thread| {
            let thread = thread.map(|(pid, tid)| common.thread(pid, tid));
            thread.transpose()
        };
        let (thread, ended_by) = (global(open.thread)?, global(end_thread)?);
        self.row(&NvtxRow {
            start: open.start,
            end,
            kind,
            id: Some(id),
            text: &open.text,
            thread: thread.or(Some(global_pid(pid))),
            end_thread: ended_by.filter(|_| kind == START_END),
            domain: open.domain,
        })
    }

    /// Writes the ranges that are still open, without an end.
    pub(super) fn finish(&mut self, common: &mut RowContext<'c>) -> rusqlite::Result<()> {
        self.stacks.clear();
        let mut open: Vec<_> = self.open.drain().collect();
        open.sort_by_key(|(key, open)| (open.start, *key));
        for (key, open) in open {
            self.range(key, &open, (None, START_END), None, common)?;
        }
        Ok(())
    }

    fn domain(&mut self, pid: u32, name: Option<&str>, time: i64) -> rusqlite::Result<i64> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(0);
        };
        if let Some(number) = self.domains.get(&(pid, name.to_owned())) {
            return Ok(*number);
        }
        let number = 1 + i64::try_from(self.domains.len()).unwrap_or(i64::MAX - 1);
        self.domains.insert((pid, name.to_owned()), number);
        self.row(&NvtxRow {
            start: time,
            end: None,
            kind: DOMAIN,
            id: None,
            text: name,
            thread: Some(global_pid(pid)),
            end_thread: None,
            domain: number,
        })?;
        Ok(number)
    }

    fn row(&mut self, row: &NvtxRow<'_>) -> rusqlite::Result<()> {
        let nothing: Option<i64> = None;
        self.rows.row(params![
            row.start,
            row.end,
            row.kind,
            row.id,
            nothing,
            nothing,
            row.text,
            row.thread,
            row.end_thread,
            nothing,
            row.domain,
            nothing,
            nothing,
            nothing,
            nothing,
            nothing,
            nothing,
            nothing,
            nothing
        ])
    }
}
