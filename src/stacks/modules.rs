//! All modules of a run.

use std::collections::HashMap;
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::ModuleId;
use super::mapping::CodeRange;
use super::module::{FileKey, Module, open};

/// Modules of a run. A process that maps ever new files gets no names for more of them.
const LIMIT: usize = 1 << 17;
/// Files that are kept open, at most.
const OPEN_LIMIT: u64 = 16384;

/// All modules of a run.
#[derive(Debug)]
pub(super) struct Modules {
    all: Vec<Arc<Module>>,
    /// The newest version of each file.
    by_key: HashMap<FileKey, Arc<Module>>,
    open: u64,
    may_open: u64,
}

impl Default for Modules {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            by_key: HashMap::new(),
            open: 0,
            may_open: may_open(),
        }
    }
}

impl Modules {
    /// The module that `range` of process `pid` is from.
    pub(super) fn of(&mut self, pid: u32, range: &CodeRange) -> Option<Arc<Module>> {
        let (key, path) = range.file.as_ref()?;
        let known = self.by_key.get(key);
        // The number of a deleted file may be given to another, but not while we have it open.
        if let Some(module) = known.filter(|module| !module.was_changed()) {
            let is_same = module.file().is_some() || module.path == *path;
            if is_same {
                return Some(module.clone());
            }
        }
        let number = u32::try_from(self.all.len()).ok()?;
        (self.all.len() < LIMIT).then_some(())?;
        let may_open = self.open < self.may_open;
        let range = (range.start, range.end);
        let file = may_open.then(|| open(pid, range, path, *key)).flatten();
        self.open += u64::from(file.is_some());
        let origin = (pid, path.clone());
        let module = Arc::new(Module::new(ModuleId(number), *key, origin, file));
        self.all.push(module.clone());
        // What cannot be opened, for the process has ended, may be opened through another.
        if module.file().is_some() || !may_open {
            self.by_key.insert(*key, module.clone());
        }
        Some(module)
    }

    pub(super) fn get(&self, id: ModuleId) -> Option<Arc<Module>> {
        self.all.get(usize::try_from(id.0).ok()?).cloned()
    }

    /// Gives the memory of all unwinding tables back.
    pub(super) fn drop_tables(&self) {
        for module in &self.all {
            module.drop_tables();
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
