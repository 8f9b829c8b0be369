//! Objects that take memory outside of call sites, by the line that made them.

use std::cmp::Reverse;

use indexmap::IndexMap;
use serde::{Serialize, Serializer};

use super::sites::{frames_of, judged, shown};
use crate::fold::place;
use crate::label;
use crate::words::plural;
use crate::{Options, ReportSources, function_name};
use gpuprobe_cuda::{HandleKind, LIBRARIES};
use gpuprobe_engine::outside::{BesideGrowth, grown_beside};
use gpuprobe_engine::verdict::{self, Judgement};
use gpuprobe_engine::{HandleSite, Process};
use gpuprobe_model::stack::Frame;
use gpuprobe_stacks::cuda::file_name;

/// Objects of one kind that were made at one line.
#[derive(Clone, Debug, Serialize)]
pub struct HandleReport {
    /// `stream`, `event`, `module`, `context`, ...
    #[serde(serialize_with = "name_of")]
    pub kind: HandleKind,
    /// Label of the call site, or the function called there.
    #[serde(rename = "where")]
    pub label: String,
    /// File and line of the label, if they are known.
    #[serde(skip)]
    pub place: Option<String>,
    /// Objects ever made here.
    pub created: u64,
    /// Those that are destroyed.
    pub destroyed: u64,
    /// Those that are not.
    pub live: u64,
    /// Devices whose primary contexts were made here, as CUDA numbers them in the process.
    #[serde(skip)]
    pub devices: Vec<u16>,
    /// Verdict on what becomes of them; both null if none is live.
    #[serde(flatten, serialize_with = "judged")]
    pub judgement: Option<Judgement>,
    /// Growth of memory outside of call sites that they kept pace with.
    #[serde(skip)]
    pub beside: Option<BesideGrowth>,
    /// The call stack, innermost frame first; empty if unknown.
    pub stack: Vec<Frame>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn name_of<S: Serializer>(kind: &HandleKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

impl HandleReport {
    /// `1024 streams made at streams.cu:15 and not destroyed`.
    pub fn said(&self) -> String {
        let (made, ended) = self.kind.verbs();
        let live = plural(self.live, self.kind.name());
        let by = ["at", "by"][usize::from(self.stack.is_empty())];
        let at = self.place.as_ref().unwrap_or(&self.label);
        format!("{live} {made} {by} {at} and not {ended}")
    }
}

/// The objects of a process, most live ones first.
pub(super) fn handle_reports(
    process: &Process,
    options: &Options,
    sources: ReportSources<'_>,
) -> Vec<HandleReport> {
    // Indices of the sites in the engine, and a stack, by kind and label.
    let mut groups: IndexMap<_, (Vec<usize>, Vec<Frame>)> = IndexMap::new();
    let all = process.handles.sites();
    let counted = all.iter().enumerate().filter(|(_, made)| made.created > 0);
    for (index, made) in counted {
        let (stack, _) = frames_of(process.pid, made.stack.as_deref(), sources.symbols);
        let api = || function_name(made.row, sources.symbols).into_owned();
        let label = label::label(callers(&stack)).unwrap_or_else(api);
        let (sites, found) = groups.entry((made.kind, label)).or_default();
        sites.push(index);
        if found.is_empty() {
            *found = stack;
        }
    }
    let now_ns = process.ended_ns.unwrap_or(options.now_ns);
    let outside = process.outside.shape(now_ns);
    let reports = groups.into_iter().map(|((kind, label), (indices, stack))| {
        let sites = indices.iter().map(|&index| &all[index]);
        let shape = process.handles.shape(kind, sites.clone(), now_ns);
        let at = label::lines(callers(&stack)).next();
        let at = at.map(|(file, line)| place(file, Some(line)));
        let sum = |part: fn(&HandleSite) -> u64| sites.clone().map(part).sum();
        HandleReport {
            kind,
            label,
            place: at,
            created: sum(|site| site.created),
            destroyed: sum(|site| site.destroyed),
            live: sum(HandleSite::live),
            devices: process.handles.primary_of(&indices),
            judgement: verdict::judge(&shape),
            beside: outside.as_ref().and_then(|rest| grown_beside(rest, &shape)),
            stack: shown(stack, &options.view).0,
        }
    });
    let mut reports: Vec<_> = reports.collect();
    reports.sort_by_key(|one| (Reverse(one.live), Reverse(one.created)));
    reports.truncate(options.top.unwrap_or(usize::MAX));
    reports
}

/// The frames outside of the library with the handle: its own name is that of the kind.
fn callers(frames: &[Frame]) -> &[Frame] {
    let is_own = |frame: &&Frame| {
        let name = file_name(&frame.module);
        LIBRARIES.iter().any(|library| name.starts_with(library))
    };
    &frames[frames.iter().take_while(is_own).count()..]
}
