//! NVTX ranges and markers.

use std::collections::HashMap;

use rusqlite::params;

use crate::ids::global_pid;
use crate::writer::common::RowContext;
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

/// Writer of NVTX ranges and markers.
#[derive(Debug, Default)]
pub(super) struct Nvtx {
    open: HashMap<(u32, u32), OpenRangeRow>,
    /// Ids of the open ranges of each thread, innermost last.
    stacks: HashMap<(u32, u32), Vec<u32>>,
    /// Numbers of domains; 0 is the default domain.
    domains: HashMap<(u32, String), i64>,
}

/// Values of a row.
struct NvtxRow<'a> {
    start: i64,
    end: Option<i64>,
    kind: i64,
    id: Option<u32>,
    text: &'a str,
    pid: u32,
    thread: Thread,
    end_thread: Thread,
    domain: i64,
}

impl NvtxRow<'_> {
    fn write(&self, common: &mut RowContext<'_>) -> rusqlite::Result<()> {
        const NOTHING: Option<i64> = None;
        let mut global = |thread: Thread| {
            let thread = thread.map(|(pid, tid)| common.thread(pid, tid));
            thread.transpose()
        };
        let thread = global(self.thread)?.unwrap_or_else(|| global_pid(self.pid));
        let row = params![
            self.start,
            self.end,
            self.kind,
            self.id,
            NOTHING,
            NOTHING,
            self.text,
            thread,
            global(self.end_thread)?,
            NOTHING,
            self.domain,
            NOTHING,
            NOTHING,
            NOTHING,
            NOTHING,
            NOTHING,
            NOTHING,
            NOTHING,
            NOTHING
        ];
        common.insert("NVTX_EVENTS", row)
    }
}

impl Nvtx {
    /// Writes a marker, or the start or end of a range.
    pub(super) fn marker(
        &mut self,
        activity: &Activity,
        marker: &wire::Marker,
        thread: Thread,
        common: &mut RowContext<'_>,
    ) -> rusqlite::Result<()> {
        let (pid, time) = (activity.pid, common.time(marker.time_ns));
        let text = activity.name.as_deref().unwrap_or("");
        if marker.flags & wire::marker::END != 0 {
            return self.end((pid, marker.id), time, thread, common);
        }
        let domain = self.domain(pid, activity.qualifier.as_deref(), time, common)?;
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
            let mark = NvtxRow {
                start: time,
                end: None,
                kind: MARK,
                id: None,
                text,
                pid,
                thread,
                end_thread: None,
                domain,
            };
            mark.write(common)?;
        }
        Ok(())
    }

    /// Ends a range. Ranges that end on their own thread, innermost first, are push/pop ranges.
    fn end(
        &mut self,
        key: (u32, u32),
        time: i64,
        thread: Thread,
        common: &mut RowContext<'_>,
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
        open.row(key, Some(time), is_popped, thread).write(common)
    }

    /// Writes the ranges that are still open, without an end.
    pub(super) fn finish(&mut self, common: &mut RowContext<'_>) -> rusqlite::Result<()> {
        self.stacks.clear();
        let mut open: Vec<_> = self.open.drain().collect();
        open.sort_by_key(|(key, open)| (open.start, *key));
        for (key, open) in open {
            open.row(key, None, false, None).write(common)?;
        }
        Ok(())
    }

    fn domain(
        &mut self,
        pid: u32,
        name: Option<&str>,
        time: i64,
        common: &mut RowContext<'_>,
    ) -> rusqlite::Result<i64> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(0);
        };
        if let Some(number) = self.domains.get(&(pid, name.to_owned())) {
            return Ok(*number);
        }
        let number = 1 + i64::try_from(self.domains.len()).unwrap_or(i64::MAX - 1);
        self.domains.insert((pid, name.to_owned()), number);
        let domain = NvtxRow {
            start: time,
            end: None,
            kind: DOMAIN,
            id: None,
            text: name,
            pid,
            thread: None,
            end_thread: None,
            domain: number,
        };
        domain.write(common)?;
        Ok(number)
    }
}

impl OpenRangeRow {
    fn row(
        &self,
        (pid, id): (u32, u32),
        end: Option<i64>,
        is_popped: bool,
        end_thread: Thread,
    ) -> NvtxRow<'_> {
        NvtxRow {
            start: self.start,
            end,
            kind: if is_popped { PUSH_POP } else { START_END },
            id: Some(id),
            text: &self.text,
            pid,
            thread: self.thread,
            end_thread: end_thread.filter(|_| !is_popped),
            domain: self.domain,
        }
    }
}
