//! Files with symbols, and the library that reads them and keeps what it has read.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use blazesym::symbolize::Symbolizer;
use blazesym::symbolize::evict::{self, Evict};
use nix::unistd::{SysconfVar, sysconf};

use super::vet::{Allowed, Vetted, vet};
use super::{debug_file, guard};
use crate::Module;
use crate::elf::Headers;
use gpuprobe_model::stack::ModuleId;

/// Bytes that may be taken by what was read of all files: sections that were compressed, and lists
/// of symbols. A debug build of libtorch's takes the most.
const BYTES_LIMIT: u64 = 4 << 30;
/// But not more than this part of the machine's memory.
const MEMORY_SHARE: u64 = 4;
/// Modules whose files are open for their symbols.
const MODULES_LIMIT: usize = 4096;
/// What was used in this time is not dropped for the debugging information of others: they would
/// take turns, and to read it takes seconds.
const IN_USE: Duration = Duration::from_secs(10);

/// Where the symbols of modules are.
pub(super) struct AllSources {
    library: Symbolizer,
    of_modules: HashMap<ModuleId, Sources>,
    /// Bytes that they take together, and may.
    bytes: u64,
    limit: u64,
    is_told: bool,
}

/// Where the symbols of a module are, best first.
struct Sources {
    /// Keep the files open, under the numbers by which they are known to the library.
    _module: Arc<Module>,
    _debug: Option<File>,
    files: Vec<(PathBuf, Allowed)>,
    bytes: u64,
    used_at: Instant,
}

impl AllSources {
    /// Knows no file yet.
    pub(super) fn new() -> Self {
        let pages = sysconf(SysconfVar::_PHYS_PAGES).ok().flatten();
        let pages = pages.and_then(|pages| u64::try_from(pages).ok());
        let memory = pages.map(|pages| pages.saturating_mul(procfs::page_size()) / MEMORY_SHARE);
        Self {
            library: library(),
            of_modules: HashMap::new(),
            bytes: 0,
            limit: memory.map_or(BYTES_LIMIT, |memory| memory.min(BYTES_LIMIT)),
            is_told: false,
        }
    }

    /// What `look` finds in the first file with symbols of `module` that has it. It is given the
    /// library, the file and what may be read of it.
    pub(super) fn find<T>(
        &mut self,
        module: &Arc<Module>,
        look: impl Fn(&Symbolizer, &Path, Allowed) -> Option<T>,
    ) -> Option<T> {
        if !self.of_modules.contains_key(&module.id) {
            self.open(module);
        }
        let sources = self.of_modules.get_mut(&module.id)?;
        sources.used_at = Instant::now();
        let library = &self.library;
        let found = guard::reading(|| {
            let mut files = sources.files.iter();
            files.find_map(|(path, allowed)| look(library, path, *allowed))
        });
        if found.is_none() {
            // What the library has half done is not used any more, nor are the files.
            sources.files.clear();
            self.begin_again();
        }
        found.flatten()
    }

    /// Opens the files of `module`.
    fn open(&mut self, module: &Arc<Module>) {
        while self.of_modules.len() >= MODULES_LIMIT && self.drop_oldest(None) {}
        let mut sources = Sources {
            _module: module.clone(),
            _debug: None,
            files: Vec::new(),
            bytes: 0,
            used_at: Instant::now(),
        };
        if let Some((file, headers)) = debug_file::find(module) {
            self.add(&mut sources, &file, &headers);
            sources._debug = Some(file);
        }
        // Of the module itself not all headers are kept.
        if let Some(file) = module.file()
            && let Ok(headers) = Headers::read(file)
        {
            self.add(&mut sources, file, &headers);
        }
        self.bytes = self.bytes.saturating_add(sources.bytes);
        self.of_modules.insert(module.id, sources);
    }

    fn add(&mut self, sources: &mut Sources, file: &File, headers: &Headers) {
        let Vetted {
            mut allowed,
            symbols,
            details,
        } = vet(headers, file);
        if allowed == Allowed::Nothing {
            return;
        }
        // They are counted before the module's others are.
        let taken = sources.bytes.saturating_add(symbols);
        let with_details = taken.saturating_add(details);
        if allowed == Allowed::Everything && !self.make_room(with_details, Some(IN_USE)) {
            allowed = Allowed::Symbols;
            if !std::mem::replace(&mut self.is_told, true) {
                tracing::warn!(
                    "the debugging information of the programs takes too much memory: \
                     some call stacks are without lines"
                );
            }
        }
        sources.bytes = match allowed {
            Allowed::Everything => with_details,
            _ => taken,
        };
        self.make_room(sources.bytes, None);
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        sources.files.push((path.into(), allowed));
    }

    /// Drops what was not used for the longest, until there is room for `bytes`. False if there is
    /// none without what is in use.
    fn make_room(&mut self, bytes: u64, in_use: Option<Duration>) -> bool {
        if bytes > self.limit {
            return false;
        }
        while self.bytes.saturating_add(bytes) > self.limit {
            if !self.drop_oldest(in_use) {
                return false;
            }
        }
        true
    }

    /// Drops the sources that were not used for the longest, unless they are `in_use`.
    fn drop_oldest(&mut self, in_use: Option<Duration>) -> bool {
        let oldest = self.of_modules.iter().min_by_key(|(_, s)| s.used_at);
        let oldest = oldest.filter(|(_, s)| in_use.is_none_or(|time| s.used_at.elapsed() > time));
        let Some(sources) = oldest
            .map(|(id, _)| *id)
            .and_then(|id| self.of_modules.remove(&id))
        else {
            return false;
        };
        self.bytes -= sources.bytes;
        // Before the files are closed: their numbers will be those of others.
        let library = &mut self.library;
        let evicted = guard::reading(|| {
            for (path, _) in &sources.files {
                let file = evict::Elf::new(path);
                // Fails in no case.
                let _ = library.evict(&Evict::Elf(file));
            }
        });
        if evicted.is_none() {
            self.begin_again();
        }
        true
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

    #[test]
    fn what_does_not_fit_is_read_without_details() {
        let program = Path::new("/proc/self/exe");
        let file = File::open(program).unwrap();
        let module = Arc::new(Module::of_file(program.into(), file));
        let mut all = AllSources::new();
        all.limit = 1;
        let allowed = |all: &mut AllSources| all.find(&module, |_, _, allowed| Some(allowed));
        assert_eq!(allowed(&mut all), Some(Allowed::Symbols));
        assert!(all.is_told && all.bytes > 0);
        assert!(all.drop_oldest(None));
        assert!(all.bytes == 0 && !all.drop_oldest(None));
        all.limit = 1 << 30;
        assert_eq!(allowed(&mut all), Some(Allowed::Everything));
        // Not for the details of others, which are soon wanted, but for their names.
        let too_much = all.limit - all.bytes + 1;
        assert!(!all.make_room(too_much, Some(IN_USE)) && all.bytes > 0);
        assert!(all.make_room(too_much, None) && all.bytes == 0);
        assert_eq!(allowed(&mut all), Some(Allowed::Everything));
    }
}
