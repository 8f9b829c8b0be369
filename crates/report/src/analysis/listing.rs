//! Allocations that were live at the peak, or never freed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::Result;
use chrono::SecondsFormat;
use serde::{Serialize, Serializer};

use super::events::Trace;
use super::groups::{Group, Groups};
use super::tracker::{Allocation, Findings, Place, Totals};
use super::{Selection, Tracker};
use gpuprobe_recording::chains::Stack;
use gpuprobe_recording::{Database, Resolver, Session, ids, kinds};

/// Which allocations are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those that were live when most was.
    Watermark,
    /// Those that were never freed.
    Leakage,
}

impl Which {
    /// The name of the analysis.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Watermark => "watermark",
            Self::Leakage => "leakage",
        }
    }
}

/// The result of an analysis.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// Version of the JSON form: 1.
    pub schema: u32,
    /// `watermark` or `leakage`.
    pub analysis: &'static str,
    /// When, nanoseconds from the first event; none for what was never freed.
    pub time_ns: Option<i64>,
    /// The same as wall-clock time, RFC 3339.
    pub time: Option<String>,
    /// How much, without memory of the host.
    pub totals: Totals,
    /// Memory of the host, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Totals>,
    /// Every allocation, largest first; none if they are grouped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocations: Option<Vec<Row>>,
    /// Allocations by call stack, largest first, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<Group>>,
    /// What was odd about the events.
    pub findings: Findings,
    /// What the recording lost.
    pub lost: BTreeMap<String, u64>,
}

/// One allocation.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Process id.
    pub pid: u32,
    /// Thread id, if the call is known.
    pub tid: Option<u32>,
    /// Device.
    pub device: i64,
    /// Address.
    #[serde(serialize_with = "hex")]
    pub address: u64,
    /// When it was allocated, nanoseconds from the first event.
    pub start_ns: i64,
    /// Bytes.
    pub bytes: u64,
    /// Kind of memory.
    pub kind: &'static str,
    /// The function that was called, if it is known.
    pub operation: Option<Rc<str>>,
    /// The variable, for static memory.
    pub variable: Option<Box<str>>,
    /// What is known of the call.
    pub trace: Trace,
    /// The call stack, innermost frame first.
    pub stack: Stack,
}

fn hex<S: Serializer>(address: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{address:#x}"))
}

/// Makes the listing of what `tracker` has seen.
///
/// # Errors
/// Those of the file.
pub fn listing(
    which: Which,
    database: &Database,
    session: &Session,
    tracker: &Tracker,
    selection: &Selection,
    grouped: bool,
) -> Result<Listing> {
    let resolver = Resolver::new(database)?;
    let peak = tracker.peak();
    let first = tracker.first_ns().unwrap_or(0);
    let is_peak = which == Which::Watermark && tracker.has_peak();
    let mut totals = Totals::default();
    let mut host = Totals::default();
    let mut rows = Vec::new();
    let mut groups = Groups::default();
    let mut take = |process, place: &Place, allocation: &Allocation| {
        let is_host = kinds::of_id(place.kind).is_host;
        let side = if is_host { &mut host } else { &mut totals };
        side.add(allocation.origin.trace, allocation.bytes);
        if is_host && !selection.host {
            return;
        }
        if grouped {
            groups.add(&resolver, place.kind, allocation);
        } else {
            rows.push(row(&resolver, first, process, place, allocation));
        }
    };
    match which {
        Which::Watermark => tracker
            .at_peak()
            .for_each(|(p, place, a)| take(p, place, a)),
        Which::Leakage => tracker
            .never_freed()
            .for_each(|(p, place, a)| take(p, place, a)),
    }
    rows.sort_by_key(|row| (Reverse(row.bytes), row.start_ns, row.address));
    let time = session.wall(peak.time_ns).filter(|_| is_peak);
    Ok(Listing {
        schema: 1,
        analysis: which.name(),
        time_ns: is_peak.then(|| peak.time_ns.saturating_sub(first)),
        time: time.map(|time| time.to_rfc3339_opts(SecondsFormat::Micros, false)),
        totals,
        host: selection.host.then_some(host),
        allocations: (!grouped).then_some(rows),
        groups: grouped.then(|| groups.finish(&resolver)),
        findings: tracker.findings,
        lost: session.lost.clone(),
    })
}

fn row(
    resolver: &Resolver<'_>,
    first_ns: i64,
    process: i64,
    place: &Place,
    allocation: &Allocation,
) -> Row {
    let origin = allocation.origin;
    Row {
        pid: ids::pid(process),
        tid: origin.thread.map(ids::tid),
        device: allocation.device,
        address: place.address,
        start_ns: allocation.start_ns.saturating_sub(first_ns),
        bytes: allocation.bytes,
        kind: kinds::of_id(place.kind).short,
        operation: origin
            .function
            .map(|id| plain_name(&resolver.string(id)).into()),
        variable: allocation.variable.clone(),
        trace: origin.trace,
        stack: origin
            .chain
            .map_or_else(|| Stack::from([]), |chain| resolver.stack(chain)),
    }
}

/// The name of a function as users write it: without what CUPTI and the libraries append.
pub fn plain_name(name: &str) -> &str {
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let version = name.len() - digits.len();
    let name = match digits.strip_suffix("_v") {
        Some(plain) if (4..=5).contains(&version) => plain,
        _ => name,
    };
    name.strip_suffix("_ptsz")
        .or(name.strip_suffix("_ptds"))
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_versions() {
        assert_eq!(plain_name("cudaMalloc_v3020"), "cudaMalloc");
        assert_eq!(plain_name("cudaMemcpyAsync_ptsz_v7000"), "cudaMemcpyAsync");
        assert_eq!(plain_name("cudaGraphLaunch_v10000"), "cudaGraphLaunch");
        assert_eq!(plain_name("cuMemAlloc_v2"), "cuMemAlloc_v2");
        assert_eq!(plain_name("_v3020"), "");
    }
}
