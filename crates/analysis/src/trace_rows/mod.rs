//! The rows of a trace over time, of a recording or an Nsight Systems export: calls of threads with
//! their stacks, GPU work on its streams, NVTX ranges, and live memory.

mod tracks;
mod work;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use anyhow::{Result, bail};
use rusqlite::{Row, Statement};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{File, MemoryChange, first_ns};
use gpuprobe_cuda::Belongs;
use gpuprobe_cuda::nsys::class;
use gpuprobe_cuda::nsys::event_type::{MARK, PUSH_POP, START_END};
use gpuprobe_model::stack::Frame;
use gpuprobe_recording::gpu_rows::nvtx_domains;
use gpuprobe_recording::memory_rows::{CALLS, MEMORY};
use gpuprobe_recording::row::{integer, text};
use gpuprobe_recording::{Database, Resolver, ids};
use gpuprobe_report::fold;
use tracks::{TrackOwner, Tracks};
use work::insert;

const NVTX: &str = "NVTX_EVENTS";
const OVERHEAD: &str = "PROFILER_OVERHEAD";

/// Limit on stacks whose calls have not been read yet.
const MAX_STACKS: usize = 1 << 16;

/// Arguments of a row, shown in its details.
type Arguments = Map<String, Value>;

/// Where a row is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Track {
    /// A process, or a group that the viewer shows like one.
    pid: u64,
    /// A thread, or a stream shown like one.
    tid: u64,
}

/// A row of a trace, in the terms of Chrome's Trace Event Format. Its times are nanoseconds; the
/// format has microseconds.
#[derive(Debug, Default, Serialize)]
pub struct TraceRow<'a> {
    name: &'a str,
    cat: &'a str,
    ph: &'a str,
    pid: u64,
    tid: u64,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'a str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    args: Arguments,
}

fn microseconds(ns: i64) -> f64 {
    ns as f64 / 1000.0
}

impl<'a> TraceRow<'a> {
    fn new(name: &'a str, cat: &'a str, ph: &'a str, track: Track, ns: i64) -> Self {
        Self {
            name,
            cat,
            ph,
            pid: track.pid,
            tid: track.tid,
            ts: microseconds(ns),
            ..Self::default()
        }
    }
}

type Write<'a> = dyn FnMut(&TraceRow<'_>) -> Result<()> + 'a;

/// Something that took time, or a moment.
struct Span {
    owner: TrackOwner,
    name: Arc<str>,
    category: &'static str,
    start: i64,
    /// `None` for a moment.
    end: Option<i64>,
    /// Whether it need not nest in others of its owner.
    is_async: bool,
    args: Arguments,
    /// Thread and start of the call that caused it.
    call: Option<(i64, i64)>,
}

impl Span {
    fn new(owner: TrackOwner, name: Arc<str>, category: &'static str, start: i64) -> Self {
        Self {
            owner,
            name,
            category,
            start,
            end: None,
            is_async: false,
            args: Arguments::new(),
            call: None,
        }
    }
}

/// What `file` is of.
///
/// # Errors
///
/// It has nothing to show.
pub fn about(file: &File) -> Result<Value> {
    let tables = work::TABLES.iter().map(|(table, ..)| table.name);
    let mut tables = tables.chain([CALLS, MEMORY, NVTX, OVERHEAD]);
    if !tables.any(|name| file.database.has_table(name)) {
        bail!(
            "{} has no calls, no GPU work and no memory events: nothing to show over time",
            file.database.path().display()
        );
    }
    let session = &file.session;
    Ok(serde_json::json!({
        "exporter": concat!("gpuprobe ", env!("CARGO_PKG_VERSION")),
        "recorded_by": session.product,
        "version": session.version,
        "command": session.command,
        "start_epoch_ns": session.start_epoch_ns.map(|ns| ns.to_string()),
        "lost": session.lost,
    }))
}

/// Passes the rows to `write`, table by table.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or if `write` fails.
pub fn each(file: &File, write: &mut Write<'_>) -> Result<()> {
    let database = &file.database;
    let resolver = Resolver::new(database)?;
    let mut reader = Reader {
        database,
        tracks: Tracks::new(database, &file.session, &resolver)?,
        resolver,
        id: 0,
        write,
    };
    reader.calls()?;
    reader.overhead()?;
    reader.work()?;
    reader.nvtx()?;
    if database.has_table(MEMORY) {
        reader.memory(file)?;
    }
    reader.tracks.describe(reader.write)
}

struct Reader<'a, 'w> {
    database: &'a Database,
    resolver: Resolver<'a>,
    tracks: Tracks<'a>,
    /// The last id used for an arrow or a range.
    id: u64,
    write: &'a mut Write<'w>,
}

impl Reader<'_, '_> {
    fn name(&self, id: Option<i64>) -> Arc<str> {
        id.map_or_else(|| "?".into(), |id| self.resolver.string(id))
    }

    /// Writes what `take` makes of the rows of a query, in a pass of `tables`, which contain `what`.
    fn each(
        &mut self,
        statement: Option<Statement<'_>>,
        (what, tables): (&'static str, &[&str]),
        mut take: impl FnMut(&Self, &Row<'_>) -> Option<Span>,
    ) -> Result<()> {
        let Some(mut statement) = statement else {
            return Ok(());
        };
        let database = self.database;
        let mut rows = statement.query([]).map_err(|e| database.explain(e))?;
        let pass = database.pass(what, tables);
        while let Some(row) = rows.next().map_err(|e| database.explain(e))? {
            pass.step();
            let span = take(self, row);
            if let Some(span) = span.filter(|span| span.end.is_none_or(|end| end >= span.start)) {
                self.span(span)?;
            }
        }
        Ok(())
    }

    fn span(&mut self, span: Span) -> Result<()> {
        let (name, category, start) = (&*span.name, span.category, span.start);
        let last = span.end.filter(|_| !span.is_async).unwrap_or(start);
        let track = self.tracks.place(span.owner, (start, last));
        let row = |ph, ns| TraceRow::new(name, category, ph, track, ns);
        let duration = |end: i64| microseconds(end.saturating_sub(start));
        let (ph, s, dur) = match span.end {
            None => ("i", Some("t"), None),
            Some(_) if span.is_async => ("b", None, None),
            Some(end) => ("X", None, Some(duration(end))),
        };
        let id = (ph == "b").then_some(self.id + 1);
        self.id = id.unwrap_or(self.id);
        (self.write)(&TraceRow {
            s,
            dur,
            id,
            args: span.args,
            ..row(ph, start)
        })?;
        if let (Some(end), Some(_)) = (span.end, id) {
            (self.write)(&TraceRow {
                id,
                ..row("e", end)
            })?;
        }
        if let Some((thread, called)) = span.call {
            self.id += 1;
            let id = Some(self.id);
            let from = self.tracks.of_call(thread, called);
            for (ph, bp, at, ns) in [("s", None, from, called), ("f", Some("e"), track, start)] {
                let flow = TraceRow::new("launch", "flow", ph, at, ns);
                (self.write)(&TraceRow { id, bp, ..flow })?;
            }
        }
        Ok(())
    }

    /// Calls of all threads.
    fn calls(&mut self) -> Result<()> {
        let columns =
            "start, end, eventClass, globalTid, correlationId, nameId, returnValue, callchainId";
        let database = self.database;
        // The row with the stack of a call begins with the call or a little earlier.
        let order = "ORDER BY start, eventClass = 67 DESC, \"end\" DESC";
        let rest = format!("{} {order}", database.each_call_once());
        let rows = database.select(CALLS, columns, &rest)?;
        let mut stacks: HashMap<(i64, i64), i64> = HashMap::new();
        self.each(rows, ("calls", &[CALLS]), |reader, row| {
            let number = |index| integer(row, index);
            let (start, end, thread) = (number(0)?, number(1)?, number(3)?);
            let correlation = number(4).unwrap_or(0);
            let key = (thread, correlation);
            if number(2) == Some(class::BACKTRACE) {
                let chain = number(7).filter(|_| stacks.len() < MAX_STACKS);
                stacks.extend(chain.map(|chain| (key, chain)));
                return None;
            }
            let apart = (end >= start).then(|| stacks.remove(&key)).flatten();
            let mut args = Arguments::new();
            let is_known = correlation != 0;
            insert(&mut args, "correlation", is_known.then_some(correlation));
            args.insert("result".to_owned(), number(6).into());
            if let Some(chain) = number(7).or(apart) {
                let frames = reader.resolver.stack(chain);
                let frames = frames.iter().map(|frame| frame_text(frame).into());
                args.insert("stack".to_owned(), Value::Array(frames.collect()));
            }
            let category = match number(2) {
                Some(class::DRIVER) => "driver",
                _ => "runtime",
            };
            let name = reader.name(number(5));
            Some(Span {
                end: Some(end),
                args,
                ..Span::new(TrackOwner::Thread(thread, true), name, category, start)
            })
        })
    }

    /// The overhead of tracing.
    fn overhead(&mut self) -> Result<()> {
        let columns = "start, end, globalTid, nameId";
        let order = "ORDER BY start, \"end\" DESC";
        let database = self.database;
        let rows = database.select(OVERHEAD, columns, order)?;
        self.each(rows, ("overheads", &[OVERHEAD]), |reader, row| {
            let number = |index| integer(row, index);
            let (start, end) = (number(0)?, number(1)?);
            let (owner, name) = (TrackOwner::Overhead(number(2)?), reader.name(number(3)));
            Some(Span {
                end: Some(end),
                ..Span::new(owner, name, "overhead", start)
            })
        })
    }

    /// NVTX marks and ranges. A range without an end is a moment.
    fn nvtx(&mut self) -> Result<()> {
        let columns = "start, end, eventType, globalTid, text, textId, domainId";
        let database = self.database;
        let domains = nvtx_domains(database, &self.resolver)?;
        let rows = database.select(NVTX, columns, "ORDER BY start, \"end\" DESC")?;
        self.each(rows, ("NVTX ranges", &[NVTX]), |reader, row| {
            let number = |index| integer(row, index);
            let (start, kind, thread) = (number(0)?, number(2)?, number(3)?);
            if !matches!(kind, MARK | PUSH_POP | START_END) {
                return None;
            }
            let mut args = Arguments::new();
            let domain = number(6).and_then(|id| domains.get(&(ids::pid(thread), id)));
            insert(&mut args, "domain", domain.map(|domain| &**domain));
            let end = number(1).filter(|&end| end >= start && kind != MARK);
            if kind != MARK && end.is_none() {
                args.insert("end".to_owned(), "not seen".into());
            }
            let name = text(row, 4).map_or_else(|| reader.name(number(5)), Arc::from);
            Some(Span {
                end,
                is_async: kind != PUSH_POP,
                args,
                ..Span::new(TrackOwner::Thread(thread, false), name, "nvtx", start)
            })
        })
    }

    /// The memory of each process on each device, and pinned host memory.
    fn memory(&mut self, file: &File) -> Result<()> {
        let first_ns = first_ns(self.database)?.unwrap_or(0);
        // By track, and device or host.
        let mut live: HashMap<(u64, Option<i64>), u64> = HashMap::new();
        let mut enter = |change: &MemoryChange<'_>| {
            let pid = change.process.pid;
            let mut changed = BTreeSet::new();
            let freed = change.freed.iter().map(|one| (one, false));
            for (one, is_new) in freed.chain(change.allocated.iter().map(|one| (one, true))) {
                let counter = match one.belongs() {
                    Belongs::Host => (pid.into(), None),
                    _ => {
                        let device = one.device().map_or(0, i64::from);
                        let track = self.tracks.group(ids::global_pid(pid), device);
                        (track, Some(device))
                    }
                };
                let live = live.entry(counter).or_default();
                *live = match is_new {
                    true => live.saturating_add(one.size_bytes),
                    false => live.saturating_sub(one.size_bytes),
                };
                changed.insert(counter);
            }
            for (pid, device) in changed {
                let name = match device {
                    Some(device) => format!("memory on gpu_{device}"),
                    None => "page-locked memory of the host".to_owned(),
                };
                let bytes = live.get(&(pid, device)).copied().unwrap_or(0);
                let time_ns = first_ns.saturating_add(change.time_ns);
                (self.write)(&TraceRow {
                    args: Map::from_iter([("bytes".to_owned(), bytes.into())]),
                    ..TraceRow::new(&name, "memory", "C", Track { pid, tid: 0 }, time_ns)
                })?;
            }
            Ok(())
        };
        file.listen(&mut enter).map(drop)
    }
}

/// A frame as `function (file)`; of Python, `function (file.py:41)`.
fn frame_text(frame: &Frame) -> String {
    match frame.language.is_python() {
        true => fold::text(frame),
        false => format!("{} ({})", frame.function, frame.module),
    }
}
