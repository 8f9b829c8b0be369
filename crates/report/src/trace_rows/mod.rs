//! The rows of a trace over time, of a recording or an Nsight Systems export: calls of threads with
//! their stacks, GPU work on its streams, NVTX ranges, and live memory.

mod tracks;
mod work;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use rusqlite::{Row, Statement};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::analysis::{Filter, MemoryChange, Played, first_ns};
use crate::fold::with_place;
use gpuprobe_cuda::Belongs;
use gpuprobe_cuda::nsys::class;
use gpuprobe_cuda::nsys::event_type::{DOMAIN, MARK, PUSH_POP, START_END};
use gpuprobe_engine::Allocation;
use gpuprobe_model::stack::Frame;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_recording::memory_rows::{CALLS, MEMORY};
use gpuprobe_recording::row::{integer, text};
use gpuprobe_recording::{Database, Resolver, Session, ids};
use tracks::{TrackOwner, Tracks};

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

/// A file with rows of a trace.
pub struct TraceRows {
    database: Database,
    session: Session,
}

impl TraceRows {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or has nothing to show.
    pub fn open(file: &Path, progress: &SharedProgress) -> Result<Self> {
        let database = Database::open_with(file, progress)?;
        let mut tables = work::TABLES.iter().map(|(table, ..)| table.name);
        let others = [CALLS, MEMORY, NVTX, OVERHEAD];
        if !tables.any(|name| database.has_table(name))
            && !others.iter().any(|name| database.has_table(name))
        {
            bail!(
                "{} has no calls, no GPU work and no memory events: nothing to show over time",
                file.display()
            );
        }
        let session = Session::read(&database)?;
        Ok(Self { database, session })
    }

    /// What the file is of.
    pub fn about(&self) -> Value {
        let session = &self.session;
        serde_json::json!({
            "exporter": concat!("gpuprobe ", env!("CARGO_PKG_VERSION")),
            "recorded_by": session.product,
            "version": session.version,
            "command": session.command,
            "start_epoch_ns": session.start_epoch_ns.map(|ns| ns.to_string()),
            "lost": session.lost,
        })
    }

    /// Passes the rows to `write`, table by table.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if `write` fails.
    pub fn each(&self, write: &mut Write<'_>) -> Result<()> {
        let resolver = Resolver::new(&self.database)?;
        let mut reader = Reader {
            database: &self.database,
            tracks: Tracks::new(&self.database, &self.session, &resolver)?,
            resolver,
            id: 0,
            write,
        };
        reader.calls()?;
        reader.overhead()?;
        reader.work()?;
        reader.nvtx()?;
        if self.database.has_table(MEMORY) {
            reader.memory(&self.session)?;
        }
        reader.tracks.describe(reader.write)
    }
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
        let columns = [
            "start",
            "end",
            "eventClass",
            "globalTid",
            "correlationId",
            "nameId",
            "returnValue",
            "callchainId",
        ];
        let database = self.database;
        // The row with the stack of a call begins with the call or a little earlier.
        let order = "ORDER BY start, eventClass = 67 DESC, \"end\" DESC";
        let rest = format!("{} {order}", database.each_call_once());
        let rows = database.select(CALLS, &columns, &rest)?;
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
            if correlation != 0 {
                args.insert("correlation".to_owned(), correlation.into());
            }
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
                ..Span::new(TrackOwner::Thread(thread), name, category, start)
            })
        })
    }

    /// The overhead of tracing.
    fn overhead(&mut self) -> Result<()> {
        let columns = ["start", "end", "globalTid", "nameId"];
        let order = "ORDER BY start, \"end\" DESC";
        let database = self.database;
        let rows = database.select(OVERHEAD, &columns, order)?;
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
        let columns = [
            "start",
            "end",
            "eventType",
            "globalTid",
            "text",
            "textId",
            "domainId",
        ];
        let database = self.database;
        let mut domains = HashMap::new();
        database.each(NVTX, &["eventType", "domainId", "text"], "", |row| {
            let named = integer(row, 1).zip(text(row, 2));
            domains.extend(named.filter(|_| integer(row, 0) == Some(DOMAIN)));
        })?;
        let rows = database.select(NVTX, &columns, "ORDER BY start, \"end\" DESC")?;
        self.each(rows, ("NVTX ranges", &[NVTX]), |reader, row| {
            let number = |index| integer(row, index);
            let (start, kind, thread) = (number(0)?, number(2)?, number(3)?);
            if !matches!(kind, MARK | PUSH_POP | START_END) {
                return None;
            }
            let mut args = Arguments::new();
            if let Some(domain) = number(6).and_then(|id| domains.get(&id)) {
                args.insert("domain".to_owned(), domain.as_str().into());
            }
            let end = number(1).filter(|&end| end >= start && kind != MARK);
            if kind != MARK && end.is_none() {
                args.insert("end".to_owned(), "not seen".into());
            }
            let name = text(row, 4).map_or_else(|| reader.name(number(5)), Arc::from);
            Some(Span {
                end,
                is_async: kind != PUSH_POP,
                args,
                ..Span::new(TrackOwner::Marks(thread), name, "nvtx", start)
            })
        })
    }

    /// The memory of each process on each device, and pinned host memory.
    fn memory(&mut self, session: &Session) -> Result<()> {
        let filter = Filter {
            host: true,
            ..Filter::default()
        };
        let first_ns = first_ns(self.database)?.unwrap_or(0);
        let mut live: HashMap<(i64, Option<i64>), u64> = HashMap::new();
        let mut enter = |change: &MemoryChange<'_>| {
            let process = ids::global_pid(change.process.pid);
            let key = |one: &Allocation| {
                let device = one.device().map_or(0, i64::from);
                let is_host = one.belongs() == Belongs::Host;
                (process, (!is_host).then_some(device))
            };
            for gone in change.freed {
                let live = live.entry(key(gone)).or_default();
                *live = live.saturating_sub(gone.size_bytes);
            }
            if let Some(new) = &change.allocated {
                let live = live.entry(key(new)).or_default();
                *live = live.saturating_add(new.size_bytes);
            }
            let changed: BTreeSet<_> = change.parts().map(key).collect();
            for (process, device) in changed {
                let (name, pid) = match device {
                    Some(device) => (
                        format!("memory on gpu_{device}"),
                        self.tracks.group(process, device),
                    ),
                    None => (
                        "page-locked memory of the host".to_owned(),
                        u64::from(ids::pid(process)),
                    ),
                };
                let bytes = live.get(&(process, device)).copied();
                let time_ns = first_ns.saturating_add(change.time_ns);
                let track = Track { pid, tid: 0 };
                (self.write)(&TraceRow {
                    args: Map::from_iter([("bytes".to_owned(), bytes.unwrap_or(0).into())]),
                    ..TraceRow::new(&name, "memory", "C", track, time_ns)
                })?;
            }
            Ok(())
        };
        Played::read(self.database, session, &filter, &mut enter).map(drop)
    }
}

/// A frame as `function (file)`; of Python, `function (file.py:41)`.
fn frame_text(frame: &Frame) -> String {
    match frame.language.is_python() {
        true => with_place(&frame.function, frame.file.as_deref(), frame.line),
        false => format!("{} ({})", frame.function, frame.module),
    }
}
