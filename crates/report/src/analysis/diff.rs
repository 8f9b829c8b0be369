//! Growth of memory between two runs, by call stack.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::Played;
use super::file::File;
use crate::fold::{self, place};
use crate::label::labels;
use crate::{SCHEMA, function_name, memleak};
use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;
use gpuprobe_stacks::cuda::file_name;

/// Memory that a call stack held in two runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StackGrowth {
    /// Frames as they compare between runs: functions and file names, without addresses.
    pub stack: Vec<String>,
    /// Bytes in the first and in the second run.
    pub bytes: [u64; 2],
    /// Number of allocations in the first and in the second run.
    pub allocations: [u64; 2],
    /// Label of the call site, unique in the list.
    pub label: String,
    /// Its frames, in the later run that has it.
    #[serde(skip)]
    pub(crate) frames: Vec<Frame>,
    /// The run with these frames, and the bytes of that stack: of several stacks merged into one
    /// call site, the one with the most bytes.
    #[serde(skip)]
    most: (usize, u64),
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

    /// Name of the allocating function.
    pub fn called(&self) -> &str {
        self.stack.first().map_or("", String::as_str)
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
    let mut watermark = [0; 2];
    let mut leaked = [0; 2];
    let mut at_peak = BTreeMap::new();
    let mut never_freed = BTreeMap::new();
    let mut tensors = None;
    for (run, file) in runs.into_iter().enumerate() {
        let played = file.at_end()?;
        watermark[run] = played.at_peak.gpu.total.bytes;
        leaked[run] = played.never_freed().gpu.total.bytes;
        enter(&mut at_peak, run, file.at_peak()?, host, by_lines);
        enter(&mut never_freed, run, played, host, by_lines);
        if played.has_tensors() {
            let (sums, stacks) = tensors.get_or_insert_with(Default::default);
            enter_tensors(sums, stacks, run, played, by_lines);
        }
    }
    Ok(Diff {
        schema: SCHEMA,
        analysis: "diff",
        watermark,
        leaked,
        at_peak: sorted(at_peak),
        never_freed: sorted(never_freed),
        tensors: tensors.map(|(sums, [at_peak, never_freed]): OfTensors| TensorDiff {
            at_peak: sorted(at_peak),
            never_freed: sorted(never_freed),
            ..sums
        }),
    })
}

/// Sums, and live tensors by call stack: at the peak, and at the end.
type OfTensors = (TensorDiff, [ByStack; 2]);

/// Adds the tensors of a run.
fn enter_tensors(
    sums: &mut TensorDiff,
    [at_peak, never_freed]: &mut [ByStack; 2],
    run: usize,
    tensors: &Played,
    by_lines: bool,
) {
    let ledger = tensors.ledger();
    for process in ledger.live_processes().chain(ledger.ended(true)) {
        for allocator in process.tensors.iter() {
            let sum = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
            sum(&mut sums.watermark[run], allocator.peak_allocated_bytes);
            sum(&mut sums.leaked[run], allocator.allocated_bytes);
            for site in allocator.blocks.sites.iter() {
                let (frames, _) = memleak::stack_of(process.pid, site, tensors.symbols());
                let called = function_name(site.row, tensors.symbols());
                let stack = AllocationStack {
                    lines: lines_of(called.into_owned(), &frames),
                    frames,
                    kind: MemoryKind::Tensor,
                };
                let then = allocator.at_peak(site).gpu;
                let now = site.live.gpu;
                for (stacks, total) in [(&mut *at_peak, then), (&mut *never_freed, now)] {
                    if total.allocations > 0 {
                        enter_stack(stacks, run, &stack, total, by_lines);
                    }
                }
            }
        }
    }
}

type ByStack = BTreeMap<Vec<String>, StackGrowth>;

fn enter(stacks: &mut ByStack, run: usize, played: &Played, host: bool, by_lines: bool) {
    let (ledger, symbols) = (played.ledger(), played.symbols());
    for process in ledger.live_processes().chain(ledger.ended(true)) {
        let mut amounts: BTreeMap<(u32, MemoryKind), Total> = BTreeMap::new();
        for allocation in played.allocations(process) {
            if host || allocation.belongs() != Belongs::Host {
                let amount = amounts.entry((allocation.site, allocation.kind()));
                amount.or_default().add(allocation.size_bytes);
            }
        }
        for ((number, kind), amount) in amounts {
            let site = process.sites.get(number);
            let frames = site.map(|site| memleak::stack_of(process.pid, site, symbols).0);
            let frames = frames.unwrap_or_default();
            let called = site.map_or(kind.name().into(), |site| function_name(site.row, symbols));
            let stack = AllocationStack {
                lines: lines_of(called.into_owned(), &frames),
                frames,
                kind,
            };
            enter_stack(stacks, run, &stack, amount, by_lines);
        }
    }
}

/// Call stack of an allocation.
struct AllocationStack {
    /// Frames as they compare between runs.
    lines: Vec<String>,
    frames: Vec<Frame>,
    kind: MemoryKind,
}

fn enter_stack(
    stacks: &mut ByStack,
    run: usize,
    stack: &AllocationStack,
    amount: Total,
    by_lines: bool,
) {
    let lines = by_lines.then(|| lines(&stack.frames, stack.kind)).flatten();
    let grown = stacks
        .entry(lines.unwrap_or_else(|| stack.lines.clone()))
        .or_default();
    if grown.stack.is_empty() || (run, amount.bytes) > grown.most {
        grown.stack.clone_from(&stack.lines);
        grown.frames.clone_from(&stack.frames);
        grown.most = (run, amount.bytes);
    }
    grown.bytes[run] = grown.bytes[run].saturating_add(amount.bytes);
    grown.allocations[run] += amount.allocations;
}

/// Key that the stacks of one call site have in common: Python lines, and the owner of the memory.
/// `None` without Python frames.
fn lines(frames: &[Frame], kind: MemoryKind) -> Option<Vec<String>> {
    let text = |frame: &Frame| format!("{:?} {:?}:{:?}", frame.function, frame.file, frame.line);
    let lines: Vec<_> = fold::telling(frames).map(text).collect();
    let side = format!("{:?}", kind.belongs());
    (!lines.is_empty()).then(|| std::iter::once(side).chain(lines).collect())
}

/// Frames as they compare between runs: addresses differ, also those that stand for a name;
/// functions, file names and offsets stay.
fn lines_of(called: String, frames: &[Frame]) -> Vec<String> {
    let line = |frame: &Frame| {
        let file = match frame.language.is_python() {
            true => place(frame.file.as_deref().unwrap_or("python"), frame.line),
            false => file_name(&frame.module).to_owned(),
        };
        let function = match frame.function.starts_with("0x") {
            true => "?",
            false => &frame.function,
        };
        format!("[{function}] ({file})")
    };
    std::iter::once(called)
        .chain(frames.iter().map(line))
        .collect()
}

fn sorted(stacks: ByStack) -> Vec<StackGrowth> {
    let mut grown: Vec<_> = stacks.into_values().collect();
    grown.sort_by_key(|grown| std::cmp::Reverse(grown.delta()));
    let sites = grown.iter().map(|grown| (&*grown.frames, grown.called()));
    let sites: Vec<_> = sites.collect();
    let labels = labels(&sites);
    for (grown, label) in grown.iter_mut().zip(labels) {
        grown.label = label;
    }
    grown
}
