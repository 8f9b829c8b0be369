//! NVTX marks and ranges.

use std::collections::HashMap;
use std::io::Write;
use std::rc::Rc;

use anyhow::Result;

use super::events::{Arguments, ChromeEventWriter};
use super::tracks::{TrackOwner, Tracks};
use gpuprobe_cuda::nsys::event_type::{DOMAIN, MARK, PUSH_POP, START_END};
use gpuprobe_recording::row::{integer, text};
use gpuprobe_recording::{Database, Resolver};

/// The table of NVTX marks and ranges.
pub(super) const NVTX: &str = "NVTX_EVENTS";

/// Writes NVTX marks and ranges.
pub(super) fn nvtx<W: Write>(
    database: &Database,
    resolver: &Resolver<'_>,
    tracks: &mut Tracks<'_>,
    events: &mut ChromeEventWriter<W>,
) -> Result<()> {
    let domains = domains(database)?;
    let columns = [
        "start",
        "end",
        "eventType",
        "globalTid",
        "text",
        "textId",
        "domainId",
    ];
    let order = "ORDER BY start, \"end\" DESC";
    let Some(mut statement) = database.select(NVTX, &columns, order)? else {
        return Ok(());
    };
    let mut rows = statement.query([]).map_err(|e| database.explain(e))?;
    let pass = database.pass("NVTX ranges", &[NVTX]);
    while let Some(row) = rows.next().map_err(|e| database.explain(e))? {
        pass.step();
        let number = |index| integer(row, index);
        let (Some(start), Some(kind), Some(thread)) = (number(0), number(2), number(3)) else {
            continue;
        };
        if !matches!(kind, MARK | PUSH_POP | START_END) {
            continue;
        }
        let registered = || number(5).map(|id| resolver.string(id));
        let name: Rc<str> = match text(row, 4) {
            Some(text) => text.into(),
            None => registered().unwrap_or_else(|| "?".into()),
        };
        let mut args = Arguments::new();
        if let Some(domain) = number(6).and_then(|id| domains.get(&id)) {
            args.insert("domain".to_owned(), domain.as_str().into());
        }
        let range = (start, number(1).filter(|&end| end >= start && kind != MARK));
        write(kind, &name, thread, range, args, tracks, events)?;
    }
    Ok(())
}

/// Writes a mark or range of a thread. One without an end is a moment.
fn write<W: Write>(
    kind: i64,
    name: &str,
    thread: i64,
    (start, end): (i64, Option<i64>),
    mut args: Arguments,
    tracks: &mut Tracks<'_>,
    events: &mut ChromeEventWriter<W>,
) -> Result<()> {
    let (named, of) = ((name, "nvtx"), TrackOwner::Marks(thread));
    match end {
        Some(end) if kind == PUSH_POP => {
            let track = tracks.place(of, (start, end));
            events.slice(named, track, (start, end), args)
        }
        Some(end) => {
            let track = tracks.place(of, (start, start));
            events.range(named, track, (start, end), args)
        }
        None => {
            if kind != MARK {
                args.insert("end".to_owned(), "not seen".into());
            }
            let track = tracks.place(of, (start, start));
            events.moment(named, track, start, args)
        }
    }
}

/// Names of domains by id.
fn domains(database: &Database) -> Result<HashMap<i64, String>> {
    let mut domains = HashMap::new();
    database.each(NVTX, &["eventType", "domainId", "text"], "", |row| {
        if let (Some(DOMAIN), Some(id), Some(name)) =
            (integer(row, 0), integer(row, 1), text(row, 2))
        {
            domains.insert(id, name);
        }
    })?;
    Ok(domains)
}
