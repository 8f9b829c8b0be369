//! Call paths of memory from CUDA, and the frames of all call paths.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use indexmap::IndexSet;
use serde::Serialize;

use crate::Played;
use crate::timeline::{MemorySums, PathKey, Timeline};
use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::stack::{Frame, Language};
use gpuprobe_report::memleak::{SiteGroups, SiteReport, frames_of};
use gpuprobe_report::owners::Owners;
use gpuprobe_report::profile::{shown, visible};
use gpuprobe_report::{function_name, label};

/// Limit on the call paths; smaller ones are merged.
const PATHS: usize = 1_000;

/// Function, file, line, binary, whether it is Python, whether it is inlined.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub(super) struct FrameData(String, Option<String>, Option<u32>, String, u8, u8);

/// Memory by call path and bin.
#[derive(Debug, Serialize)]
pub(super) struct HeldData {
    /// Time and bytes of the highest total within each bin.
    pub(super) bins: Vec<(i64, u64)>,
    pub(super) paths: Vec<PathData>,
    /// Labels of call sites by process and number in reports: `PID:NUMBER`.
    pub(super) sites: BTreeMap<String, String>,
}

/// A call path of a process.
#[derive(Debug, Default, Serialize)]
pub(super) struct PathData {
    pub(super) pid: u32,
    /// Its call site; `None` if that is unknown, or it stands for many small ones.
    pub(super) site: Option<u32>,
    pub(super) kind: &'static str,
    /// Whether it is host memory.
    pub(super) host: bool,
    /// The function that was called; of tensors, none.
    pub(super) function: String,
    /// Library or program that the memory belongs to.
    pub(super) owner: Option<String>,
    /// Frames by number, innermost first.
    pub(super) stack: Vec<u32>,
    /// Nine numbers a bin: its number, and its [`MemorySums`].
    pub(super) changes: Vec<i64>,
}

/// Numbers frames in the order in which they are first seen.
#[derive(Debug, Default)]
pub(super) struct FrameTable(pub(super) IndexSet<FrameData>);

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
        let numbers = visible(&frames, false).map(|frame| self.number(frame));
        numbers.collect()
    }

    fn number(&mut self, frame: &Frame) -> u32 {
        let data = FrameData(
            frame.function.clone(),
            frame.file.clone(),
            frame.line,
            frame.module.clone(),
            u8::from(frame.language == Language::Python),
            u8::from(frame.inlined),
        );
        u32::try_from(self.0.insert_full(data).0).unwrap_or(u32::MAX)
    }
}

/// In place of the function, of tensors whose call site is not known.
const BEFORE: &str = "allocated before gpuprobe attached";

/// The memory in `timeline`, and which path each key is. Of call sites that `listed` has, labels are as there.
pub(super) fn held<'a>(
    timeline: &Timeline<PathKey>,
    played: &Played,
    listed: impl Iterator<Item = (u32, &'a SiteReport)>,
    frames: &mut FrameTable,
) -> (HeldData, HashMap<PathKey, usize>) {
    let listed = listed.map(|(pid, site)| (site_key(pid, site.id), site.label.clone()));
    let mut sites: BTreeMap<_, _> = listed.collect();
    let symbols = played.symbols();
    let mut owners = Owners::new(symbols);
    let mut groups = HashMap::new();
    let mut path = |(key, sums): (PathKey, &MemorySums)| {
        let is_tensor = key.kind == MemoryKind::Tensor;
        let mut path = PathData {
            pid: key.pid,
            kind: kind_of(key),
            host: key.is_host,
            function: if is_tensor { BEFORE } else { "?" }.to_owned(),
            owner: (!is_tensor).then(String::new),
            changes: sums.flat(),
            ..PathData::default()
        };
        if let Some(number) = key.number
            && let Some(holder) = key.holder(played)
            && let Some(site) = holder.sites.get(number)
        {
            let groups = groups
                .entry((key.pid, key.incarnation))
                .or_insert_with(|| SiteGroups::of(holder, true, symbols));
            let id = groups.id(number);
            let stack = frames_of(key.pid, site.stack.as_deref(), symbols).0;
            // Tensors have no function but that they are from before.
            let has_none = is_tensor && site.row != gpuprobe_cuda::BEFORE;
            path.function = match has_none {
                true => String::new(),
                false => function_name(site.row, symbols).into_owned(),
            };
            // Reports list the sites with live memory.
            let label = || label::labels([(&*stack, &*path.function)]).remove(0);
            sites.entry(site_key(key.pid, id)).or_insert_with(label);
            path.site = Some(id);
            path.owner = path
                .owner
                .map(|_| owners.of_stack(site.stack.as_deref()).owner().to_owned());
            path.stack = frames.stack(stack, Some(&*path.function).filter(|_| !has_none));
        }
        path
    };
    let mut all: Vec<_> = timeline.sums().collect();
    all.sort_by_key(|(_, sums)| Reverse(sums.total()[0]));
    let rest = all.split_off(all.len().min(PATHS));
    let places = all.iter().enumerate();
    let places = places.map(|(place, (key, _))| (*key, place)).collect();
    let mut paths: Vec<_> = all.into_iter().map(&mut path).collect();
    paths.extend(merged(&rest));
    let held = HeldData {
        bins: timeline.highest(),
        paths,
        sites,
    };
    (held, places)
}

fn kind_of(key: PathKey) -> &'static str {
    match key.kind {
        MemoryKind::Tensor => "tensors",
        kind => kind.name(),
    }
}

/// The key of a call site in the labels of the page: numbers are of processes.
fn site_key(pid: u32, id: u32) -> String {
    format!("{pid}:{id}")
}

/// One call path for those of a process and kind.
fn merged(paths: &[(PathKey, &MemorySums)]) -> Vec<PathData> {
    let mut merged: BTreeMap<_, MemorySums> = BTreeMap::new();
    for (key, sums) in paths {
        let sum = merged.entry((key.pid, kind_of(*key), key.is_host));
        sum.or_default().merge(sums);
    }
    let paths = merged.into_iter();
    let paths = paths.map(|((pid, kind, host), sums)| PathData {
        pid,
        kind,
        host,
        function: "(other call paths)".to_owned(),
        changes: sums.flat(),
        ..PathData::default()
    });
    paths.collect()
}
