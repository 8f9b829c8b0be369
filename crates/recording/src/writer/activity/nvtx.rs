//! NVTX ranges and markers.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::types::Null;
use rusqlite::{Result, params};

use crate::ids::global_pid;
use crate::writer::tables::Tables;
use gpuprobe_cuda::nsys::event_type::{DOMAIN, MARK, PUSH_POP, START_END};
use gpuprobe_model::activity::Activity;
use gpuprobe_wire as wire;

/// Maximum number of open ranges; beyond it, the open ones get no end.
const MAX_OPEN: usize = 1 << 12;

/// Process and thread id, if the object of the marker is a thread.
type Thread = Option<(u32, u32)>;

/// Writer of NVTX ranges and markers.
#[derive(Debug, Default)]
pub(super) struct Nvtx {
    /// Rows and threads of open ranges by process and id.
    open: HashMap<(u32, u32), (i64, Thread)>,
    /// Numbers of domains; 0 is the default domain.
    domains: HashMap<(u32, Arc<str>), i64>,
}

impl Nvtx {
    /// Writes a marker or the start of a range, or adds its end.
    pub(super) fn marker(
        &mut self,
        activity: &Activity,
        marker: &wire::Marker,
        thread: Thread,
        tables: &mut Tables<'_>,
    ) -> Result<()> {
        let key = (activity.pid, marker.id);
        let time = tables.time(marker.time_ns);
        if marker.flags & wire::marker::END != 0 {
            return self.end(key, time, thread, tables);
        }
        let domain = self.domain(activity, time, tables)?;
        let is_start = marker.flags & wire::marker::START != 0;
        if !is_start && marker.flags & wire::marker::INSTANTANEOUS == 0 {
            return Ok(());
        }
        let kind = if is_start { START_END } else { MARK };
        let row = params![
            time,
            Null,
            kind,
            is_start.then_some(marker.id),
            Null,
            Null,
            activity.name.as_deref().unwrap_or(""),
            global(thread, tables)?.unwrap_or_else(|| global_pid(activity.pid)),
            Null,
            Null,
            domain
        ];
        tables.insert("NVTX_EVENTS", row)?;
        if is_start {
            if self.open.len() >= MAX_OPEN {
                self.open.clear();
            }
            let row = tables.connection.last_insert_rowid();
            self.open.insert(key, (row, thread));
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
    ) -> Result<()> {
        // The start was before tracing, or was lost.
        let Some((row, started)) = self.open.remove(&key) else {
            return Ok(());
        };
        let is_own = started.is_some() && (thread.is_none() || thread == started);
        let is_within = |(other, of): &(i64, Thread)| *of == started && *other > row;
        let (kind, end_thread) = match is_own && !self.open.values().any(is_within) {
            true => (PUSH_POP, None),
            false => (START_END, global(thread, tables)?),
        };
        let sql = "UPDATE NVTX_EVENTS SET \"end\" = ?2, eventType = ?3, endGlobalTid = ?4 WHERE rowid = ?1";
        tables.execute(sql, params![row, time, kind, end_thread])
    }

    /// Number of the domain of a marker, which is given a row.
    fn domain(&mut self, activity: &Activity, start: i64, tables: &mut Tables<'_>) -> Result<i64> {
        let named = activity.qualifier.as_ref().filter(|name| !name.is_empty());
        let Some(name) = named else { return Ok(0) };
        let count = i64::try_from(self.domains.len()).unwrap_or(i64::MAX - 1);
        let key = (activity.pid, Arc::clone(name));
        let number = *self.domains.entry(key).or_insert(count + 1);
        if number > count {
            let (process, text) = (global_pid(activity.pid), &**name);
            let sql = "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) \
                       VALUES (?, ?, ?, ?, ?)";
            tables.create("NVTX_EVENTS")?;
            tables.execute(sql, params![start, DOMAIN, text, process, number])?;
        }
        Ok(number)
    }
}

/// Global id of a thread, which is given a row.
fn global(thread: Thread, tables: &mut Tables<'_>) -> Result<Option<i64>> {
    let global = thread.map(|(pid, tid)| tables.thread(pid, tid));
    global.transpose()
}
