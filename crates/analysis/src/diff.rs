//! Growth of memory between two runs, by call stack.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::Played;
use super::file::File;
use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_engine::CallSite;
use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;
use gpuprobe_report::compare::Comparison;
use gpuprobe_report::fold::{self, Folded};
use gpuprobe_report::label::labels;
use gpuprobe_report::site_key::{SiteKey, place};
use gpuprobe_report::{SCHEMA, function_name, memleak};
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
    /// Memory from CUDA.
    #[serde(flatten)]
    pub memory: Growth,
    /// The same for PyTorch's tensors, if a run has them: at the peak of their device, and at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<Growth>,
}

impl Diff {
    /// Each comparison: its name, its bytes before and after, and its call stacks.
    pub fn lists(&self) -> Vec<(&'static str, [u64; 2], &[StackGrowth])> {
        let names = [
            ("watermark", "leakage"),
            ("tensors_watermark", "tensors_leakage"),
        ];
        let growths = std::iter::once(&self.memory).chain(&self.tensors);
        let lists = growths.zip(names).flat_map(|(growth, (peak, end))| {
            [
                (peak, growth.watermark, &growth.at_peak[..]),
                (end, growth.leaked, &growth.never_freed[..]),
            ]
        });
        lists.collect()
    }
}

/// How memory differs between two runs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Growth {
    /// Peak in bytes, of the first and of the second run; of tensors, summed over all processes and devices.
    pub watermark: [u64; 2],
    /// Bytes never freed, in the first and in the second run.
    pub leaked: [u64; 2],
    /// Memory at the peak by call stack, by descending growth.
    pub at_peak: Vec<StackGrowth>,
    /// Memory never freed by call stack, by descending growth.
    pub never_freed: Vec<StackGrowth>,
}

/// Sums, and call sites at the peak and at the end.
type Found = (Growth, [Comparison; 2]);

impl File {
    /// What grew until the later run `after`, of host memory, too, with `host`; with `by_lines`, call stacks with the
    /// same Python lines are one.
    ///
    /// # Errors
    ///
    /// A file cannot be read or has no memory events.
    pub fn diff(&self, after: &Self, by_lines: bool, host: bool) -> Result<Diff> {
        let (mut memory, mut tensors) = (Found::default(), None);
        for (number, file) in [self, after].into_iter().enumerate() {
            let (played, peak) = (file.at_end()?, file.at_peak()?);
            let (sums, [at_peak, never_freed]) = &mut memory;
            sums.watermark[number] = played.at_peak.gpu.total.bytes;
            sums.leaked[number] = played.never_freed().gpu.total.bytes;
            let run = |played| Run {
                number,
                played,
                by_lines,
            };
            run(peak).enter(host, at_peak);
            run(played).enter(host, never_freed);
            if played.has_tensors() {
                run(played).enter_tensors(tensors.get_or_insert_default());
            }
        }
        let growth = |(sums, [at_peak, never_freed]): Found| Growth {
            at_peak: sorted(at_peak),
            never_freed: sorted(never_freed),
            ..sums
        };
        Ok(Diff {
            schema: SCHEMA,
            analysis: "diff",
            memory: growth(memory),
            tensors: tensors.map(growth),
        })
    }
}

/// One of the two runs.
struct Run<'a> {
    number: usize,
    played: &'a Played,
    by_lines: bool,
}

impl Run<'_> {
    /// Enters what processes hold, with `host` of the host, too.
    fn enter(&self, host: bool, sites: &mut Comparison) {
        for process in self.played.ledger().processes(true) {
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
    fn enter_tensors(&self, (sums, [peak, end]): &mut Found) {
        let sum = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
        for process in self.played.ledger().processes(true) {
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
        let (frames, _) = memleak::frames_of(pid, site.stack.as_deref(), symbols);
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
    let sites = sites
        .0
        .into_values()
        .map(|site| (lines(&site.api, &site.frames), site));
    let mut sites: Vec<_> = sites.collect();
    let grown = |[before, after]: [Total; 2]| i128::from(after.bytes) - i128::from(before.bytes);
    sites.sort_by(|(a, one), (b, other)| (grown(other.totals), a).cmp(&(grown(one.totals), b)));
    let labels = labels(sites.iter().map(|(_, site)| (&*site.frames, &*site.api)));
    let labelled = sites.into_iter().zip(labels);
    let sites = labelled.map(|((stack, site), label)| StackGrowth {
        stack,
        bytes: site.totals.map(|total| total.bytes),
        allocations: site.totals.map(|total| total.allocations),
        label,
        folded: Folded::of(&site.frames),
    });
    sites.collect()
}
