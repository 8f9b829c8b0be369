//! Call paths of memory from CUDA, and the frames of all call paths.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::document::{FrameData, HeldData, IncidentData, MemoryData, PathData};
use super::held::{HeldByBin, HeldSums};
use super::reading::{PathKey, PathName, ReadMemory, Reading};
use crate::label;
use crate::views::profile::{shown, visible};
use anyhow::Result;
use gpuprobe_model::stack::{Frame, Language};

/// Limit on the call paths; smaller ones are merged.
const PATHS: usize = 20_000;

/// Numbers frames in the order in which they are first seen.
#[derive(Debug, Default)]
pub(super) struct FrameTable {
    numbers: HashMap<FrameData, u32>,
    list: Vec<FrameData>,
}

impl FrameTable {
    /// Numbers of the frames of a stack that are shown: as in flame graphs, without CUDA's own and the function that was
    /// called, and without the interpreter's between Python lines.
    pub(super) fn stack(&mut self, mut frames: Vec<Frame>, called: Option<&str>) -> Vec<u32> {
        if let Some(called) = called {
            frames = shown(frames, called, false);
            if frames.first().is_some_and(|frame| frame.function == called) {
                frames.remove(0);
            }
        }
        visible(&frames, false)
            .map(|frame| self.number(frame))
            .collect()
    }

    fn number(&mut self, frame: &Frame) -> u32 {
        let document = FrameData(
            frame.function.clone(),
            frame.file.clone(),
            frame.line,
            frame.module.clone(),
            u8::from(frame.language == Language::Python),
            u8::from(frame.inlined),
        );
        if let Some(&number) = self.numbers.get(&document) {
            return number;
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.numbers.insert(document.clone(), number);
        self.list.push(document);
        number
    }

    /// All frames, by number.
    pub(super) fn into_list(self) -> Vec<FrameData> {
        self.list
    }
}

/// The document of the memory in `held`.
pub(super) fn memory_document(
    reading: &Reading<'_>,
    held: &HeldByBin<PathKey>,
    read: &ReadMemory,
    frames: &mut FrameTable,
) -> Result<MemoryData> {
    let names = read.names(held.paths().map(|(key, _)| key));
    let keys: Vec<_> = held.paths().map(|(key, _)| key).zip(&names).collect();
    let sites = labels(reading, &keys);
    let mut all: Vec<_> = held.paths().zip(names).collect();
    all.sort_by_key(|((_, sums), _)| Reverse(sums.total()[0]));
    let rest = all.split_off(all.len().min(PATHS));
    let mut paths: Vec<_> = all
        .into_iter()
        .map(|((key, sums), name)| PathData {
            pid: key.pid,
            site: name.site,
            kind: key.kind.name(),
            host: key.is_host,
            stack: frames.stack(name.frames, Some(&name.function)),
            function: name.function,
            owner: Some(name.owner),
            changes: sums.flat(),
        })
        .collect();
    paths.extend(merged(rest.into_iter().map(|(path, _)| path)));
    Ok(MemoryData {
        held: HeldData {
            bins: held.highest(),
            paths,
            sites,
        },
        incidents: incidents(reading),
        overlay: reading.overlay()?,
    })
}

/// Labels of call sites: those of reports, if they list the site.
fn labels(reading: &Reading<'_>, keys: &[(PathKey, &PathName)]) -> BTreeMap<String, String> {
    let mut sites = BTreeMap::new();
    for process in reading.report.memleak.iter().flat_map(|one| &one.processes) {
        for site in process.sites.iter().flatten() {
            sites.insert(site_key(process.pid, site.id), site.label.clone());
        }
    }
    for (key, name) in keys {
        if let Some(id) = name.site {
            let label = || label::labels(&[(&name.frames, &name.function)]).remove(0);
            sites.entry(site_key(key.pid, id)).or_insert_with(label);
        }
    }
    sites
}

/// The key of a call site in the labels of the page: numbers are of processes.
pub(super) fn site_key(pid: u32, id: u32) -> String {
    format!("{pid}:{id}")
}

/// One call path for those of a process and kind.
fn merged<'a>(paths: impl Iterator<Item = (PathKey, &'a HeldSums)>) -> Vec<PathData> {
    let mut merged: HashMap<_, HeldSums> = HashMap::new();
    for (
        PathKey {
            pid, kind, is_host, ..
        },
        sums,
    ) in paths
    {
        merged.entry((pid, kind, is_host)).or_default().merge(sums);
    }
    let paths = merged.into_iter();
    let paths = paths.map(|((pid, kind, host), sums)| PathData {
        pid,
        kind: kind.name(),
        host,
        function: "(other call paths)".to_owned(),
        changes: sums.flat(),
        ..PathData::default()
    });
    let mut paths: Vec<_> = paths.collect();
    paths.sort_by_key(|path| (path.pid, path.kind, path.host));
    paths
}

/// The requests that were refused, as far as their time is known.
fn incidents(reading: &Reading<'_>) -> Vec<IncidentData> {
    let first = reading.session.wall(reading.first_ns);
    let incidents = reading.report.incidents.iter();
    let incidents = incidents.filter_map(|incident| {
        Some(IncidentData {
            time_ns: (incident.time? - first?).num_nanoseconds()?,
            text: incident.headline(),
        })
    });
    incidents.collect()
}
