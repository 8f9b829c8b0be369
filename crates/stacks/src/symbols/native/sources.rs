//! Files with symbols, and the library that reads them and keeps what it has read.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use blazesym::symbolize::Symbolizer;
use blazesym::symbolize::evict::{self, Evict};
use nix::unistd::{SysconfVar, sysconf};

use super::vet::vet;
use super::{debug_file, guard};
use crate::Module;
use crate::cache::Cache;
use crate::elf::Headers;
use gpuprobe_model::stack::ModuleId;

/// Bytes that may be taken by what was read of all files: sections that were compressed, and lists
/// of symbols. A debug build of libtorch's takes the most.
pub(super) const BYTES_LIMIT: u64 = 4 << 30;
/// But not more than this part of the machine's memory.
const MEMORY_SHARE: u64 = 4;
/// Modules whose files are open for their symbols.
const MODULES_LIMIT: usize = 4096;
/// Debugging information used in this time is not dropped for that of others: they would take
/// turns, and to read it takes seconds.
const IN_USE: Duration = Duration::from_secs(10);

/// Where the symbols of modules are.
#[derive(Debug)]
pub(crate) struct AllSources {
    library: Symbolizer,
    of_modules: Cache<ModuleId, Sources>,
    has_details: bool,
    is_told: bool,
}

/// A file with symbols.
#[derive(Debug)]
pub(super) struct Source {
    /// The path by which the library opens it.
    pub(super) path: PathBuf,
    /// Its debugging information may be read too.
    pub(super) has_details: bool,
}

/// Where the symbols of a module are, best first.
#[derive(Debug)]
struct Sources {
    module: Arc<Module>,
    /// Keeps the file open, under the number by which it is known to the library.
    _debug: Option<File>,
    files: Vec<Source>,
}

impl AllSources {
    /// Knows no file yet; all may take `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        let pages = sysconf(SysconfVar::_PHYS_PAGES).ok().flatten();
        let pages = pages.and_then(|pages| u64::try_from(pages).ok());
        let memory = pages.map(|pages| pages.saturating_mul(procfs::page_size()) / MEMORY_SHARE);
        let limit = memory.map_or(limit, |memory| memory.min(limit));
        Self {
            library: library(),
            of_modules: Cache::new(MODULES_LIMIT, limit),
            has_details: true,
            is_told: false,
        }
    }

    /// For names alone: reads no debugging information.
    pub(crate) fn without_details(limit: u64) -> Self {
        Self {
            has_details: false,
            ..Self::new(limit)
        }
    }

    /// The module, if its files are open.
    pub(crate) fn module(&self, id: ModuleId) -> Option<Arc<Module>> {
        Some(self.of_modules.peek(&id)?.module.clone())
    }

    /// The result of `look` for the first file with symbols of module `id` that gives one. It is
    /// given the library and the file.
    pub(super) fn find<T>(
        &mut self,
        id: ModuleId,
        look: impl Fn(&Symbolizer, &Source) -> Option<T>,
    ) -> Option<T> {
        let sources = self.of_modules.get(&id)?;
        let library = &self.library;
        let found = guard::reading(|| {
            let mut files = sources.files.iter();
            files.find_map(|source| look(library, source))
        });
        if found.is_none() {
            // What the library has half done is not used any more, nor are the files.
            sources.files.clear();
            self.begin_again();
        }
        found.flatten()
    }

    /// Opens the files of `module`, unless they are open.
    pub(crate) fn open(&mut self, module: &Arc<Module>) {
        if self.of_modules.peek(&module.id).is_some() {
            return;
        }
        let debug = debug_file::find(module);
        // Of the module itself not all headers are kept.
        let own = module.file();
        let own = own.and_then(|file| Some((file, Headers::read(file).ok()?)));
        let best = debug.as_ref().map(|(file, headers)| (file, headers));
        let all = best.into_iter();
        let all = all.chain(own.as_ref().map(|(file, headers)| (*file, headers)));
        let (mut files, mut bytes) = (Vec::new(), 0u64);
        for (file, headers) in all {
            let Some(vetted) = vet(headers, file) else {
                continue;
            };
            bytes = bytes.saturating_add(vetted.symbols);
            let details = vetted.details.filter(|_| self.has_details);
            let with_details = details.map(|details| bytes.saturating_add(details));
            let with_details = with_details.filter(|bytes| self.may_take(*bytes));
            files.push(Source {
                path: format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
                has_details: with_details.is_some(),
            });
            bytes = with_details.unwrap_or(bytes);
        }
        let mut sources = Sources {
            files,
            module: module.clone(),
            _debug: debug.map(|(file, _)| file),
        };
        if !self.make_room(bytes, Duration::ZERO) {
            // There is none for them alone.
            (sources.files, bytes) = (Vec::new(), 0);
            self.make_room(bytes, Duration::ZERO);
        }
        self.of_modules.insert(module.id, bytes, sources);
    }

    /// Whether there is room for `bytes`, debugging information among them.
    fn may_take(&mut self, bytes: u64) -> bool {
        let may = self.make_room(bytes, IN_USE);
        if !may && !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!(
                "the debugging information of the programs takes too much memory: \
                 some call stacks are without lines"
            );
        }
        may
    }

    /// Drops what was not used for the longest, and not for `idle`, until there is room for
    /// `bytes`. False if there is none without what is in use.
    fn make_room(&mut self, bytes: u64, idle: Duration) -> bool {
        while let Some(sources) = self.of_modules.displaced(bytes, idle) {
            // Before the files are closed: their numbers will be those of others.
            let library = &mut self.library;
            let evicted = guard::reading(|| {
                for source in &sources.files {
                    let file = evict::Elf::new(&source.path);
                    // Fails in no case.
                    let _ = library.evict(&Evict::Elf(file));
                }
            });
            if evicted.is_none() {
                self.begin_again();
            }
        }
        self.of_modules.has_room(bytes)
    }

    fn begin_again(&mut self) {
        let old = std::mem::replace(&mut self.library, library());
        // Whatever it holds may be in any state; to drop it may panic again.
        let _ = guard::reading(move || drop(old));
    }
}

fn library() -> Symbolizer {
    // Debugging information in other files is looked for here: beside the path that the process
    // knows, not beside the descriptor. Names are made readable here too: the library would make
    // gigabytes of some.
    Symbolizer::builder()
        .enable_auto_reload(false)
        .enable_demangling(false)
        .set_debug_dirs(Some(std::iter::empty::<PathBuf>()))
        .build()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn what_does_not_fit_is_read_without_details() {
        let program = Path::new("/proc/self/exe");
        let file = File::open(program).unwrap();
        let module = Arc::new(Module::of_file(program.into(), file));
        let mut all = AllSources::new(BYTES_LIMIT);
        let has_details = |all: &mut AllSources| {
            all.open(&module);
            all.find(module.id, |_, source| Some(source.has_details))
        };
        let headers = Headers::read(module.file().unwrap()).unwrap();
        let vetted = vet(&headers, module.file().unwrap()).unwrap();
        // Not for its names either.
        all.of_modules = Cache::new(MODULES_LIMIT, vetted.symbols - 1);
        assert_eq!(has_details(&mut all), None);
        let needed = vetted.symbols + vetted.details.unwrap();
        all.of_modules = Cache::new(MODULES_LIMIT, needed - 1);
        assert_eq!(has_details(&mut all), Some(false));
        assert!(all.is_told && !all.of_modules.has_room(needed - 1));
        let limit = 1 << 30;
        all.of_modules = Cache::new(MODULES_LIMIT, limit);
        assert_eq!(has_details(&mut all), Some(true));
        // Not for the details of others, which are soon wanted, but for their names.
        assert!(!all.make_room(limit, IN_USE) && all.of_modules.get(&module.id).is_some());
        assert!(all.make_room(limit, Duration::ZERO) && all.of_modules.get(&module.id).is_none());
        assert_eq!(has_details(&mut all), Some(true));
    }
}
