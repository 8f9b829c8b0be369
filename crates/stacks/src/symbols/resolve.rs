//! Symbolisation of locations by a reader process, which may fail on a file.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::debug_file::DebugFileSearch;
use super::demangle::beginning_of;
use super::{ResolvedFrames, SymbolRequest};
use crate::Module;
use crate::cache::Cache;
use crate::helper::{FileReader, NumberedFile, Opener, Request, SymbolName, Wanted, WantedNames};
use gpuprobe_model::stack::{Frame, JIT, Language, Location, ModuleId, bare_frame};

/// Maximum number of cached locations, and of the bytes of their frames.
const CACHE_LIMIT: usize = 1 << 18;
const CACHE_BYTES: usize = 24 << 20;
/// Maximum number of cached modules.
const MODULES_LIMIT: usize = 512;
/// Maximum number of open perf maps; open ones can be read after their processes have ended.
const MAPS_LIMIT: usize = 32;
/// Maximum number of processes whose map was looked for, and the minimum interval of doing so.
const LOOKED_LIMIT: usize = 4096;
const PAUSE: Duration = Duration::from_millis(100);

/// Symbolises locations, on a single thread.
#[derive(Debug)]
pub struct Symbolizer {
    reader: FileReader,
    opener: Opener,
    of_modules: Cache<ModuleId, SymbolSources>,
    cache: HashMap<(ModuleId, u64), Arc<[SymbolName]>>,
    /// Bytes of the cached frames.
    bytes: usize,
    maps: Cache<u32, NumberedFile>,
    looked_for: HashMap<u32, Instant>,
}

/// The files with the symbols of a module.
#[derive(Debug)]
struct SymbolSources {
    module: Arc<Module>,
    debug: Option<Module>,
    /// Supplementary debug file, which holds DWARF shared with other files.
    supplement: Option<Module>,
    /// Whether to read its debug information.
    has_details: bool,
}

fn bytes_of(named: &SymbolName) -> usize {
    let file = named.file.as_ref().map_or(0, String::len);
    size_of::<SymbolName>() + named.function.len() + file
}

impl Symbolizer {
    /// An empty cache; `reader` reads symbols, `opener` opens debug files and perf maps.
    pub fn new(reader: FileReader, opener: Opener) -> Self {
        Self {
            reader,
            opener,
            of_modules: Cache::new(MODULES_LIMIT, u64::MAX),
            cache: HashMap::new(),
            bytes: 0,
            maps: Cache::new(MAPS_LIMIT, u64::MAX),
            looked_for: HashMap::new(),
        }
    }

    /// Adds the module of the next request.
    pub fn open(&mut self, module: &Arc<Module>) {
        if self.of_modules.get(&module.id).is_some() {
            return;
        }
        let search = DebugFileSearch {
            module,
            reader: &self.reader,
            opener: &self.opener,
        };
        let debug = search.find();
        let sources = SymbolSources {
            supplement: search.supplement(debug.as_ref().unwrap_or(module)),
            debug,
            module: module.clone(),
            has_details: true,
        };
        while let Some(displaced) = self.of_modules.displaced(0, Duration::ZERO) {
            self.close_files(&displaced);
        }
        self.of_modules.insert(module.id, 0, sources);
    }

    /// Nobody has the file of this module mapped any more: it is not to be kept open.
    pub fn close(&mut self, module: ModuleId) {
        if let Some(sources) = self.of_modules.remove(&module) {
            self.close_files(&sources);
        }
    }

    fn close_files(&self, sources: &SymbolSources) {
        let others = [&sources.debug, &sources.supplement].into_iter().flatten();
        let files = others
            .chain([&*sources.module])
            .filter_map(Module::numbered);
        files.for_each(|file| self.reader.close(file));
    }

    /// The frames at the requested location.
    pub fn answer(&mut self, request: SymbolRequest) -> ResolvedFrames {
        let frames = self.frames(&request);
        ResolvedFrames { request, frames }
    }

    /// Sets the open perf map of process `pid`, which can be read after the process has ended.
    pub fn keep_perf_map(&mut self, pid: u32, file: Option<File>) {
        let identity = |file: &File| {
            let metadata = file.metadata();
            metadata.map(|found| (found.dev(), found.ino())).ok()
        };
        let found = file.as_ref().and_then(identity);
        let known = self.maps.get(&pid).and_then(|known| identity(&known.file));
        if found.is_none() || known == found {
            return;
        }
        let path = format!("the perf map of process {pid}");
        if let Some(file) = file.and_then(|file| NumberedFile::new(file, Path::new(&path))) {
            self.close_perf_map(pid);
            while let Some(displaced) = self.maps.displaced(0, Duration::ZERO) {
                self.reader.close(&displaced);
            }
            self.maps.insert(pid, 0, file);
        }
    }

    fn close_perf_map(&mut self, pid: u32) {
        if let Some(map) = self.maps.remove(&pid) {
            self.reader.close(&map);
        }
    }

    /// Drops the perf map of a process that has ended or called exec.
    pub fn forget(&mut self, pid: u32) {
        self.close_perf_map(pid);
        self.looked_for.remove(&pid);
    }

    fn frames(&mut self, request: &SymbolRequest) -> Vec<Frame> {
        let SymbolRequest { pid, location, .. } = request;
        let step = u64::from(!request.is_innermost);
        let Some(id) = location.module else {
            return vec![self.without_module(*pid, location.address, step)];
        };
        // Evicted from the cache.
        let Some(sources) = self.of_modules.get(&id) else {
            return vec![bare_frame(location)];
        };
        let module = sources.module.clone();
        let named = self.named(&module, location.offset.wrapping_sub(step), step);
        let path = module.path.to_string_lossy();
        let frame = |named: &SymbolName| Frame {
            function: named.function.clone(),
            file: named.file.clone(),
            line: named.line,
            module: beginning_of(&path),
            address: location.address,
            source: None,
            language: Language::Native,
            inlined: named.inlined,
        };
        named.iter().map(frame).collect()
    }

    fn without_module(&mut self, pid: u32, address: u64, step: u64) -> Frame {
        let before = address.wrapping_sub(step);
        let mut name = self.jit_symbol(pid, before);
        if name.is_none() && self.look_for_map(pid) {
            name = self.jit_symbol(pid, before);
        }
        match name {
            Some(name) => jit_frame(name, address),
            None => bare_frame(&Location {
                address,
                module: None,
                offset: 0,
            }),
        }
    }

    /// The JIT symbol of `pid` at `address`, from the maps read so far.
    fn jit_symbol(&mut self, pid: u32, address: u64) -> Option<String> {
        let map = self.maps.get(&pid)?;
        self.reader
            .ask(&[map], &Request::JitSymbol(map.number, address))?
    }

    /// Looks for the map of `pid`, at most once per [`PAUSE`]. Returns whether there is one.
    fn look_for_map(&mut self, pid: u32) -> bool {
        let lately = |at: &Instant| at.elapsed() < PAUSE;
        if self.looked_for.get(&pid).is_some_and(lately) {
            return false;
        }
        if self.looked_for.len() >= LOOKED_LIMIT {
            self.looked_for.clear();
        }
        self.looked_for.insert(pid, Instant::now());
        let found = self.opener.open(&Wanted::PerfMap(pid), None);
        let is_found = found.is_some();
        self.keep_perf_map(pid, found);
        is_found
    }

    /// The functions at file offset `offset`.
    fn named(&mut self, module: &Arc<Module>, offset: u64, step: u64) -> Arc<[SymbolName]> {
        let key = (module.id, offset);
        if let Some(known) = self.cache.get(&key) {
            return known.clone();
        }
        let headers = module.headers().ok();
        let address = headers.and_then(|headers| headers.segments.address_of(offset));
        let found = address.and_then(|address| self.look_up(module.id, address));
        // The virtual address, as addr2line takes it.
        let place = address.unwrap_or(offset).wrapping_add(step);
        let unnamed = || SymbolName {
            function: format!("{}+{place:#x}", beginning_of(&module.name())),
            file: None,
            line: None,
            inlined: false,
        };
        let found = found.filter(|found| !found.is_empty());
        let named: Arc<[SymbolName]> = found.unwrap_or_else(|| vec![unnamed()]).into();
        if self.cache.len() >= CACHE_LIMIT || self.bytes >= CACHE_BYTES {
            self.cache.clear();
            self.bytes = 0;
        }
        self.bytes += named.iter().map(bytes_of).sum::<usize>();
        self.cache.insert(key, named.clone());
        named
    }

    /// Requests the functions at an address of a module, with debug information, or without it if reading
    /// it fails.
    fn look_up(&mut self, id: ModuleId, address: u64) -> Option<Vec<SymbolName>> {
        let sources = self.of_modules.get(&id)?;
        let own = sources.module.numbered()?;
        let debug = sources.debug.as_ref().and_then(Module::numbered);
        let supplement = sources.supplement.as_ref().and_then(Module::numbered);
        let files: Vec<_> = debug.into_iter().chain([own]).collect();
        let given: Vec<_> = files.iter().copied().chain(supplement).collect();
        loop {
            let names = WantedNames {
                module: own.number,
                files: files.iter().map(|file| file.number).collect(),
                supplement: supplement.map(|file| file.number),
                address,
                with_details: sources.has_details,
            };
            let failed = match self.reader.attempt(&given, &Request::Names(names)) {
                Ok(answer) => return answer.flatten(),
                Err(failed) => failed,
            };
            let path = sources.module.path.display();
            if !failed.was_fresh {
                // Files read before may have exceeded the reader's limits.
                tracing::debug!("{path}: retrying with a new reader");
            } else if std::mem::take(&mut sources.has_details) {
                tracing::warn!(
                    "{path}: cannot read its debug information; its functions are shown without \
                     source lines"
                );
            } else {
                if failed.is_fault {
                    self.reader.deny(own, "ends whoever does");
                }
                return None;
            }
        }
    }
}

/// The frame of a JIT-compiled function. `CPython` names them `py::FUNCTION:FILE`.
fn jit_frame(name: String, address: u64) -> Frame {
    let of_python = name
        .strip_prefix("py::")
        .and_then(|name| name.split_once(':'));
    let (function, file, language) = match of_python {
        Some((function, file)) => (function.to_owned(), Some(file.to_owned()), Language::Python),
        None => (name, None, Language::Native),
    };
    Frame {
        function,
        file,
        line: None,
        module: JIT.to_owned(),
        address,
        source: None,
        language,
        inlined: false,
    }
}

#[cfg(test)]
mod tests;
