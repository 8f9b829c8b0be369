//! All modules of a run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit};

use super::helper::{FileReader, NumberedFile};
use super::module::{Module, open};
use gpuprobe_model::stack::ModuleId;
use gpuprobe_os::proc::Mapping;

/// Modules that are known at once. Code in further ones has no names.
const MAX_MODULES: usize = 1 << 16;
/// Files that are kept open, at most.
const MAX_OPEN: u64 = 16384;

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
    open: u64,
    may_open: u64,
    max_modules: usize,
    is_reported: bool,
}

#[cfg(test)]
impl Default for Modules {
    fn default() -> Self {
        Self::new(FileReader::default())
    }
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
            open: 0,
            may_open: limit.min(MAX_OPEN),
            max_modules: MAX_MODULES,
            is_reported: false,
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
        if let Some(module) = newest.as_ref().filter(|module| module.is_current()) {
            return Some(Arc::clone(module));
        }
        let file = (self.open < self.may_open).then(|| open(pid, map));
        let known_as = newest.as_ref().map_or(path, |module| &module.path);
        let file = file
            .flatten()
            .and_then(|file| NumberedFile::new(file, known_as));
        let origin = file.as_ref().map(|file| &file.origin);
        let is_same = |module: &&Arc<Module>| match origin {
            Some(_) => module.file.is_none() && module.origin.as_ref() == origin,
            // What cannot be opened, for the process has ended, may be opened through another.
            None => module.origin.is_none() && module.path == path,
        };
        let module = match newest.as_ref().filter(is_same) {
            Some(module) => Module {
                pid,
                file,
                ..Module::clone(module)
            },
            None if self.all.len() >= self.max_modules => {
                if !std::mem::replace(&mut self.is_reported, true) {
                    tracing::warn!(
                        "too many libraries: some functions in call stacks have no names"
                    );
                }
                return None;
            }
            None => {
                let id = ModuleId(self.count);
                self.count = self.count.checked_add(1)?;
                Module::new(id, (pid, path.to_owned()), file, &self.reader)
            }
        };
        self.open += u64::from(module.file.is_some());
        self.newest.insert(key, module.id);
        let module = Arc::new(module);
        self.all.insert(module.id, Arc::clone(&module));
        Some(module)
    }

    /// Closes the files that are not among the `mapped` ones, nor were when this was last called: they may be of a
    /// container that has ended. Who maps one of these again finds the same module. Gives those whose files were
    /// closed. If there are many modules, those without a file are forgotten: functions in them that have not been
    /// named by now will not be.
    pub(super) fn close_unused(&mut self, mapped: &HashSet<ModuleId>) -> Vec<ModuleId> {
        let open = self.all.values().filter(|module| module.file.is_some());
        let unused = open
            .map(|module| module.id)
            .filter(|id| !mapped.contains(id));
        let unused: HashSet<_> = unused.collect();
        let closed: Vec<_> = unused.intersection(&self.unused).copied().collect();
        self.unused = unused;
        for id in &closed {
            let module = self.all.get_mut(id).map(Arc::make_mut);
            if let Some(file) = module.and_then(|module| module.file.take()) {
                self.reader.close(&file);
                self.open -= 1;
            }
        }
        if self.all.len() > self.max_modules / 2 {
            let is_used =
                |id: &ModuleId, module: &Module| module.file.is_some() || mapped.contains(id);
            self.all.retain(|id, module| is_used(id, module));
            self.newest.retain(|_, id| self.all.contains_key(id));
        }
        closed
    }

    pub(super) fn get(&self, id: ModuleId) -> Option<Arc<Module>> {
        self.all.get(&id).cloned()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
