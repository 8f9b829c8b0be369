//! Events as Chrome's tracing has them.

use std::io::{self, Write};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Map, Value};

use gpuprobe_recording::Session;

/// Where an event is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Track {
    /// A process, or what a viewer is to show like one.
    pub(super) pid: u64,
    /// Likewise a thread.
    pub(super) tid: u64,
}

/// Further values of an event.
pub(super) type Arguments = Map<String, Value>;

/// One event. Times are nanoseconds; the format has microseconds.
#[derive(Serialize)]
struct Event<'a> {
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

/// Writes events.
pub(super) struct Events<W> {
    out: W,
    is_first: bool,
    /// The last id of an arrow or of a range.
    id: u64,
}

fn microseconds(ns: i64) -> f64 {
    ns as f64 / 1000.0
}

impl<W: Write> Events<W> {
    /// Begins a trace.
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

    fn write(&mut self, event: &Event<'_>) -> Result<()> {
        let separator: &[u8] = if self.is_first { b"\n" } else { b",\n" };
        self.is_first = false;
        self.out
            .write_all(separator)
            .and_then(|()| serde_json::to_writer(&mut self.out, event).map_err(io::Error::from))
            .context("cannot write")
    }

    fn plain<'a>(name: &'a str, cat: &'a str, ph: &'a str, track: Track, ns: i64) -> Event<'a> {
        Event {
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

    /// Something that took time.
    pub(super) fn slice(
        &mut self,
        (name, category): (&str, &str),
        track: Track,
        (start, end): (i64, i64),
        args: Arguments,
    ) -> Result<()> {
        self.write(&Event {
            dur: Some(microseconds(end.saturating_sub(start))),
            args,
            ..Self::plain(name, category, "X", track, start)
        })
    }

    /// A moment.
    pub(super) fn moment(
        &mut self,
        (name, category): (&str, &str),
        track: Track,
        ns: i64,
        args: Arguments,
    ) -> Result<()> {
        self.write(&Event {
            s: Some("t"),
            args,
            ..Self::plain(name, category, "i", track, ns)
        })
    }

    /// A range that need not nest with others.
    pub(super) fn range(
        &mut self,
        (name, category): (&str, &str),
        track: Track,
        (start, end): (i64, i64),
        args: Arguments,
    ) -> Result<()> {
        self.id += 1;
        let id = Some(self.id);
        self.write(&Event {
            id,
            args,
            ..Self::plain(name, category, "b", track, start)
        })?;
        self.write(&Event {
            id,
            ..Self::plain(name, category, "e", track, end)
        })
    }

    /// An arrow from what begins at one place to what begins at another.
    pub(super) fn arrow(&mut self, from: (Track, i64), to: (Track, i64)) -> Result<()> {
        self.id += 1;
        let id = Some(self.id);
        let (name, category) = ("launch", "flow");
        self.write(&Event {
            id,
            ..Self::plain(name, category, "s", from.0, from.1)
        })?;
        self.write(&Event {
            id,
            bp: Some("e"),
            ..Self::plain(name, category, "f", to.0, to.1)
        })
    }

    /// A value from now on.
    pub(super) fn counter(&mut self, name: &str, pid: u64, ns: i64, value: u64) -> Result<()> {
        let mut args = Map::new();
        args.insert("bytes".to_owned(), value.into());
        let track = Track { pid, tid: 0 };
        self.write(&Event {
            args,
            ..Self::plain(name, "memory", "C", track, ns)
        })
    }

    /// What a process or thread is called, or where it stands.
    pub(super) fn describe(
        &mut self,
        what: &str,
        track: Track,
        key: &str,
        value: Value,
    ) -> Result<()> {
        let mut args = Map::new();
        args.insert(key.to_owned(), value);
        self.write(&Event {
            args,
            ..Self::plain(what, "__metadata", "M", track, 0)
        })
    }

    /// Ends the trace.
    pub(super) fn finish(mut self) -> Result<()> {
        write!(self.out, "\n]}}\n")
            .and_then(|()| self.out.flush())
            .context("cannot write")
    }
}
