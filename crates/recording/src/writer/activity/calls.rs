//! Calls of the driver and the runtime: one row for each that a program made.
//!
//! What the runtime calls within itself is no row among the calls; it is entered in a table of ours.

use std::collections::HashMap;

use rusqlite::{Connection, Statement, params};

use super::names::Function;
use super::threads::{Seen, Standing, Threads};
use crate::writer::common::Common;
use crate::writer::insert::Insert;
use gpuprobe_cuda::nsys::{class, domain, object};
use gpuprobe_wire as wire;

/// A call that CUPTI told of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) api: wire::Api,
    pub(super) function: Function,
}

/// Writes calls.
pub(super) struct Calls<'c> {
    connection: &'c Connection,
    insert: Insert<'c>,
    nested: Insert<'c>,
    update: Option<Statement<'c>>,
    pub(super) threads: Threads,
    /// Of processes in a namespace of their own: threads by the ids that they have there.
    outer: HashMap<(u32, u32), u32>,
}

impl<'c> Calls<'c> {
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

    /// The thread that an object is, if it is one.
    pub(super) fn object(&self, pid: u32, object: wire::Object) -> Option<(u32, u32)> {
        let is_thread = object.kind == object::THREAD;
        is_thread.then(|| (pid, self.tid(pid, object.a, object.b).unwrap_or(object.b)))
    }

    /// The thread that a process calls `tid`, and itself `own_pid`.
    fn tid(&self, pid: u32, own_pid: u32, tid: u32) -> Option<u32> {
        if own_pid == pid {
            return Some(tid);
        }
        match self.outer.get(&(pid, tid)) {
            Some(outer) => Some(*outer),
            // The first thread of a process has the process's id.
            None if tid == own_pid => Some(pid),
            None => None,
        }
    }

    /// Writes a call of process `pid`. Returns what is known now: CUPTI's ids and numbers.
    pub(super) fn write(
        &mut self,
        pid: u32,
        told: &Told,
        common: &mut Common<'c>,
    ) -> rusqlite::Result<Option<(u32, i64)>> {
        let (api, function) = (&told.api, told.function.plain);
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
        let standing = match times {
            // Without times, nothing can be told of it.
            (0, _) => return Ok(None),
            times => self.threads.standing((pid, tid), function, times),
        };
        let thread = (pid, tid);
        let number = match standing {
            Standing::New => self.new_row(thread, told, common)?,
            Standing::Same(start) => self.same(thread, start, told, common)?,
            Standing::Within(start) => {
                let outer = self.threads.get(pid, tid, start).map(|outer| outer.number);
                let call = seen(told, 0, outer.unwrap_or(0));
                self.nest(thread, &call, common)?;
                outer
            }
            Standing::Around(starts) => self.around(thread, &starts, told, common)?,
        };
        Ok(number
            .filter(|_| api.correlation != 0)
            .map(|number| (api.correlation, number)))
    }

    fn new_row(
        &mut self,
        (pid, tid): (u32, u32),
        told: &Told,
        common: &mut Common<'c>,
    ) -> rusqlite::Result<Option<i64>> {
        let number = common.number();
        let mut call = seen(told, 0, number);
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

    /// A probe saw this call, too: its row gets CUPTI's name and, where nothing else has its times,
    /// those of CUPTI.
    fn same(
        &mut self,
        (pid, tid): (u32, u32),
        start: u64,
        told: &Told,
        common: &mut Common<'c>,
    ) -> rusqlite::Result<Option<i64>> {
        let Some(mut call) = self.threads.get(pid, tid, start).cloned() else {
            return Ok(None);
        };
        call.is_told = true;
        call.name = told.function.name;
        let mut shown = call.clone();
        if !call.has_rows {
            (shown.start_ns, shown.end_ns) = (told.api.start_ns, told.api.end_ns);
        }
        self.rewrite(&shown, common)?;
        if let Some(known) = self.threads.get(pid, tid, start) {
            *known = call.clone();
        }
        Ok(Some(call.number))
    }

    /// This call made others that have rows: that of the one which did most becomes its own.
    fn around(
        &mut self,
        (pid, tid): (u32, u32),
        starts: &[u64],
        told: &Told,
        common: &mut Common<'c>,
    ) -> rusqlite::Result<Option<i64>> {
        let inner: Vec<_> = starts
            .iter()
            .filter_map(|start| self.threads.remove(pid, tid, *start))
            .collect();
        let weight = |call: &&Seen| (call.allocates, call.has_rows, call.chain.is_some());
        // Of equals, the first.
        let Some(most) = inner.iter().rev().max_by_key(weight).cloned() else {
            return Ok(None);
        };
        let ends = inner.iter().map(|call| call.end_ns);
        let mut call = seen(told, most.row, most.number);
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
            // What other tables say about a call, they say by its number: its row stays.
            if other.row != call.row && !other.has_rows {
                let sql = "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE rowid = ?";
                self.connection.prepare_cached(sql)?.execute([other.row])?;
            }
        }
        self.rewrite(&call, common)?;
        self.twin((pid, tid), &mut call, told, common)?;
        let number = call.number;
        self.threads.add(pid, tid, call);
        Ok(Some(number))
    }

    /// Scripts for exports look for the stack of an allocation through the runtime at a second row.
    fn twin(
        &mut self,
        (pid, tid): (u32, u32),
        call: &mut Seen,
        told: &Told,
        common: &mut Common<'c>,
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
            told.function.plain,
            call.result,
            chain
        ])
    }

    fn rewrite(&mut self, call: &Seen, common: &mut Common<'c>) -> rusqlite::Result<()> {
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

    /// A call that was made within that with the same number.
    fn nest(
        &mut self,
        (pid, tid): (u32, u32),
        call: &Seen,
        common: &mut Common<'c>,
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

fn seen(told: &Told, row: i64, number: i64) -> Seen {
    let (api, function) = (&told.api, told.function);
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
        // Error codes are small; as the probes have them.
        result: i64::from(api.result.cast_signed()),
        chain: None,
        has_twin: false,
        allocates: false,
        has_rows: false,
        is_told: true,
    }
}
