//! All modules of a run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit};

use super::helper::{FileReader, OpenFile};
use super::module::{Module, open};
use gpuprobe_model::stack::ModuleId;
use gpuprobe_os::proc::Mapping;

/// Modules, whose files are kept open, at most. Code in further ones has no names.
const MAX_MODULES: u64 = 16384;

/// All modules of a run.
#[derive(Debug)]
pub(super) struct Modules {
    all: HashMap<ModuleId, Arc<Module>>,
    /// How many there have been.
    count: u32,
    /// The newest version of each file, by device and inode, as `/proc/PID/maps` states them.
    newest: HashMap<(u64, u64), ModuleId>,
    reader: FileReader,
    /// Those that were in no use when it was last looked for files to close.
    unused: HashSet<ModuleId>,
    max_modules: u64,
}

impl Modules {
    /// None yet; their files are read by `reader`.
    pub(super) fn new(reader: FileReader) -> Self {
        // Symbols are read through a second descriptor, and others need some too.
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(256, |(soft, _)| soft / 3);
        Self {
            all: HashMap::new(),
            count: 0,
            newest: HashMap::new(),
            reader,
            unused: HashSet::new(),
            max_modules: limit.min(MAX_MODULES),
        }
    }

    /// Reader of the files of the modules.
    pub(super) fn reader(&self) -> &FileReader {
        &self.reader
    }

    /// The module that `map` of process `pid` is of.
    pub(super) fn of(&mut self, pid: u32, map: &Mapping<'_>) -> Option<Arc<Module>> {
        let path = map.path_without_mark().filter(|_| map.inode != 0)?;
        let key = (map.device, map.inode);
        let newest = self.newest.get(&key).and_then(|id| self.get(*id));
        // The number of a deleted file may be given to another, but not while we have it open.
        if newest.as_ref().is_some_and(|module| module.is_current()) {
            return newest;
        }
        if self.all.len() as u64 >= self.max_modules {
            tracing::debug!(
                "too many libraries: those of {} have no names",
                path.display()
            );
            return None;
        }
        let file = open(pid, map).and_then(|file| OpenFile::new(file, path));
        // What cannot be opened, for the process has ended, may be opened through another.
        let is_same = |module: &Module| module.file.is_none() && module.path == path;
        if file.is_none() && newest.as_deref().is_some_and(is_same) {
            return newest;
        }
        let id = ModuleId(self.count);
        self.count = self.count.checked_add(1)?;
        let module = Module::new(id, (pid, path.to_owned()), file, &self.reader);
        let module = Arc::new(module);
        self.newest.insert(key, id);
        self.all.insert(id, Arc::clone(&module));
        Some(module)
    }

    /// Forgets modules that are not among the `mapped` ones, nor were when this was last called, and closes their
    /// files: they may be of a container that has ended. Gives these.
    pub(super) fn close_unused(&mut self, mapped: &HashSet<ModuleId>) -> Vec<ModuleId> {
        let unused = self.all.keys().filter(|id| !mapped.contains(id)).copied();
        let before = std::mem::replace(&mut self.unused, unused.collect());
        let closed: Vec<_> = before.intersection(&self.unused).copied().collect();
        for id in &closed {
            self.all.remove(id);
        }
        self.newest.retain(|_, id| self.all.contains_key(id));
        closed
    }

    pub(super) fn get(&self, id: ModuleId) -> Option<Arc<Module>> {
        self.all.get(&id).cloned()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
