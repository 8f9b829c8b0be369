//! All modules of a run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::module::{FileKey, Module, open};
use super::reader::Reader;
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
    reader: Reader,
    open: u64,
    may_open: u64,
    /// Bytes that they take.
    bytes: usize,
    may_take: usize,
    forgotten_at: Option<Instant>,
    is_told: bool,
}

impl Default for Modules {
    fn default() -> Self {
        Self::new(Reader::default())
    }
}

impl Modules {
    /// None yet; their files are read by `reader`.
    pub(super) fn new(reader: Reader) -> Self {
        Self {
            all: HashMap::new(),
            count: 0,
            by_key: HashMap::new(),
            reader,
            open: 0,
            may_open: may_open(),
            bytes: 0,
            may_take: BYTES_LIMIT,
            forgotten_at: None,
            is_told: false,
        }
    }

    /// What reads their files.
    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The module that `map` of process `pid` is of.
    pub(super) fn of(&mut self, pid: u32, map: &Mapping<'_>) -> Option<Arc<Module>> {
        let path = map.path_without_mark().filter(|_| map.inode != 0)?;
        let key = FileKey {
            device: map.device,
            inode: map.inode,
        };
        let known = self.by_key.get(&key).cloned();
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
            self.open -= u64::from(module.file().is_some());
            self.bytes -= module.size();
            false
        });
        if !std::mem::replace(&mut self.is_told, true) {
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
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use gpuprobe_os::proc::Mappings;

    use super::*;

    /// The module of a file that this process has mapped.
    #[allow(unsafe_code)]
    fn of(modules: &mut Modules, path: &Path) -> Option<Arc<Module>> {
        let file = fs::File::open(path).unwrap();
        // SAFETY: nobody writes to the file.
        let _mapped = unsafe { memmap2::MmapOptions::new().map_exec(&file).unwrap() };
        let inode = file.metadata().unwrap().ino();
        let maps = Mappings::of(std::process::id()).unwrap();
        let map = maps.iter().find(|map| map.inode == inode).unwrap();
        modules.of(std::process::id(), &map)
    }

    /// So many copies of this program's first pages.
    fn files(folder: &Path, count: usize) -> Vec<std::path::PathBuf> {
        let bytes = fs::read("/proc/self/exe").unwrap();
        let make = |n: usize| {
            let path = folder.join(n.to_string());
            fs::write(&path, &bytes[..8192.min(bytes.len())]).unwrap();
            path
        };
        (0..count).map(make).collect()
    }

    #[test]
    fn room_is_made_of_what_nobody_has_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path(), 6);
        let mut modules = Modules {
            may_open: 4,
            ..Modules::default()
        };
        let mapped: Vec<_> = files[..2].iter().map(|f| of(&mut modules, f)).collect();
        let of_ended: Vec<_> = files[2..4].iter().map(|f| of(&mut modules, f)).collect();
        let ended = of_ended[0].as_ref().unwrap().id;
        drop(of_ended);
        let next = of(&mut modules, &files[4]).unwrap();
        assert!(next.file().is_some() && modules.open == 3);
        assert!(modules.get(ended).is_none());
        assert!(of(&mut modules, &files[2]).unwrap().id != ended);
        // It is too early to look again.
        assert!(of(&mut modules, &files[5]).unwrap().file().is_none());
        assert_eq!(modules.open, 4);
        for (module, path) in mapped.into_iter().zip(&files) {
            let again = of(&mut modules, path).unwrap();
            assert_eq!(again.id, module.unwrap().id);
        }
    }

    #[test]
    fn modules_take_no_more_than_they_may() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path(), 9);
        let mut modules = Modules::default();
        let first = of(&mut modules, &files[0]).unwrap();
        modules.may_take = 3 * first.size();
        let all: Vec<_> = files.iter().map(|f| of(&mut modules, f)).collect();
        assert_eq!(all.iter().flatten().count(), 3);
        let known = modules.all.values().map(|module| module.size());
        assert_eq!(known.sum::<usize>(), modules.bytes);
    }

    #[test]
    fn what_cannot_be_opened_is_one_module() {
        let folder = tempfile::tempdir().unwrap();
        let path = files(folder.path(), 1).remove(0);
        let mut modules = Modules::default();
        let line = format!("0-1000 r-xp 0 0:0 7 {}", path.display());
        let map = Mapping::parse(line.as_bytes()).unwrap();
        let first = modules.of(std::process::id(), &map).unwrap();
        let second = modules.of(std::process::id(), &map).unwrap();
        assert!(first.file().is_none() && first.id == second.id);
        assert_eq!(modules.all.len(), 1);
    }
}
