//! Events in the Trace Event Format of Chrome.

use std::io::{self, Write};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Map, Value};

use gpuprobe_recording::Session;

/// Track on which an event is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Track {
    /// A process, or a group that the viewer shows like one.
    pub(super) pid: u64,
    /// A thread, or a stream shown like one.
    pub(super) tid: u64,
}

/// Arguments of an event, shown in its details.
pub(super) type Arguments = Map<String, Value>;

/// One event. Its times are nanoseconds; the format has microseconds.
#[derive(Serialize)]
struct ChromeEvent<'a> {
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

/// Writes events to `out`.
pub(super) struct ChromeEventWriter<W> {
    out: W,
    is_first: bool,
    /// The last id used for an arrow or a range.
    id: u64,
}

fn microseconds(ns: i64) -> f64 {
    ns as f64 / 1000.0
}

impl<W: Write> ChromeEventWriter<W> {
    /// Begins a trace, with the metadata of `session`.
    pub(super) fn begin(mut out: W, session: &Session) -> Result<Self> {
        let about = serde_json::json!({
            "exporter": concat!("gpuprobe ", env!("CARGO_PKG_VERSION")),
            "recorded_by": session.product,
            "version": session.version,
            "command": session.command,
            "start_epoch_ns": session.start_epoch_ns.map(|ns| ns.to_string()),
            "lost": session.lost,
        });
        write!(out, "{{\"otherData\":{about},\"traceEvents\":[").context("cannot write")?;
        Ok(Self {
            out,
            is_first: true,
            id: 0,
        })
    }

    fn write(&mut self, event: &ChromeEvent<'_>) -> Result<()> {
        let separator: &[u8] = if self.is_first { b"\n" } else { b",\n" };
        self.is_first = false;
        self.out
            .write_all(separator)
            .and_then(|()| serde_json::to_writer(&mut self.out, event).map_err(io::Error::from))
            .context("cannot write")
    }

    fn plain<'a>(
        name: &'a str,
        cat: &'a str,
        ph: &'a str,
        track: Track,
        ns: i64,
    ) -> ChromeEvent<'a> {
        ChromeEvent {
            name,
            cat,
            ph,
            pid: track.pid,
            tid: track.tid,
            ts: microseconds(ns),
            dur: None,
            id: None,
            bp: None,
            s: None,
            args: Map::new(),
        }
    }

    /// Writes an event with a duration.
    pub(super) fn slice(
        &mut self,
        (name, category): (&str, &str),
        track: Track,
        (start, end): (i64, i64),
        args: Arguments,
    ) -> Result<()> {
        self.write(&ChromeEvent {
            dur: Some(microseconds(end.saturating_sub(start))),
            args,
            ..Self::plain(name, category, "X", track, start)
        })
    }

    /// Writes an instant event.
    pub(super) fn moment(
        &mut self,
        (name, category): (&str, &str),
        track: Track,
        ns: i64,
        args: Arguments,
    ) -> Result<()> {
        self.write(&ChromeEvent {
            s: Some("t"),
            args,
            ..Self::plain(name, category, "i", track, ns)
        })
    }

    /// Writes a range that need not nest with others.
    pub(super) fn range(
        &mut self,
        (name, category): (&str, &str),
        track: Track,
        (start, end): (i64, i64),
        args: Arguments,
    ) -> Result<()> {
        self.id += 1;
        let id = Some(self.id);
        self.write(&ChromeEvent {
            id,
            args,
            ..Self::plain(name, category, "b", track, start)
        })?;
        self.write(&ChromeEvent {
            id,
            ..Self::plain(name, category, "e", track, end)
        })
    }

    /// Writes an arrow between the events that begin at two points.
    pub(super) fn arrow(&mut self, from: (Track, i64), to: (Track, i64)) -> Result<()> {
        self.id += 1;
        let id = Some(self.id);
        let (name, category) = ("launch", "flow");
        self.write(&ChromeEvent {
            id,
            ..Self::plain(name, category, "s", from.0, from.1)
        })?;
        self.write(&ChromeEvent {
            id,
            bp: Some("e"),
            ..Self::plain(name, category, "f", to.0, to.1)
        })
    }

    /// Writes a counter that has `value` from `ns` on.
    pub(super) fn counter(&mut self, name: &str, pid: u64, ns: i64, value: u64) -> Result<()> {
        let mut args = Map::new();
        args.insert("bytes".to_owned(), value.into());
        let track = Track { pid, tid: 0 };
        self.write(&ChromeEvent {
            args,
            ..Self::plain(name, "memory", "C", track, ns)
        })
    }

    /// Writes the name or the position of a process or thread.
    pub(super) fn describe(
        &mut self,
        what: &str,
        track: Track,
        key: &str,
        value: Value,
    ) -> Result<()> {
        let mut args = Map::new();
        args.insert(key.to_owned(), value);
        self.write(&ChromeEvent {
            args,
            ..Self::plain(what, "__metadata", "M", track, 0)
        })
    }

    /// Ends the trace, which is then valid JSON.
    pub(super) fn finish(mut self) -> Result<()> {
        write!(self.out, "\n]}}\n")
            .and_then(|()| self.out.flush())
            .context("cannot write")
    }
}
