//! What grew between two runs, by call stack.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::accounts::caller_of;
use super::callers::{self, Callers};
use super::tensors::Tensors;
use super::{Accounts, Amount, Selection};
use crate::fold::{self, place};
use crate::label::labels;
use crate::{SCHEMA, function_name, memleak};
use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_engine::Ledger;
use gpuprobe_model::stack::{Frame, Language, Symbols};
use gpuprobe_recording::{Database, Session};
use gpuprobe_stacks::cuda::file_name;

/// How much a call stack held in two runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Grown {
    /// What a run is known by in another run: functions and file names, without addresses.
    pub stack: Vec<String>,
    /// Bytes before, and after.
    pub bytes: [u64; 2],
    /// Allocations before, and after.
    pub allocations: [u64; 2],
    /// What the call site is called: unlike any other's in the list.
    pub label: String,
    /// Its frames in the later run that has it.
    #[serde(skip)]
    pub(super) frames: Vec<Frame>,
    /// The run that they are of, and how much that stack holds: of several that are one call site, it
    /// is the one that holds most.
    #[serde(skip)]
    most: (usize, u64),
}

impl Grown {
    /// Bytes more than before; negative if it is less.
    pub fn delta(&self) -> i128 {
        i128::from(self.bytes[1]) - i128::from(self.bytes[0])
    }

    /// It holds another amount than before, or as much in another number of allocations.
    pub fn has_changed(&self) -> bool {
        self.bytes[0] != self.bytes[1] || self.allocations[0] != self.allocations[1]
    }

    /// The function that was called.
    pub fn called(&self) -> &str {
        self.stack.first().map_or("", String::as_str)
    }
}

/// The comparison of two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    /// Version of the JSON form: [`SCHEMA`].
    pub schema: u32,
    /// `diff`.
    pub analysis: &'static str,
    /// The highest total, before and after.
    pub watermark: [u64; 2],
    /// What was never freed, before and after.
    pub leaked: [u64; 2],
    /// At the highest point, by call stack, what grew most first.
    pub at_peak: Vec<Grown>,
    /// Never freed, by call stack, what grew most first.
    pub never_freed: Vec<Grown>,
    /// The same of what PyTorch's allocator has handed out, if a run has that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<TensorDiff>,
}

/// The comparison of what PyTorch's allocator handed out in two runs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TensorDiff {
    /// The most that was handed out, of all processes and devices, before and after.
    pub watermark: [u64; 2],
    /// What was handed out at the end, before and after.
    pub leaked: [u64; 2],
    /// When most was handed out on its device, by call stack, what grew most first.
    pub at_peak: Vec<Grown>,
    /// At the end, by call stack, what grew most first.
    pub never_freed: Vec<Grown>,
}

/// Compares `before` with `after`; with `by_lines`, call stacks with the same lines of Python are one.
///
/// # Errors
/// A file cannot be read.
pub fn diff(
    before: &Database,
    after: &Database,
    selection: &Selection,
    by_lines: bool,
) -> Result<Diff> {
    let mut watermark = [0; 2];
    let mut leaked = [0; 2];
    let mut at_peak = BTreeMap::new();
    let mut never_freed = BTreeMap::new();
    let mut tensors = None;
    for (run, database) in [before, after].into_iter().enumerate() {
        let session = Session::read(database)?;
        let accounts = Accounts::read(database, &session, selection, &mut ())?;
        watermark[run] = accounts.at_peak.gpu.total.bytes;
        leaked[run] = accounts.never_freed().gpu.total.bytes;
        let then = accounts.ledger.at_peak_of_rows();
        for (stacks, ledger) in [(&mut at_peak, &then), (&mut never_freed, &accounts.ledger)] {
            enter(
                stacks,
                run,
                (ledger, &accounts.callers),
                selection,
                by_lines,
            );
        }
        if let Some(found) = Tensors::read(database, None)? {
            let (sums, stacks) = tensors.get_or_insert_with(Default::default);
            enter_tensors(sums, stacks, run, &found, by_lines);
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

/// Sums, and what was live by call stack: at the highest point, and at the end.
type OfTensors = (TensorDiff, [ByStack; 2]);

/// Enters what PyTorch's allocator has handed out in a run.
fn enter_tensors(
    sums: &mut TensorDiff,
    [at_peak, never_freed]: &mut [ByStack; 2],
    run: usize,
    tensors: &Tensors,
    by_lines: bool,
) {
    let ledger = tensors.ledger();
    for process in ledger.living().chain(ledger.ended(true)) {
        for allocator in process.tensors.iter() {
            let sum = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
            sum(&mut sums.watermark[run], allocator.peak_allocated_bytes);
            sum(&mut sums.leaked[run], allocator.allocated_bytes);
            for site in allocator.blocks.sites.iter() {
                let (frames, _) = memleak::stack_of(process.pid, site, tensors.symbols());
                let called = function_name(site.row, tensors.symbols());
                let stack = Stack {
                    lines: lines_of(called.into_owned(), &frames),
                    frames,
                    kind: MemoryKind::Tensor,
                };
                let then = allocator.at_peak(site).gpu;
                let now = site.live.gpu;
                for (stacks, total) in [(&mut *at_peak, then), (&mut *never_freed, now)] {
                    if total.allocations > 0 {
                        let amount = Amount {
                            bytes: total.bytes,
                            allocations: total.allocations,
                        };
                        enter_stack(stacks, run, &stack, amount, by_lines);
                    }
                }
            }
        }
    }
}

type ByStack = BTreeMap<Vec<String>, Grown>;

fn enter(
    stacks: &mut ByStack,
    run: usize,
    (ledger, callers): (&Ledger, &Callers<'_>),
    selection: &Selection,
    by_lines: bool,
) {
    let mut amounts: BTreeMap<(u32, MemoryKind), Amount> = BTreeMap::new();
    for process in ledger.living().chain(ledger.ended(true)) {
        for allocation in process.allocations() {
            if selection.host || allocation.belongs() != Belongs::Host {
                let caller = caller_of(process, allocation);
                let amount = amounts.entry((caller, allocation.kind())).or_default();
                amount.add(allocation.size_bytes);
            }
        }
    }
    for ((caller, kind), amount) in amounts {
        let called = callers.called(caller);
        let called = called.unwrap_or(kind.name().into()).into_owned();
        let stack = Stack {
            lines: lines_of_file(called, &callers.stack(caller)),
            frames: callers.caller(caller).0,
            kind,
        };
        enter_stack(stacks, run, &stack, amount, by_lines);
    }
}

/// Where memory was allocated.
struct Stack {
    /// What it is known by in another run.
    lines: Vec<String>,
    frames: Vec<Frame>,
    kind: MemoryKind,
}

fn enter_stack(stacks: &mut ByStack, run: usize, stack: &Stack, amount: Amount, by_lines: bool) {
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

/// What stacks have in common that are one call site: lines of Python, and whose memory it is. None
/// without Python.
fn lines(frames: &[Frame], kind: MemoryKind) -> Option<Vec<String>> {
    let text = |frame: &Frame| format!("{:?} {:?}:{:?}", frame.function, frame.file, frame.line);
    let lines: Vec<_> = fold::telling(frames).map(text).collect();
    let side = format!("{:?}", kind.belongs());
    (!lines.is_empty()).then(|| std::iter::once(side).chain(lines).collect())
}

/// Addresses differ from run to run; functions, file names and places in a file stay.
fn lines_of(called: String, frames: &[Frame]) -> Vec<String> {
    let line = |frame: &Frame| {
        let file = match frame.language {
            Language::Python => place(frame.file.as_deref().unwrap_or("python"), frame.line),
            Language::Native => file_name(&frame.module).to_owned(),
        };
        format!("[{}] ({file})", frame.function)
    };
    std::iter::once(called)
        .chain(frames.iter().map(line))
        .collect()
}

/// The same of a file's call stack, where frames without a symbol have no name.
fn lines_of_file(called: String, frames: &[gpuprobe_recording::Frame]) -> Vec<String> {
    let named = |frame: &gpuprobe_recording::Frame| {
        let is_nameless = frame.unresolved && !frame.function.contains("+0x");
        let mut named = callers::frame(frame);
        if is_nameless {
            named.function = "?".to_owned();
        }
        named
    };
    lines_of(called, &frames.iter().map(named).collect::<Vec<_>>())
}

fn sorted(stacks: ByStack) -> Vec<Grown> {
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
