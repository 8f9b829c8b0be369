//! The stack store: call stacks from the kernel side's records.

mod calls;
mod process;
mod python;
mod walks;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use zerocopy::FromBytes;

use crate::helper::{FileReader, ProcessReader};
use crate::paths::{Change, Paths};
use crate::python::code;
use crate::python::line_store::{KnownLines, PythonLine};
use crate::python::process::Running;
use crate::{AddressSpaces, Unwound};
use gpuprobe_model::abi::{PROCESS_PID_SHIFT, RawStack};
use gpuprobe_model::stack::{CallStack, Frame, Location};
use process::StackStoreProcess;
use python::Python;

pub use calls::{CallStacks, SharedStacks};
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

/// Finds the call stacks of all processes.
pub struct StackStore {
    /// Executable mappings of the processes.
    pub spaces: AddressSpaces,
    /// Those that were found.
    pub calls: SharedStacks,
    max_bytes: usize,
    updates: KernelUpdates,
    /// Processes that were gone at the last sweep.
    suspects: HashSet<u32>,
    python: Python,
}

/// Updates for the kernel side, and what has happened meanwhile.
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
    pub interpreters: Vec<(u32, Arc<Running>)>,
    /// Ids of processes and programs that have begun.
    pub begun: Vec<u32>,
    /// What is not supported, and why.
    pub refused: Vec<String>,
}

impl StackStore {
    /// An empty store. With `with_python`, stacks include Python frames. Files are read by `reader`,
    /// memory of processes by `memory`.
    pub fn new(with_python: bool, reader: FileReader, memory: ProcessReader) -> Self {
        Self {
            spaces: AddressSpaces::new(reader, memory),
            calls: SharedStacks::default(),
            max_bytes: MAX_STACK_BYTES,
            updates: KernelUpdates::default(),
            suspects: HashSet::new(),
            python: Python {
                is_wanted: with_python,
                ..Python::default()
            },
        }
    }

    /// The Python lines in the stacks.
    pub fn lines(&self) -> &KnownLines {
        &self.python.lines
    }

    /// Processes a record of the kernel side. Returns false if it is malformed, which is counted.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let read = match code::is_record(bytes) {
            true => self.take_python(bytes),
            false => self.take_stack(bytes),
        };
        self.calls.lock().undecodable += u64::from(read.is_none());
        read.is_some()
    }

    fn take_stack(&mut self, bytes: &[u8]) -> Option<()> {
        let (raw, rest) = RawStack::read_from_prefix(bytes).ok()?;
        let copied = rest.get(..usize::try_from(raw.copied).ok()?)?;
        let pid = raw.tgid;
        self.enter(pid, raw.process);
        let looks_again = self.calls.current(pid, |program| {
            let is_due = raw.is_stale != 0 && program.looked.elapsed() >= LOOK_AGAIN;
            if is_due {
                program.looked = Instant::now();
            }
            is_due
        });
        if looks_again? {
            self.read_mappings(pid);
        }
        let is_known = self.calls.current(pid, |program| {
            let known = program.recognise(&raw, copied);
            known.map(|known| program.alias(raw.id, known)).is_some()
        });
        if is_known? {
            self.updates.recognised.push(raw.copy_key);
            return Some(());
        }
        let walked = self.walked(&raw);
        let unwound = (!copied.is_empty()).then(|| self.unwind(&raw, copied));
        let better = unwound.filter(|Unwound { stack, .. }| {
            stack.is_complete || stack.locations.len() >= walked.locations.len()
        });
        let Unwound { stack, slots } = better.unwrap_or(Unwound {
            stack: walked,
            slots: Vec::new(),
        });
        // An incomplete path would match every stack that continues from its end.
        let may_cache = stack.is_complete || raw.copied >= CUT_BYTES;
        let steps = may_cache.then(|| walks::steps(&raw, copied, &slots));
        self.note_paths(&stack);
        let changes = self.calls.current(pid, |program| {
            let id = program.name(raw.id, stack)?;
            Some(program.paths.learn(raw.root, &steps.flatten()?, id))
        });
        let changes = changes?.unwrap_or_default();
        if !changes.is_empty() {
            self.updates.recognised.push(raw.copy_key);
            self.tell(changes);
        }
        Some(())
    }

    /// Adds stacks of Python's frames of process `pid`, which may have made no call yet.
    pub fn add_stacks(&mut self, pid: u32, stacks: HashMap<u64, Vec<Frame>>) {
        let known = self.calls.current(pid, |program| program.id);
        let process = known.unwrap_or(pid << PROCESS_PID_SHIFT);
        self.enter(pid, process);
        for (id, frames) in stacks {
            let lines = frames.into_iter().map(|frame| PythonLine {
                process,
                function: frame.function.into(),
                file: frame.file.map(Into::into),
                line: frame.line,
            });
            let numbers = lines.map(|line| self.python.lines.number(line));
            let stack = CallStack {
                locations: numbers.map(Location::python).collect(),
                is_complete: true,
            };
            self.calls.current(pid, |program| program.name(id, stack));
        }
    }

    /// Takes a snapshot of the mappings of `pid`.
    pub fn read_mappings(&mut self, pid: u32) {
        self.spaces.refresh(pid);
        self.find_python(pid);
        self.updates.new_code.push(pid);
    }

    /// Has what follows be of the program with this number, which may be the next one of its process.
    fn enter(&mut self, pid: u32, id: u32) {
        if self.calls.current(pid, |program| program.id) != Some(id) {
            self.begin(pid, id);
        }
        let CallStacks {
            programs, bytes, ..
        } = &mut *self.calls.lock();
        let Some(program) = programs.get_mut(&pid).and_then(|all| all.last_mut()) else {
            return;
        };
        *bytes -= program.counted;
        program.counted = program.bytes();
        *bytes += program.counted;
        program.is_full = *bytes >= self.max_bytes;
        if program.python.is_none() {
            program.python = self.python.running.get(&pid).cloned().flatten();
        }
    }

    fn begin(&mut self, pid: u32, id: u32) {
        let take_paths = |before: &mut StackStoreProcess| std::mem::take(&mut before.paths);
        if let Some(paths) = self.calls.current(pid, take_paths) {
            self.forget_paths(&paths);
        }
        self.updates.begun.push(pid);
        // It may have ended: then the last snapshot is used.
        self.read_mappings(pid);
        if let Some(why) = self.spaces.refusal(pid) {
            let message = format!("no call stacks of process {pid}: {why}");
            self.updates.refused.push(message);
        }
        self.calls.lock().begin(pid, StackStoreProcess::new(id));
    }

    /// Notes the paths of the files in a stack.
    fn note_paths(&self, stack: &CallStack) {
        let mut calls = self.calls.lock();
        let modules = stack.locations.iter().filter_map(|it| it.module);
        for module in modules.filter_map(|id| self.spaces.module(id)) {
            calls.note_path(&module);
        }
    }

    fn tell(&mut self, changes: Vec<Change>) {
        self.updates.learnt.extend(changes);
        let calls = self.calls.lock();
        let programs = calls.programs.values().flatten();
        let states = programs.map(|program| program.paths.states().len());
        let are_many = states.sum::<usize>() > MAX_PATHS;
        drop(calls);
        if are_many {
            self.clear_paths();
        }
    }

    /// Removes all paths; they are learnt again as stacks arrive.
    pub fn clear_paths(&mut self) {
        self.updates.learnt.clear();
        self.updates.recognised.clear();
        for program in self.calls.lock().programs.values_mut().flatten() {
            self.updates.forgotten.extend(program.paths.states());
            program.paths = Paths::default();
        }
    }

    /// Removes the paths of a program that makes no more calls.
    fn forget_paths(&mut self, paths: &Paths) {
        let states: HashSet<_> = paths.states().collect();
        let learnt = &mut self.updates.learnt;
        learnt.retain(|(state, _)| !states.contains(state));
        self.updates.forgotten.extend(states);
    }

    /// Removes ended processes whose exit event was lost.
    pub fn sweep(&mut self, is_alive: impl Fn(u32) -> bool) {
        let pids: Vec<_> = self.calls.lock().programs.keys().copied().collect();
        let pids = self.spaces.pids().chain(pids);
        let gone: HashSet<_> = pids.filter(|pid| !is_alive(*pid)).collect();
        // Calls of a process that has just ended may still be in the ring: removed at the second sweep.
        let before = std::mem::replace(&mut self.suspects, gone);
        let still: Vec<_> = self.suspects.intersection(&before).copied().collect();
        for pid in still {
            self.forget_process(pid);
        }
    }

    /// Removes the process or program `id`, which has ended.
    pub fn forget(&mut self, pid: u32, id: u32) {
        match self.calls.current(pid, |program| program.id) {
            Some(current) if current == id => self.forget_process(pid),
            _ => self.end(pid, |program| program.id == id),
        }
    }

    fn forget_process(&mut self, pid: u32) {
        self.end(pid, |_| true);
        self.spaces.forget(pid);
        self.python.running.remove(&pid);
        self.updates.new_code.push(pid);
    }

    fn end(&mut self, pid: u32, has_ended: impl Fn(&StackStoreProcess) -> bool) {
        let ended = self.calls.lock().end(pid, has_ended);
        for program in ended {
            self.forget_paths(&program.paths);
            self.python.lines.forget(program.id);
        }
    }

    /// The updates for the kernel side since the last call.
    pub fn take_updates(&mut self) -> KernelUpdates {
        std::mem::take(&mut self.updates)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
