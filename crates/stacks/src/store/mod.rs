//! The stack store: call stacks from the kernel side's records.

mod process;

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};
use walks::steps;

use hashbrown::HashMap;
use zerocopy::FromBytes;

use crate::helper::{FileReader, ProcessReader};
use crate::paths::{Change, Paths};
use crate::python::Refused;
use crate::python::code;
use crate::python::line_store::KnownLines;
use crate::python::process::{Interpreters, Running};
use crate::{AddressSpaces, Unwound};
use gpuprobe_model::ByteLimit;
use gpuprobe_model::abi::{RawStack, record};
use gpuprobe_model::stack::{CallStack, Location};
use process::StackStoreProcess;

pub use process::NamedStack;

/// Maximum number of states of all processes on the kernel side, a little below the size of its map.
const MAX_PATHS: usize = 14_000;
/// Bytes that the stacks of all processes take: some forty thousand stacks of forty functions. Calls with
/// further ones have none, and are counted.
const MAX_STACK_BYTES: usize = 48 << 20;
/// Size from which a copied stack counts as cut by the size of the buffer.
const CUT_BYTES: u64 = 60 << 10;
/// Minimum interval between snapshots of a process because of new mappings.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Maximum number of earlier processes and programs with the same id whose calls may still arrive.
const MAX_EARLIER: usize = 16;
/// Places of a process that are named when it has ended.
const MAX_LAST: usize = 4096;

/// The call stacks of all processes.
pub struct StackStore {
    /// Executable mappings of the processes.
    pub spaces: AddressSpaces,
    /// When the mappings were last read because the kernel side's were stale.
    looked: HashMap<u32, Instant>,
    processes: HashMap<u32, StackStoreProcess>,
    /// Earlier processes with the same id, oldest first. Stacks are read before calls, so the first stack
    /// of a process may arrive before the last calls of its predecessor.
    earlier: HashMap<u32, VecDeque<StackStoreProcess>>,
    /// Memory that all of them take.
    bytes: ByteLimit,
    /// Number of states on the kernel side.
    known: usize,
    updates: KernelUpdates,
    /// Ids of processes and programs that have begun.
    begun: Vec<u32>,
    refused: Vec<(u32, String)>,
    /// Processes that were gone at the last sweep.
    suspects: HashSet<u32>,
    /// Where processes that have ended have called from.
    last_places: Vec<(u32, Location, bool)>,
    python: Python,
}

/// State of Python in all processes.
#[derive(Default)]
struct Python {
    is_wanted: bool,
    interpreters: Interpreters,
    /// Interpreters of processes; `None` for unsupported ones.
    running: HashMap<u32, Option<Rc<Running>>>,
    lines: KnownLines,
    refused: Vec<(u32, Refused)>,
    lost: u64,
}

/// Updates for the kernel side.
#[derive(Debug, Default)]
pub struct KernelUpdates {
    /// States to remove, before the others are added.
    pub forgotten: Vec<u64>,
    /// Continuations of call paths to add.
    pub learnt: Vec<Change>,
    /// Hashes of copied stacks whose paths are known now.
    pub recognised: Vec<u64>,
    /// Processes with new [`AddressSpaces::code`].
    pub new_code: Vec<u32>,
    /// Interpreters found, by process id.
    pub interpreters: Vec<(u32, Rc<Running>)>,
}

impl StackStore {
    /// An empty store. With `with_python`, stacks include Python frames. Files are read by `reader`,
    /// memory of processes by `memory`.
    pub fn new(with_python: bool, reader: FileReader, memory: ProcessReader) -> Self {
        Self {
            spaces: AddressSpaces::new(reader, memory),
            looked: HashMap::new(),
            processes: HashMap::new(),
            earlier: HashMap::new(),
            bytes: ByteLimit::new(MAX_STACK_BYTES),
            known: 0,
            updates: KernelUpdates::default(),
            begun: Vec::new(),
            refused: Vec::new(),
            suspects: HashSet::new(),
            last_places: Vec::new(),
            python: Python {
                is_wanted: with_python,
                ..Python::default()
            },
        }
    }

    /// Whether `bytes` are a record for [`Self::take`].
    pub fn is_stack(bytes: &[u8]) -> bool {
        bytes.first_chunk::<2>() == Some(&record::STACK.to_ne_bytes()) || code::is_record(bytes)
    }

    /// The Python lines in the stacks.
    pub fn lines(&self) -> &KnownLines {
        &self.python.lines
    }

    /// Processes with an unsupported interpreter and the reason, since the last call.
    pub fn take_refused_python(&mut self) -> Vec<(u32, Refused)> {
        std::mem::take(&mut self.python.refused)
    }

    /// Whether this process has a supported interpreter.
    pub fn runs_python(&self, pid: u32) -> bool {
        matches!(self.python.running.get(&pid), Some(Some(_)))
    }

    /// Number of Python frames and code objects dropped because a limit was reached.
    pub fn lost_python(&self) -> u64 {
        self.python.lost
    }

    /// Processes a record of the kernel side. Returns false if it is malformed.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        if code::is_record(bytes) {
            return self.take_python(bytes);
        }
        self.take_stack(bytes)
    }

    /// Counts what is kept of process `pid`, and whether there may be more.
    fn account(&mut self, pid: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            let now = process.bytes();
            self.bytes.change(process.counted, now);
            process.counted = now;
            process.is_full = !self.bytes.has_room();
        }
    }

    fn take_stack(&mut self, bytes: &[u8]) -> bool {
        let Ok((raw, rest)) = RawStack::read_from_prefix(bytes) else {
            return false;
        };
        let Some(copied) = usize::try_from(raw.copied).ok().and_then(|n| rest.get(..n)) else {
            return false;
        };
        let pid = raw.tgid;
        if self.processes.get(&pid).is_none_or(|p| p.id != raw.process) {
            self.begin(pid, raw.process);
        }
        self.account(pid);
        if raw.is_stale != 0 {
            self.update_stale_mappings(pid);
        }
        if let Some(process) = self.processes.get_mut(&pid)
            && let Some(known) = process.recognise(&raw, copied)
        {
            process.alias(raw.id, known);
            self.updates.recognised.push(raw.copy_key);
            return true;
        }
        let walked = self.walked(&raw);
        let unwound = (!copied.is_empty()).then(|| self.unwind(&raw, copied));
        let better = unwound.filter(|unwound| {
            let stack = &unwound.stack;
            stack.is_complete || stack.locations.len() >= walked.locations.len()
        });
        // An incomplete path would match every stack that continues from its end.
        let may_cache = |stack: &CallStack| stack.is_complete || raw.copied >= CUT_BYTES;
        let better = better.map(|mut unwound| {
            if !may_cache(&unwound.stack) {
                unwound.slots.clear();
            }
            unwound
        });
        let (stack, slots) = match better {
            Some(Unwound { stack, slots }) => (stack, slots),
            None => (walked, Vec::new()),
        };
        let Some(process) = self.processes.get_mut(&pid) else {
            return true;
        };
        let Some(id) = process.name(raw.id, stack) else {
            return true;
        };
        if let Some(steps) = steps(&raw, copied, &slots) {
            let changes = process.paths.learn(raw.root, &steps, id);
            if !changes.is_empty() {
                self.updates.recognised.push(raw.copy_key);
                self.tell(changes);
            }
        }
        true
    }

    /// Takes a snapshot of the mappings of `pid`, without an update for the kernel side.
    pub fn read_mappings(&mut self, pid: u32) {
        self.spaces.refresh(pid);
        self.find_python(pid);
    }

    /// Takes a snapshot of the mappings of `pid`, with an update for the kernel side.
    pub fn update_mappings(&mut self, pid: u32) {
        self.read_mappings(pid);
        self.updates.new_code.push(pid);
        self.looked.insert(pid, Instant::now());
    }

    /// Handles new mappings of a process.
    fn update_stale_mappings(&mut self, pid: u32) {
        let lately = |at: &Instant| at.elapsed() < LOOK_AGAIN;
        if !self.looked.get(&pid).is_some_and(lately) {
            self.update_mappings(pid);
        }
    }

    /// Adds a process, or its next program.
    fn begin(&mut self, pid: u32, id: u32) {
        if let Some(old) = self.drop_process(pid) {
            let earlier = self.earlier.entry(pid).or_default();
            earlier.push_back(old);
            if earlier.len() > MAX_EARLIER
                && let Some(oldest) = earlier.pop_front()
            {
                self.bytes.change(oldest.counted, 0);
            }
        }
        self.begun.push(pid);
        // It may have ended: then the last snapshot is used.
        self.update_mappings(pid);
        if let Some(refusal) = self.spaces.refusal(pid) {
            self.refused.push((pid, refusal.to_string()));
        }
        self.processes.insert(pid, StackStoreProcess::new(id));
    }

    fn tell(&mut self, changes: Vec<Change>) {
        self.updates.learnt.extend(changes);
        let states = |process: &StackStoreProcess| process.paths.states().len();
        self.known = self.processes.values().map(states).sum();
        if self.known > MAX_PATHS {
            self.clear_paths();
        }
    }

    /// Removes all paths; they are learnt again as stacks arrive.
    pub fn clear_paths(&mut self) {
        self.updates.learnt.clear();
        self.updates.recognised.clear();
        for process in self.processes.values_mut() {
            self.updates.forgotten.extend(process.paths.states());
            process.paths = Paths::default();
        }
        self.known = 0;
    }

    /// The stack with number `id` in a call record of process `pid`.
    pub fn of_call(&mut self, pid: u32, id: u64) -> Option<NamedStack> {
        let earlier = self.earlier.get_mut(&pid).into_iter().flatten();
        let mut all = earlier.chain(self.processes.get_mut(&pid));
        let (spaces, lines) = (&self.spaces, &mut self.python.lines);
        let lost = &mut self.python.lost;
        // The ids of processes and programs are distinct, so at most one has it.
        all.find_map(|process| {
            *lost += u64::from(process.merge(id, spaces, lines));
            process.of_call(id)
        })
    }

    /// Records that a call of `pid` with stack `id` was made before the kernel side had the layout of its
    /// interpreter: its Python frames are lost.
    pub fn note_early_call(&mut self, pid: u32, id: u64) {
        let process = self.processes.get(&pid);
        if self.runs_python(pid) && !process.is_some_and(|process| process.has_python(id)) {
            self.python.lost += 1;
        }
    }

    /// Where in files processes have called from that have ended since this was last asked, and whether that
    /// is innermost: what is wanted of the files is to be asked for before they are closed.
    pub fn take_last_places(&mut self) -> Vec<(u32, Location, bool)> {
        std::mem::take(&mut self.last_places)
    }

    /// Ids of the processes and programs that have begun since the last call.
    pub fn take_begun(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.begun)
    }

    /// Processes with unsupported stacks and the reason, since the last call.
    pub fn take_refused(&mut self) -> Vec<(u32, String)> {
        std::mem::take(&mut self.refused)
    }

    /// Whether there are updates for [`Self::take_updates`].
    pub fn has_updates(&self) -> bool {
        let KernelUpdates {
            forgotten,
            learnt,
            recognised,
            new_code,
            interpreters,
        } = &self.updates;
        !(learnt.is_empty()
            && interpreters.is_empty()
            && forgotten.is_empty()
            && recognised.is_empty()
            && new_code.is_empty())
    }

    /// The updates for the kernel side since the last call.
    pub fn take_updates(&mut self) -> KernelUpdates {
        std::mem::take(&mut self.updates)
    }
}

/// Adds the places of `process`, whose id was `pid`, to the last ones.
fn keep_places(last: &mut Vec<(u32, Location, bool)>, pid: u32, process: &StackStoreProcess) {
    let places = process
        .reported_places()
        .filter(|(place, _)| place.module.is_some());
    last.extend(
        places
            .take(MAX_LAST)
            .map(|(place, is_innermost)| (pid, place, is_innermost)),
    );
}

mod ends;
mod python;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod walks;
