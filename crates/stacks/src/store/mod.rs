//! The stack store: call stacks from the kernel side's records.

mod process;
mod python;
mod walks;

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use zerocopy::FromBytes;

use crate::helper::{FileReader, ProcessReader};
use crate::paths::{Change, Paths};
use crate::python::code;
use crate::python::line_store::KnownLines;
use crate::python::process::Running;
use crate::{AddressSpaces, Unwound};
use gpuprobe_model::abi::{RawStack, record};
use gpuprobe_model::stack::Location;
use process::StackStoreProcess;
use python::Python;

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
/// Maximum number of programs with the same process id whose calls may still arrive.
const MAX_PROGRAMS: usize = 17;
/// Places of a process that are named when it has ended.
const MAX_LAST: usize = 4096;

/// The call stacks of all processes.
pub struct StackStore {
    /// Executable mappings of the processes.
    pub spaces: AddressSpaces,
    /// The programs by process id, the current one last. Stacks are read before calls, so the first stack of a
    /// program may arrive before the last calls of its predecessor.
    processes: HashMap<u32, VecDeque<StackStoreProcess>>,
    max_bytes: usize,
    updates: KernelUpdates,
    /// Processes that were gone at the last sweep.
    suspects: HashSet<u32>,
    /// Where processes that have ended have called from.
    last_places: Vec<(u32, Location, bool)>,
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
    pub interpreters: Vec<(u32, Rc<Running>)>,
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
            processes: HashMap::new(),
            max_bytes: MAX_STACK_BYTES,
            updates: KernelUpdates::default(),
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

    /// Processes a record of the kernel side. Returns false if it is malformed.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let is_read = match code::is_record(bytes) {
            true => self.take_python(bytes),
            false => self.take_stack(bytes),
        };
        is_read.is_some()
    }

    fn take_stack(&mut self, bytes: &[u8]) -> Option<()> {
        let (raw, rest) = RawStack::read_from_prefix(bytes).ok()?;
        let copied = rest.get(..usize::try_from(raw.copied).ok()?)?;
        let pid = raw.tgid;
        let process = self.enter(pid, raw.process)?;
        if raw.is_stale != 0 && process.looked.elapsed() >= LOOK_AGAIN {
            process.looked = Instant::now();
            self.read_mappings(pid);
        }
        let process = self.current(pid)?;
        if let Some(known) = process.recognise(&raw, copied) {
            process.alias(raw.id, known);
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
        let process = self.current(pid)?;
        if let Some(id) = process.name(raw.id, stack)
            && may_cache
            && let Some(steps) = walks::steps(&raw, copied, &slots)
        {
            let changes = process.paths.learn(raw.root, &steps, id);
            if !changes.is_empty() {
                self.updates.recognised.push(raw.copy_key);
                self.tell(changes);
            }
        }
        Some(())
    }

    /// Takes a snapshot of the mappings of `pid`.
    pub fn read_mappings(&mut self, pid: u32) {
        self.spaces.refresh(pid);
        self.find_python(pid);
        self.updates.new_code.push(pid);
    }

    fn current(&mut self, pid: u32) -> Option<&mut StackStoreProcess> {
        self.processes.get_mut(&pid)?.back_mut()
    }

    /// The program with this number, which may be the next one of its process.
    fn enter(&mut self, pid: u32, id: u32) -> Option<&mut StackStoreProcess> {
        if self.current(pid).is_none_or(|program| program.id != id) {
            self.begin(pid, id);
        }
        let bytes = self
            .processes
            .values()
            .flatten()
            .map(StackStoreProcess::bytes);
        let is_full = bytes.sum::<usize>() >= self.max_bytes;
        let running = self.python.running.get(&pid);
        let program = self.processes.get_mut(&pid)?.back_mut()?;
        program.is_full = is_full;
        if program.python.is_none() {
            program.python = running.cloned().flatten();
        }
        Some(program)
    }

    fn begin(&mut self, pid: u32, id: u32) {
        if let Some(before) = self.current(pid) {
            let paths = std::mem::take(&mut before.paths);
            self.forget_paths(&paths);
        }
        self.updates.begun.push(pid);
        // It may have ended: then the last snapshot is used.
        self.read_mappings(pid);
        if let Some(why) = self.spaces.refusal(pid) {
            let message = format!("no call stacks of process {pid}: {why}");
            self.updates.refused.push(message);
        }
        let programs = self.processes.entry(pid).or_default();
        programs.push_back(StackStoreProcess::new(id));
        if programs.len() > MAX_PROGRAMS {
            programs.pop_front();
        }
    }

    fn tell(&mut self, changes: Vec<Change>) {
        self.updates.learnt.extend(changes);
        let programs = self.processes.values().flatten();
        let states = programs.map(|program| program.paths.states().len());
        if states.sum::<usize>() > MAX_PATHS {
            self.clear_paths();
        }
    }

    /// Removes all paths; they are learnt again as stacks arrive.
    pub fn clear_paths(&mut self) {
        self.updates.learnt.clear();
        self.updates.recognised.clear();
        for program in self.processes.values_mut().flatten() {
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

    /// The stack with number `id` in a call record of process `pid`.
    pub fn of_call(&mut self, pid: u32, id: u64) -> Option<NamedStack> {
        let (spaces, Python { lines, lost, .. }) = (&self.spaces, &mut self.python);
        // The ids of processes and programs are distinct, so at most one has it.
        self.processes
            .get_mut(&pid)?
            .iter_mut()
            .find_map(|program| {
                *lost += u64::from(program.merge(id, spaces, lines));
                program.of_call(id)
            })
    }

    /// Removes ended processes whose exit event was lost.
    pub fn sweep(&mut self, is_alive: impl Fn(u32) -> bool) {
        let pids = self.spaces.pids().chain(self.processes.keys().copied());
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
        let Some(programs) = self.processes.get_mut(&pid) else {
            return;
        };
        match programs.iter().position(|program| program.id == id) {
            Some(at) if at + 1 == programs.len() => self.forget_process(pid),
            Some(at) => {
                let program = programs.remove(at);
                self.end(pid, program);
            }
            None => {}
        }
    }

    fn forget_process(&mut self, pid: u32) {
        let programs = self.processes.remove(&pid);
        self.end(pid, programs.into_iter().flatten());
        self.spaces.forget(pid);
        self.python.running.remove(&pid);
        self.updates.new_code.push(pid);
    }

    fn end(&mut self, pid: u32, programs: impl IntoIterator<Item = StackStoreProcess>) {
        for program in programs {
            self.forget_paths(&program.paths);
            self.python.lines.forget(program.id);
            let places = program.reported_places();
            let places = places
                .filter(|(place, _)| place.module.is_some())
                .take(MAX_LAST);
            let places = places.map(|(place, is_innermost)| (pid, place, is_innermost));
            self.last_places.extend(places);
        }
    }

    /// Where in files processes have called from that have ended since this was last asked, and whether that
    /// is innermost: what is wanted of the files is to be asked for before they are closed.
    pub fn take_last_places(&mut self) -> Vec<(u32, Location, bool)> {
        std::mem::take(&mut self.last_places)
    }

    /// The updates for the kernel side since the last call.
    pub fn take_updates(&mut self) -> KernelUpdates {
        std::mem::take(&mut self.updates)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
