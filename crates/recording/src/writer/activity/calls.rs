//! Rows of driver and runtime API calls: one for each call made by the program.
//!
//! Calls nested within the runtime are in a separate table of gpuprobe's.

use std::collections::HashMap;

use rusqlite::{Connection, Statement, params};

use super::names::FunctionIds;
use super::threads::{CallOverlap, Seen, Threads};
use crate::writer::common::RowContext;
use crate::writer::insert::Insert;
use gpuprobe_cuda::nsys::{class, domain, object};
use gpuprobe_wire as wire;

/// A call reported by CUPTI.
#[derive(Clone, Copy, Debug)]
pub(super) struct CuptiCall {
    pub(super) api: wire::Api,
    pub(super) function: FunctionIds,
}

/// Writer of API calls.
pub(super) struct ActivityCallWriter<'c> {
    connection: &'c Connection,
    insert: Insert<'c>,
    nested: Insert<'c>,
    update: Option<Statement<'c>>,
    pub(super) threads: Threads,
    /// Thread ids in the host's PID namespace, by (process, thread id in the process's own
    /// namespace).
    outer: HashMap<(u32, u32), u32>,
}

impl<'c> ActivityCallWriter<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        let into = |table| Insert::into(connection, table);
        Self {
            connection,
            insert: into("CUPTI_ACTIVITY_KIND_RUNTIME"),
            nested: into("GPUPROBE_NESTED"),
            update: None,
            threads: Threads::default(),
            outer: HashMap::new(),
        }
    }

    /// Process and thread id of an object; `None` if it is not a thread.
    pub(super) fn object(&self, pid: u32, object: wire::Object) -> Option<(u32, u32)> {
        let is_thread = object.kind == object::THREAD;
        is_thread.then(|| (pid, self.tid(pid, object.a, object.b).unwrap_or(object.b)))
    }

    /// Translates a thread id of a process to the host's PID namespace; `own_pid` is the process id
    /// in its own namespace.
    fn tid(&self, pid: u32, own_pid: u32, tid: u32) -> Option<u32> {
        if own_pid == pid {
            return Some(tid);
        }
        match self.outer.get(&(pid, tid)) {
            Some(outer) => Some(*outer),
            // The main thread has the id of the process.
            None if tid == own_pid => Some(pid),
            None => None,
        }
    }

    /// Writes a call of process `pid`. Returns CUPTI's correlation ids with their numbers in the
    /// recording, as far as known.
    pub(super) fn write(
        &mut self,
        pid: u32,
        call_of_cupti: &CuptiCall,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<Option<(u32, i64)>> {
        let (api, function) = (&call_of_cupti.api, call_of_cupti.function.plain);
        let times = (api.start_ns, api.end_ns.max(api.start_ns));
        let tid = match self.tid(pid, api.pid, api.tid) {
            Some(tid) => tid,
            None => match self.threads.thread_of(pid, function, times) {
                Some(tid) => {
                    self.outer.insert((pid, api.tid), tid);
                    tid
                }
                None => api.tid,
            },
        };
        let overlap = match times {
            // A call without times cannot be matched.
            (0, _) => return Ok(None),
            times => self.threads.overlap((pid, tid), function, times),
        };
        let thread = (pid, tid);
        let number = match overlap {
            CallOverlap::New => self.new_row(thread, call_of_cupti, common)?,
            CallOverlap::Same(start) => self.same(thread, start, call_of_cupti, common)?,
            CallOverlap::Within(start) => {
                let outer = self.threads.get(pid, tid, start).map(|outer| outer.number);
                let call = seen(call_of_cupti, 0, outer.unwrap_or(0));
                self.nest(thread, &call, common)?;
                outer
            }
            CallOverlap::Around(starts) => self.around(thread, &starts, call_of_cupti, common)?,
        };
        Ok(number
            .filter(|_| api.correlation != 0)
            .map(|number| (api.correlation, number)))
    }

    fn new_row(
        &mut self,
        (pid, tid): (u32, u32),
        call_of_cupti: &CuptiCall,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<Option<i64>> {
        let number = common.number();
        let mut call = seen(call_of_cupti, 0, number);
        let thread = common.thread(pid, tid)?;
        let (start, end) = (common.time(call.start_ns), common.time(call.end_ns));
        let chain: Option<i64> = None;
        self.insert.row(params![
            start,
            end,
            call.class,
            thread,
            number,
            call.name,
            call.result,
            chain
        ])?;
        call.row = self.connection.last_insert_rowid();
        self.threads.add(pid, tid, call);
        Ok(Some(number))
    }

    /// A call that was also seen by a probe: its row gets CUPTI's name and, unless other rows
    /// depend on its times, CUPTI's times.
    fn same(
        &mut self,
        (pid, tid): (u32, u32),
        start: u64,
        call_of_cupti: &CuptiCall,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<Option<i64>> {
        let Some(mut call) = self.threads.get(pid, tid, start).cloned() else {
            return Ok(None);
        };
        call.from_cupti = true;
        call.name = call_of_cupti.function.name;
        let mut shown = call.clone();
        if !call.has_rows {
            (shown.start_ns, shown.end_ns) = (call_of_cupti.api.start_ns, call_of_cupti.api.end_ns);
        }
        self.rewrite(&shown, common)?;
        if let Some(known) = self.threads.get(pid, tid, start) {
            *known = call.clone();
        }
        Ok(Some(call.number))
    }

    /// A call that contains calls with rows: the row of the most important one becomes the row of
    /// the outer call.
    fn around(
        &mut self,
        (pid, tid): (u32, u32),
        starts: &[u64],
        call_of_cupti: &CuptiCall,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<Option<i64>> {
        let inner: Vec<_> = starts
            .iter()
            .filter_map(|start| self.threads.remove(pid, tid, *start))
            .collect();
        let weight = |call: &&Seen| (call.allocates, call.has_rows, call.chain.is_some());
        // Of equal calls, the first.
        let Some(most) = inner.iter().rev().max_by_key(weight).cloned() else {
            return Ok(None);
        };
        let ends = inner.iter().map(|call| call.end_ns);
        let mut call = seen(call_of_cupti, most.row, most.number);
        call.start_ns = inner
            .iter()
            .map(|c| c.start_ns)
            .fold(call.start_ns, u64::min);
        call.end_ns = ends.fold(call.end_ns, u64::max);
        call.chain = most.chain;
        call.has_twin = most.has_twin;
        call.allocates = most.allocates;
        call.has_rows = most.has_rows;
        for mut other in inner {
            other.number = call.number;
            self.nest((pid, tid), &other, common)?;
            // Other tables refer to a call by its correlation id, so its row is kept.
            if other.row != call.row && !other.has_rows {
                let sql = "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE rowid = ?";
                self.connection.prepare_cached(sql)?.execute([other.row])?;
            }
        }
        self.rewrite(&call, common)?;
        self.twin((pid, tid), &mut call, call_of_cupti, common)?;
        let number = call.number;
        self.threads.add(pid, tid, call);
        Ok(Some(number))
    }

    /// Scripts for exports expect the call stack of a runtime allocation in a second row.
    fn twin(
        &mut self,
        (pid, tid): (u32, u32),
        call: &mut Seen,
        call_of_cupti: &CuptiCall,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        let is_wanted = call.class == class::RUNTIME && call.allocates && !call.has_twin;
        let Some(chain) = call.chain.filter(|_| is_wanted) else {
            return Ok(());
        };
        call.has_twin = true;
        let thread = common.thread(pid, tid)?;
        let (start, end) = (common.time(call.start_ns), common.time(call.end_ns));
        self.insert.row(params![
            start,
            end,
            class::BACKTRACE,
            thread,
            call.number,
            call_of_cupti.function.plain,
            call.result,
            chain
        ])
    }

    fn rewrite(&mut self, call: &Seen, common: &mut RowContext<'c>) -> rusqlite::Result<()> {
        let (start, end) = (common.time(call.start_ns), common.time(call.end_ns));
        if self.update.is_none() {
            let sql = "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = ?2, \"end\" = ?3, \
                       eventClass = ?4, nameId = ?5, returnValue = ?6 WHERE rowid = ?1";
            self.update = Some(self.connection.prepare(sql)?);
        }
        let values = params![call.row, start, end, call.class, call.name, call.result];
        match &mut self.update {
            Some(update) => update.execute(values).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Writes a call nested in the call with the same number.
    fn nest(
        &mut self,
        (pid, tid): (u32, u32),
        call: &Seen,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        let thread = common.thread(pid, tid)?;
        let (start, end) = (common.time(call.start_ns), common.time(call.end_ns));
        self.nested.row(params![
            call.number,
            start,
            end,
            call.class,
            thread,
            call.name,
            call.result,
            call.chain
        ])
    }
}

fn seen(call_of_cupti: &CuptiCall, row: i64, number: i64) -> Seen {
    let (api, function) = (&call_of_cupti.api, call_of_cupti.function);
    let class = match api.domain {
        domain::RUNTIME => class::RUNTIME,
        _ => class::DRIVER,
    };
    Seen {
        start_ns: api.start_ns,
        end_ns: api.end_ns.max(api.start_ns),
        row,
        number,
        name: function.name,
        function: function.plain,
        class,
        // Error codes are small, as in the probes' records.
        result: i64::from(api.result.cast_signed()),
        chain: None,
        has_twin: false,
        allocates: false,
        has_rows: false,
        from_cupti: true,
    }
}
