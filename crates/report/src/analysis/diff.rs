//! What grew between two runs, by call stack.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::accounts::caller_of;
use super::callers::Callers;
use super::{Accounts, Amount, Selection};
use crate::SCHEMA;
use crate::fold::{self, place};
use crate::label::labels;
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
    }
    Ok(Diff {
        schema: SCHEMA,
        analysis: "diff",
        watermark,
        leaked,
        at_peak: sorted(at_peak),
        never_freed: sorted(never_freed),
    })
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
        let stack = stack_of(callers, caller, kind);
        let frames = callers.caller(caller).0;
        let lines = by_lines.then(|| lines(&frames, kind)).flatten();
        let grown = stacks
            .entry(lines.unwrap_or_else(|| stack.clone()))
            .or_default();
        if grown.stack.is_empty() || (run, amount.bytes) > grown.most {
            (grown.stack, grown.frames, grown.most) = (stack, frames, (run, amount.bytes));
        }
        grown.bytes[run] = grown.bytes[run].saturating_add(amount.bytes);
        grown.allocations[run] += amount.allocations;
    }
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
fn stack_of(callers: &Callers<'_>, caller: u32, kind: MemoryKind) -> Vec<String> {
    let called = callers.called(caller);
    let mut lines = vec![called.unwrap_or(kind.name().into()).into_owned()];
    for frame in callers.stack(caller).iter() {
        let file = match frame.language {
            Language::Python => place(frame.file.as_deref().unwrap_or("python"), frame.line),
            Language::Native => file_name(&frame.module).to_owned(),
        };
        let function = if frame.unresolved && !frame.function.contains("+0x") {
            "?"
        } else {
            &frame.function
        };
        lines.push(format!("[{function}] ({file})"));
    }
    lines
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
