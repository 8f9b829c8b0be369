//! NVTX ranges and markers.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::params;
use rusqlite::types::Null;

use crate::ids::global_pid;
use crate::writer::tables::Tables;
use gpuprobe_cuda::nsys::event_type::{DOMAIN, MARK, PUSH_POP, START_END};
use gpuprobe_model::activity::Activity;
use gpuprobe_wire as wire;

/// Maximum number of open ranges; beyond it, the open ones get no end.
const MAX_OPEN: usize = 1 << 16;

/// Process and thread id, if the object of the marker is a thread.
type Thread = Option<(u32, u32)>;

/// Values of a row; of an open range, without its end.
#[derive(Debug)]
struct NvtxRow {
    start: i64,
    end: Option<i64>,
    kind: i64,
    id: Option<u32>,
    text: Option<Arc<str>>,
    pid: u32,
    thread: Thread,
    end_thread: Thread,
    domain: i64,
}

impl NvtxRow {
    fn write(&self, tables: &mut Tables<'_>) -> rusqlite::Result<()> {
        let mut global = |thread: Thread| {
            let thread = thread.map(|(pid, tid)| tables.thread(pid, tid));
            thread.transpose()
        };
        let thread = global(self.thread)?.unwrap_or_else(|| global_pid(self.pid));
        let row = params![
            self.start,
            self.end,
            self.kind,
            self.id,
            Null,
            Null,
            self.text.as_deref().unwrap_or(""),
            thread,
            global(self.end_thread)?,
            Null,
            self.domain
        ];
        tables.insert("NVTX_EVENTS", row)
    }
}

/// Writer of NVTX ranges and markers.
#[derive(Debug, Default)]
pub(super) struct Nvtx {
    /// Open ranges by process and id.
    open: HashMap<(u32, u32), NvtxRow>,
    /// Ids of the open ranges of each thread, innermost last.
    stacks: HashMap<(u32, u32), Vec<u32>>,
    /// Numbers of domains; 0 is the default domain.
    domains: HashMap<(u32, Arc<str>), i64>,
}

impl Nvtx {
    /// Writes a marker, or the start or end of a range.
    pub(super) fn marker(
        &mut self,
        activity: &Activity,
        marker: &wire::Marker,
        thread: Thread,
        tables: &mut Tables<'_>,
    ) -> rusqlite::Result<()> {
        let key = (activity.pid, marker.id);
        let mut row = NvtxRow {
            start: tables.time(marker.time_ns),
            end: None,
            kind: MARK,
            id: None,
            text: activity.name.clone(),
            pid: activity.pid,
            thread,
            end_thread: None,
            domain: 0,
        };
        if marker.flags & wire::marker::END != 0 {
            return self.end(key, row.start, thread, tables);
        }
        row.domain = self.domain(activity, row.start, tables)?;
        if marker.flags & wire::marker::START != 0 {
            if self.open.len() >= MAX_OPEN {
                self.finish(tables)?;
            }
            if let Some(thread) = thread {
                self.stacks.entry(thread).or_default().push(marker.id);
            }
            (row.kind, row.id) = (START_END, Some(marker.id));
            self.open.insert(key, row);
        } else if marker.flags & wire::marker::INSTANTANEOUS != 0 {
            row.write(tables)?;
        }
        Ok(())
    }

    /// Ends a range. Ranges that end on their own thread, innermost first, are push/pop ranges.
    fn end(
        &mut self,
        key: (u32, u32),
        time: i64,
        thread: Thread,
        tables: &mut Tables<'_>,
    ) -> rusqlite::Result<()> {
        // The start was before tracing, or was lost.
        let Some(mut row) = self.open.remove(&key) else {
            return Ok(());
        };
        let mut is_innermost = false;
        if let Some(stack) = row.thread.and_then(|thread| self.stacks.get_mut(&thread)) {
            is_innermost = stack.last() == Some(&key.1);
            stack.retain(|id| *id != key.1);
        }
        row.end = Some(time);
        if is_innermost && thread.is_none_or(|thread| Some(thread) == row.thread) {
            row.kind = PUSH_POP;
        } else {
            row.end_thread = thread;
        }
        row.write(tables)
    }

    /// Writes the ranges that are still open, without an end.
    pub(super) fn finish(&mut self, tables: &mut Tables<'_>) -> rusqlite::Result<()> {
        self.stacks.clear();
        let mut open: Vec<_> = self.open.drain().collect();
        open.sort_by_key(|(key, row)| (row.start, *key));
        open.iter().try_for_each(|(_, row)| row.write(tables))
    }

    /// Number of the domain of a marker, which is given a row.
    fn domain(
        &mut self,
        activity: &Activity,
        start: i64,
        tables: &mut Tables<'_>,
    ) -> rusqlite::Result<i64> {
        let named = activity.qualifier.as_ref().filter(|name| !name.is_empty());
        let Some(name) = named else { return Ok(0) };
        let count = i64::try_from(self.domains.len()).unwrap_or(i64::MAX - 1);
        let key = (activity.pid, Arc::clone(name));
        let number = *self.domains.entry(key).or_insert(count + 1);
        if number > count {
            let row = NvtxRow {
                start,
                end: None,
                kind: DOMAIN,
                id: None,
                text: Some(Arc::clone(name)),
                pid: activity.pid,
                thread: None,
                end_thread: None,
                domain: number,
            };
            row.write(tables)?;
        }
        Ok(number)
    }
}
