//! The call stacks that were found so far: who applies the calls looks them up, while others are found.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

use super::process::{NamedStack, StackStoreProcess};
use crate::Module;
use gpuprobe_model::abi::RawPython;
use gpuprobe_model::stack::{Location, ModuleId};

/// Maximum number of programs with the same process id whose calls may still arrive.
pub(super) const MAX_PROGRAMS: usize = 17;
/// Places of a process that are named when it has ended.
const MAX_LAST: usize = 4096;
/// Paths of modules that are known at once.
const MAX_PATHS: usize = 1 << 16;

/// The call stacks of all processes.
#[derive(Debug, Default)]
pub struct CallStacks {
    /// The programs by process id, the current one last. Stacks are read before calls, so the first stack of a
    /// program may arrive before the last calls of its predecessor.
    pub(super) programs: HashMap<u32, Vec<StackStoreProcess>>,
    /// Bytes of all programs.
    pub(super) bytes: usize,
    /// Where processes that have ended have called from.
    last_places: Vec<(u32, Location, bool)>,
    paths: HashMap<ModuleId, PathBuf>,
    /// The interpreter layouts given to the kernel side, with the time in ns, by process id.
    pub entered: HashMap<u32, (RawPython, u64)>,
    /// Number of Python frames and code objects dropped because a limit was reached, or missing.
    pub lost_python: u64,
    /// Number of malformed records.
    pub undecodable: u64,
}

/// [`CallStacks`] that two threads use.
#[derive(Clone, Debug, Default)]
pub struct SharedStacks(Arc<Mutex<CallStacks>>);

impl SharedStacks {
    /// Waits for the other thread, which holds it for the time of one stack.
    pub fn lock(&self) -> MutexGuard<'_, CallStacks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `act` done with the current program of process `pid`.
    pub(super) fn current<T>(
        &self,
        pid: u32,
        act: impl FnOnce(&mut StackStoreProcess) -> T,
    ) -> Option<T> {
        self.lock().programs.get_mut(&pid)?.last_mut().map(act)
    }
}

impl CallStacks {
    /// The stack with number `id` in a call of process `pid` that began at this time. If the kernel side did not have
    /// the layout of the interpreter then, its Python frames are lost.
    pub fn of_call(&mut self, pid: u32, id: u64, start_ns: u64) -> Option<NamedStack> {
        // The ids of processes and programs are distinct, so at most one has it.
        let mut programs = self.programs.get_mut(&pid)?.iter_mut();
        let (named, program) = programs.find_map(|it| Some((it.of_call(id)?, &*it)))?;
        let entered = self.entered.get(&pid);
        if program.python.is_some()
            && entered.is_none_or(|(_, since_ns)| start_ns < *since_ns)
            && !program.has_python(named.id)
        {
            self.lost_python += 1;
        }
        Some(named)
    }

    /// The path of a module that is in stacks.
    pub fn path(&self, id: ModuleId) -> Option<String> {
        Some(self.paths.get(&id)?.to_string_lossy().into_owned())
    }

    pub(super) fn note_path(&mut self, module: &Module) {
        if self.paths.len() >= MAX_PATHS {
            self.paths.clear();
        }
        let path = self.paths.entry(module.id);
        path.or_insert_with(|| module.path.clone());
    }

    /// Where in files processes have called from that have ended since this was last asked, and whether that
    /// is innermost: what is wanted of the files is to be asked for before they are closed.
    pub fn take_last_places(&mut self) -> Vec<(u32, Location, bool)> {
        std::mem::take(&mut self.last_places)
    }

    pub(super) fn begin(&mut self, pid: u32, program: StackStoreProcess) {
        let programs = self.programs.entry(pid).or_default();
        programs.push(program);
        if programs.len() > MAX_PROGRAMS {
            self.bytes -= programs.remove(0).counted;
        }
    }

    /// Removes and gives the programs of process `pid` that have ended.
    pub(super) fn end(
        &mut self,
        pid: u32,
        has_ended: impl Fn(&StackStoreProcess) -> bool,
    ) -> Vec<StackStoreProcess> {
        let Some(programs) = self.programs.get_mut(&pid) else {
            return Vec::new();
        };
        let ended: Vec<_> = programs.extract_if(.., |it| has_ended(it)).collect();
        if programs.is_empty() {
            self.programs.remove(&pid);
        }
        for program in &ended {
            self.bytes -= program.counted;
            let places = program.reported_places();
            let places = places
                .filter(|(place, _)| place.module.is_some())
                .take(MAX_LAST);
            let places = places.map(|(place, is_innermost)| (pid, place, is_innermost));
            self.last_places.extend(places);
        }
        ended
    }
}
