//! Calls of threads with their stacks, and the overhead of tracing.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use serde_json::Value;

use super::events::{Arguments, ChromeEventWriter};
use super::tracks::{TrackOwner, Tracks};
use crate::fold::with_place;
use gpuprobe_cuda::nsys::class;
pub(super) use gpuprobe_recording::memory_rows::CALLS;
use gpuprobe_recording::row::integer;
use gpuprobe_recording::{ChainFrame, Database, Resolver};

/// The table of the tracing overhead.
pub(super) const OVERHEAD: &str = "PROFILER_OVERHEAD";

/// Limit on stacks whose calls have not been read yet.
const MAX_STACKS: usize = 1 << 16;

/// Writes the calls of all threads.
pub(super) fn calls<W: Write>(
    database: &Database,
    resolver: &Resolver<'_>,
    tracks: &mut Tracks<'_>,
    events: &mut ChromeEventWriter<W>,
) -> Result<()> {
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
    // The row with the stack of a call begins with the call or a little earlier.
    let order = "ORDER BY start, eventClass = 67 DESC, \"end\" DESC";
    let rest = format!("{} {order}", database.each_call_once());
    let Some(mut statement) = database.select(CALLS, &columns, &rest)? else {
        return Ok(());
    };
    let mut stacks: HashMap<(i64, i64), i64> = HashMap::new();
    let mut rows = statement.query([]).map_err(|e| database.explain(e))?;
    let pass = database.pass("calls", &[CALLS]);
    while let Some(row) = rows.next().map_err(|e| database.explain(e))? {
        pass.step();
        let number = |index| integer(row, index);
        let (Some(start), Some(end), Some(thread)) = (number(0), number(1), number(3)) else {
            continue;
        };
        let correlation = number(4).unwrap_or(0);
        let key = (thread, correlation);
        if number(2) == Some(class::BACKTRACE) {
            if let Some(chain) = number(7).filter(|_| stacks.len() < MAX_STACKS) {
                stacks.insert(key, chain);
            }
            continue;
        }
        if end < start {
            continue;
        }
        let chain = number(7).or_else(|| stacks.get(&key).copied());
        stacks.remove(&key);
        let name = number(5).map(|id| resolver.string(id));
        let args = arguments(resolver, correlation, number(6), chain);
        let category = match number(2) {
            Some(class::DRIVER) => "driver",
            _ => "runtime",
        };
        let track = tracks.place_call(thread, (start, end));
        let name = name.as_deref().unwrap_or("?");
        events.slice((name, category), track, (start, end), args)?;
    }
    Ok(())
}

/// Result of a call, correlation id of its GPU work unless that is 0, and its stack.
fn arguments(
    resolver: &Resolver<'_>,
    correlation: i64,
    result: Option<i64>,
    chain: Option<i64>,
) -> Arguments {
    let mut args = Arguments::new();
    if correlation != 0 {
        args.insert("correlation".to_owned(), correlation.into());
    }
    args.insert("result".to_owned(), result.into());
    if let Some(chain) = chain {
        let frames = resolver.stack(chain);
        let frames = frames.iter().map(|frame| text(frame).into());
        args.insert("stack".to_owned(), Value::Array(frames.collect()));
    }
    args
}

/// A frame as `function (file)`; of Python, `function (file.py:41)`.
fn text(frame: &ChainFrame) -> String {
    match frame.language.is_python() {
        true => with_place(&frame.function, frame.file.as_deref(), frame.line),
        false => format!("{} ({})", frame.function, frame.module),
    }
}

/// Writes the overhead of tracing.
pub(super) fn overhead<W: Write>(
    database: &Database,
    resolver: &Resolver<'_>,
    tracks: &mut Tracks<'_>,
    events: &mut ChromeEventWriter<W>,
) -> Result<()> {
    let columns = ["start", "end", "globalTid", "nameId"];
    let order = "ORDER BY start, \"end\" DESC";
    let Some(mut statement) = database.select(OVERHEAD, &columns, order)? else {
        return Ok(());
    };
    let mut rows = statement.query([]).map_err(|e| database.explain(e))?;
    let pass = database.pass("overheads", &[OVERHEAD]);
    while let Some(row) = rows.next().map_err(|e| database.explain(e))? {
        pass.step();
        let number = |index| integer(row, index);
        if let (Some(start), Some(end), Some(thread)) = (number(0), number(1), number(2))
            && end >= start
        {
            let name = number(3).map(|id| resolver.string(id));
            let track = tracks.place(TrackOwner::Overhead(thread), (start, end));
            let name = name.as_deref().unwrap_or("?");
            events.slice((name, "overhead"), track, (start, end), Arguments::new())?;
        }
    }
    Ok(())
}
