//! All modules of a run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::helper::FileReader;
use super::module::{FileKey, Module, open};
use gpuprobe_model::stack::ModuleId;
use gpuprobe_os::proc::Mapping;

/// Modules that are known at once. A process that maps ever new files gets no names for more.
const LIMIT: usize = 1 << 17;
/// Files that are kept open, at most.
const OPEN_LIMIT: u64 = 16384;
/// Bytes that headers and paths of all modules take. A library has one kilobyte, as many as are
/// open 16 MB; one that was made for it has fifty.
const BYTES_LIMIT: usize = 128 << 20;
/// How long it is not looked again for modules that nobody has mapped.
const PAUSE: Duration = Duration::from_secs(10);

/// All modules of a run.
#[derive(Debug)]
pub(super) struct Modules {
    all: HashMap<ModuleId, Arc<Module>>,
    /// How many there have been.
    count: u32,
    /// The newest version of each file.
    by_key: HashMap<FileKey, Arc<Module>>,
    reader: FileReader,
    /// In how many places they are mapped, of processes that are known.
    mapped: HashMap<ModuleId, u32>,
    /// Those that were asked for since it was last looked for files to close, and those that were
    /// of no use then.
    asked: HashSet<ModuleId>,
    unused: HashSet<ModuleId>,
    open: u64,
    may_open: u64,
    /// Bytes that they take.
    bytes: usize,
    may_take: usize,
    forgotten_at: Option<Instant>,
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
        Self {
            all: HashMap::new(),
            count: 0,
            by_key: HashMap::new(),
            reader,
            mapped: HashMap::new(),
            asked: HashSet::new(),
            unused: HashSet::new(),
            open: 0,
            may_open: may_open(),
            bytes: 0,
            may_take: BYTES_LIMIT,
            forgotten_at: None,
            is_reported: false,
        }
    }

    /// Reader of the files of the modules.
    pub(super) fn reader(&self) -> &FileReader {
        &self.reader
    }

    /// The module that `map` of process `pid` is of.
    pub(super) fn of(&mut self, pid: u32, map: &Mapping<'_>) -> Option<Arc<Module>> {
        let module = self.find(pid, map)?;
        self.asked.insert(module.id);
        Some(module)
    }

    fn find(&mut self, pid: u32, map: &Mapping<'_>) -> Option<Arc<Module>> {
        let path = map.path_without_mark().filter(|_| map.inode != 0)?;
        let key = FileKey {
            device: map.device,
            inode: map.inode,
        };
        let newest = self.by_key.get(&key).cloned();
        let known = newest.clone();
        // The number of a deleted file may be given to another, but not while we have it open.
        let known = known.filter(|module| !module.was_changed());
        let known = known.filter(|module| module.file().is_some() || module.path == path);
        if let Some(module) = known.as_ref().filter(|module| module.file().is_some()) {
            return Some(module.clone());
        }
        self.make_room();
        let file = (self.open < self.may_open).then(|| open(pid, map));
        let file = file.flatten();
        // What cannot be opened, for the process has ended, may be opened through another.
        if known.is_some() && file.is_none() {
            return known;
        }
        let closed = newest.zip(file.as_ref());
        if let Some(module) = closed.and_then(|(module, file)| module.reopened(pid, file)) {
            self.open += 1;
            return Some(self.replace(module));
        }
        let is_room = self.all.len() < LIMIT && self.bytes < self.may_take;
        is_room.then_some(())?;
        let id = ModuleId(self.count);
        self.count = self.count.checked_add(1)?;
        let module = Arc::new(Module::new(
            id,
            key,
            (pid, path.to_owned()),
            file,
            &self.reader,
        ));
        self.open += u64::from(module.file().is_some());
        self.bytes += module.size();
        self.all.insert(id, module.clone());
        self.by_key.insert(key, module.clone());
        Some(module)
    }

    /// In the place of the one that is known by its number.
    fn replace(&mut self, module: Module) -> Arc<Module> {
        let module = Arc::new(module);
        self.all.insert(module.id, module.clone());
        let newest = self.by_key.get_mut(&module.key);
        if let Some(newest) = newest.filter(|newest| newest.id == module.id) {
            *newest = module.clone();
        }
        module
    }

    /// A process has mapped the module.
    pub(super) fn map(&mut self, module: &Module) {
        *self.mapped.entry(module.id).or_default() += 1;
    }

    /// It has not any more.
    pub(super) fn unmap(&mut self, module: &Module) {
        if let Some(count) = self.mapped.get_mut(&module.id) {
            *count -= 1;
            if *count == 0 {
                self.mapped.remove(&module.id);
            }
        }
    }

    /// Closes the files that no known process has mapped, and that nobody has asked for, since it was last
    /// looked for them: they may be of a container that has ended. Who maps one of these again finds the
    /// same module. Gives those whose files were closed.
    pub(super) fn close_unused(&mut self) -> Vec<ModuleId> {
        let asked = std::mem::take(&mut self.asked);
        let is_unused =
            |module: &Module| !self.mapped.contains_key(&module.id) && !asked.contains(&module.id);
        let open = self.all.values().filter(|module| module.file().is_some());
        let unused: HashSet<_> = open.filter(|m| is_unused(m)).map(|m| m.id).collect();
        let before = std::mem::replace(&mut self.unused, unused);
        let closed: Vec<_> = self.unused.intersection(&before).copied().collect();
        let modules: Vec<_> = closed.iter().filter_map(|id| self.get(*id)).collect();
        for module in modules {
            if let Some(file) = module.numbered() {
                self.reader.close(file);
            }
            self.open -= 1;
            self.replace(module.closed());
        }
        closed
    }

    pub(super) fn get(&self, id: ModuleId) -> Option<Arc<Module>> {
        self.all.get(&id).cloned()
    }

    /// Forgets modules that no process has mapped, if there are too many. Functions in them that
    /// have not been named by now will not be.
    fn make_room(&mut self) {
        let is_full = |modules: &Self| {
            let is_open = modules.open >= modules.may_open;
            is_open || modules.all.len() >= LIMIT || modules.bytes >= modules.may_take
        };
        let lately = |at: Instant| at.elapsed() < PAUSE;
        if !is_full(self) || self.forgotten_at.is_some_and(lately) {
            return;
        }
        self.forgotten_at = Some(Instant::now());
        let by_key = &mut self.by_key;
        self.all.retain(|_, module| {
            let is_newest = by_key.get(&module.key).is_some_and(|m| m.id == module.id);
            if Arc::strong_count(module) > 1 + usize::from(is_newest) {
                return true;
            }
            if is_newest {
                by_key.remove(&module.key);
            }
            if let Some(file) = module.numbered() {
                self.open -= 1;
                self.reader.close(file);
            }
            self.bytes -= module.size();
            false
        });
        if !std::mem::replace(&mut self.is_reported, true) {
            tracing::warn!("too many libraries: some functions in call stacks have no names");
        }
    }
}

/// How many files may be kept open: a third of what the process may have, when it may have all
/// that it can. Symbols are read through a second descriptor, and others need some too.
fn may_open() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 256;
    };
    let wanted = hard.min(OPEN_LIMIT * 3).max(soft);
    let raised = wanted > soft && setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok();
    (if raised { wanted } else { soft } / 3).min(OPEN_LIMIT)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
