//! Growth of memory between two runs, by call stack.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::Played;
use super::file::File;
use crate::compare::Comparison;
use crate::fold::{self, Folded};
use crate::label::labels;
use crate::site_key::{SiteKey, place};
use crate::{SCHEMA, function_name, memleak};
use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_engine::{CallSite, Process};
use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;
use gpuprobe_stacks::cuda::file_name;

/// Memory that a call stack held in two runs.
#[derive(Clone, Debug, Serialize)]
pub struct StackGrowth {
    /// Frames as they compare between runs: functions and file names, without addresses.
    pub stack: Vec<String>,
    /// Bytes in the first and in the second run.
    pub bytes: [u64; 2],
    /// Number of allocations in the first and in the second run.
    pub allocations: [u64; 2],
    /// Label of the call site, unique in the list.
    pub label: String,
    /// The folded stack for text, if there are Python frames.
    #[serde(skip)]
    pub folded: Option<Folded>,
}

impl StackGrowth {
    /// Growth in bytes; negative if the memory shrank.
    pub fn delta(&self) -> i128 {
        i128::from(self.bytes[1]) - i128::from(self.bytes[0])
    }

    /// Whether bytes or number of allocations differ between the runs.
    pub fn has_changed(&self) -> bool {
        self.bytes[0] != self.bytes[1] || self.allocations[0] != self.allocations[1]
    }
}

/// The comparison of two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    /// Version of the JSON form: [`SCHEMA`].
    pub schema: u32,
    /// Kind of the analysis, always `diff`.
    pub analysis: &'static str,
    /// Peak in bytes, of the first and of the second run.
    pub watermark: [u64; 2],
    /// Bytes never freed, in the first and in the second run.
    pub leaked: [u64; 2],
    /// Memory at the peak by call stack, by descending growth.
    pub at_peak: Vec<StackGrowth>,
    /// Memory never freed by call stack, by descending growth.
    pub never_freed: Vec<StackGrowth>,
    /// The same for PyTorch's tensors, if a run has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<TensorDiff>,
}

impl Diff {
    /// Each comparison: its name, its bytes before and after, and its call stacks.
    pub fn lists(&self) -> Vec<(&'static str, [u64; 2], &[StackGrowth])> {
        let mut lists = vec![
            ("watermark", self.watermark, &self.at_peak[..]),
            ("leakage", self.leaked, &self.never_freed[..]),
        ];
        if let Some(tensors) = &self.tensors {
            lists.push(("tensors_watermark", tensors.watermark, &tensors.at_peak));
            lists.push(("tensors_leakage", tensors.leaked, &tensors.never_freed));
        }
        lists
    }
}

/// The comparison of PyTorch's tensors in two runs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TensorDiff {
    /// Peak of the tensors in bytes, summed over all processes and devices, of the first and of the
    /// second run.
    pub watermark: [u64; 2],
    /// Bytes of tensors live at the end, in the first and in the second run.
    pub leaked: [u64; 2],
    /// Tensors at the peak of their device by call stack, by descending growth.
    pub at_peak: Vec<StackGrowth>,
    /// Tensors live at the end by call stack, by descending growth.
    pub never_freed: Vec<StackGrowth>,
}

/// Compares two runs. With `by_lines`, call stacks with the same Python lines are one.
pub(super) fn diff(runs: [&File; 2], by_lines: bool, host: bool) -> Result<Diff> {
    let (mut watermark, mut leaked) = ([0; 2], [0; 2]);
    let (mut at_peak, mut never_freed) = (Comparison::default(), Comparison::default());
    let mut tensors: Option<(TensorDiff, [Comparison; 2])> = None;
    for (number, file) in runs.into_iter().enumerate() {
        let played = file.at_end()?;
        watermark[number] = played.at_peak.gpu.total.bytes;
        leaked[number] = played.never_freed().gpu.total.bytes;
        let run = |played| Run {
            number,
            played,
            by_lines,
        };
        for (played, sites) in [(file.at_peak()?, &mut at_peak), (played, &mut never_freed)] {
            run(played).enter(host, sites);
        }
        if played.has_tensors() {
            let (sums, sites) = tensors.get_or_insert_with(Default::default);
            run(played).enter_tensors(sums, sites);
        }
    }
    Ok(Diff {
        schema: SCHEMA,
        analysis: "diff",
        watermark,
        leaked,
        at_peak: sorted(at_peak),
        never_freed: sorted(never_freed),
        tensors: tensors.map(|(sums, [at_peak, never_freed])| TensorDiff {
            at_peak: sorted(at_peak),
            never_freed: sorted(never_freed),
            ..sums
        }),
    })
}

/// One of the two runs.
struct Run<'a> {
    number: usize,
    played: &'a Played,
    by_lines: bool,
}

impl<'a> Run<'a> {
    fn processes(&self) -> impl Iterator<Item = &'a Process> + use<'a> {
        let ledger = self.played.ledger();
        ledger.live_processes().chain(ledger.ended(true))
    }

    /// Enters what processes hold, with `host` of the host, too.
    fn enter(&self, host: bool, sites: &mut Comparison) {
        for process in self.processes() {
            let mut amounts: BTreeMap<(u32, MemoryKind), Total> = BTreeMap::new();
            for allocation in self.played.allocations(process) {
                if host || allocation.belongs() != Belongs::Host {
                    let amount = amounts.entry((allocation.site, allocation.kind()));
                    amount.or_default().add(allocation.size_bytes);
                }
            }
            for ((number, kind), amount) in amounts {
                if let Some(site) = process.sites.get(number) {
                    self.enter_site(process.pid, site, kind.belongs(), [(&mut *sites, amount)]);
                }
            }
        }
    }

    /// Enters tensors: at the peak of their device, and at the end.
    fn enter_tensors(&self, sums: &mut TensorDiff, [peak, end]: &mut [Comparison; 2]) {
        let sum = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
        for process in self.processes() {
            for allocator in process.tensors.iter() {
                let peak_bytes = allocator.peak_allocated_bytes;
                sum(&mut sums.watermark[self.number], peak_bytes);
                sum(&mut sums.leaked[self.number], allocator.allocated_bytes);
                for site in allocator.blocks.sites.iter() {
                    let then = (&mut *peak, allocator.at_peak(site).gpu);
                    let now = (&mut *end, site.live.gpu);
                    self.enter_site(process.pid, site, Belongs::Gpu, [then, now]);
                }
            }
        }
    }

    fn enter_site<const N: usize>(
        &self,
        pid: u32,
        site: &CallSite,
        side: Belongs,
        amounts: [(&mut Comparison, Total); N],
    ) {
        let symbols = self.played.symbols();
        let (frames, _) = memleak::stack_of(pid, site, symbols);
        let api = function_name(site.row, symbols);
        let places: Vec<_> = frames.iter().map(place).collect();
        // What an allocator took for its pool in one run may be without it in the other.
        let key = SiteKey::of_lines(side, false, &places).filter(|_| self.by_lines);
        let key = key.unwrap_or_else(|| SiteKey::of_text(&lines(&api, &frames)));
        for (sites, amount) in amounts {
            if amount.allocations > 0 {
                sites.add(self.number, key.clone(), (&api, &frames), amount);
            }
        }
    }
}

/// The call and its frames as they compare between runs: addresses differ, also those that stand for
/// a name; functions, file names and offsets stay.
fn lines(api: &str, frames: &[Frame]) -> Vec<String> {
    let line = |frame: &Frame| {
        let file = match frame.language.is_python() {
            true => fold::place(frame.file.as_deref().unwrap_or("python"), frame.line),
            false => file_name(&frame.module).to_owned(),
        };
        let function = match frame.function.starts_with("0x") {
            true => "?",
            false => &frame.function,
        };
        format!("[{function}] ({file})")
    };
    let lines = frames.iter().map(line);
    std::iter::once(api.to_owned()).chain(lines).collect()
}

fn sorted(sites: Comparison) -> Vec<StackGrowth> {
    let sites = sites.into_sites().map(|site| {
        let grown = StackGrowth {
            stack: lines(&site.api, &site.frames),
            bytes: site.totals.map(|total| total.bytes),
            allocations: site.totals.map(|total| total.allocations),
            label: String::new(),
            folded: Folded::of(&site.frames),
        };
        (grown, site)
    });
    let mut sites: Vec<_> = sites.collect();
    sites.sort_by(|(a, _), (b, _)| (b.delta(), &a.stack).cmp(&(a.delta(), &b.stack)));
    let labels = labels(sites.iter().map(|(_, site)| (&*site.frames, &*site.api)));
    let labelled = sites.into_iter().zip(labels);
    labelled
        .map(|((grown, _), label)| StackGrowth { label, ..grown })
        .collect()
}
