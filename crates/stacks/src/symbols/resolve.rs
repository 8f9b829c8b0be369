//! Symbolisation of locations by a reader process, which may fail on a file.

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use super::debug_file::DebugFileSearch;
use super::demangle::{NAME_LIMIT, beginning};
use super::{ResolvedFrames, SymbolRequest};
use crate::Module;
use crate::helper::{FileReader, OpenFile, ProcessReader, Request, SymbolName, Wanted};
use gpuprobe_model::stack::{Frame, JIT, Language, ModuleId, bare_frame};

/// Maximum number of cached modules.
const MODULES_LIMIT: NonZeroUsize = NonZeroUsize::new(512).unwrap();
/// Maximum number of open perf maps; open ones can be read after their processes have ended.
const MAPS_LIMIT: NonZeroUsize = NonZeroUsize::new(32).unwrap();
/// Minimum interval of looking for the map of a process.
const PAUSE: Duration = Duration::from_millis(100);

/// Symbolises locations, on a single thread.
#[derive(Debug)]
pub struct Symbolizer {
    reader: FileReader,
    opener: ProcessReader,
    of_modules: LruCache<ModuleId, SymbolSources>,
    /// With the numbers by which the reader knows them.
    maps: LruCache<u32, (u64, OpenFile)>,
    /// How many processes have had maps.
    count: u64,
    /// The process whose map was looked for last.
    looked_for: Option<(u32, Instant)>,
}

/// The files with the symbols of a module.
#[derive(Debug)]
struct SymbolSources {
    module: Arc<Module>,
    /// Its own file, the one with the best symbols, and the supplementary one, which holds DWARF shared with others.
    files: Vec<OpenFile>,
}

impl Symbolizer {
    /// An empty cache; `reader` reads symbols, `opener` opens debug files and perf maps.
    pub fn new(reader: FileReader, opener: ProcessReader) -> Self {
        Self {
            reader,
            opener,
            of_modules: LruCache::new(MODULES_LIMIT),
            maps: LruCache::new(MAPS_LIMIT),
            count: 0,
            looked_for: None,
        }
    }

    /// The files with the symbols of a module.
    fn sources(&self, module: &Arc<Module>) -> SymbolSources {
        let files = module.opened().map(|own| {
            let search = DebugFileSearch {
                reader: &self.reader,
                opener: &self.opener,
                pid: module.pid,
                owner: own.owner,
            };
            let debug = search.debug_file(own, module.build_id());
            let better = debug.unwrap_or_else(|| own.clone());
            let supplement = search.supplement(&better);
            [own.clone(), better]
                .into_iter()
                .chain(supplement)
                .collect()
        });
        SymbolSources {
            module: module.clone(),
            files: files.unwrap_or_default(),
        }
    }

    /// Nobody has the file of this module mapped any more: it is not to be kept open.
    pub fn close(&mut self, module: ModuleId) {
        self.of_modules.pop(&module);
    }

    /// The frames at the requested location, which is in `module`, if it is in one.
    pub fn answer(
        &mut self,
        request: SymbolRequest,
        module: Option<&Arc<Module>>,
    ) -> ResolvedFrames {
        if let Some(module) = module
            && !self.of_modules.contains(&module.id)
        {
            self.of_modules.put(module.id, self.sources(module));
        }
        let frames = self.frames(&request);
        ResolvedFrames { request, frames }
    }

    /// Sets the open perf map of process `pid`, which can be read after the process has ended.
    pub fn keep_perf_map(&mut self, pid: u32, file: Option<File>) {
        let path = format!("the perf map of process {pid}");
        if let Some(file) = file.and_then(|file| OpenFile::new(file, Path::new(&path))) {
            let known = self.maps.get(&pid).map(|(number, _)| *number);
            let number = known.unwrap_or(self.count);
            self.count += 1;
            self.maps.put(pid, (number, file));
        }
    }

    /// Drops the perf map of a process that has ended or called exec.
    pub fn forget(&mut self, pid: u32) {
        self.maps.pop(&pid);
        self.looked_for = None;
    }

    fn frames(&mut self, request: &SymbolRequest) -> Vec<Frame> {
        let SymbolRequest { pid, location, .. } = request;
        let step = u64::from(!request.is_innermost);
        let Some(id) = location.module else {
            let name = self.jit_symbol(*pid, location.address.wrapping_sub(step));
            let frame = name.map(|name| jit_frame(&name, location.address));
            return vec![frame.unwrap_or_else(|| bare_frame(location))];
        };
        // Evicted from the cache.
        let Some(SymbolSources { module, files }) = self.of_modules.get(&id) else {
            return vec![bare_frame(location)];
        };
        let offset = location.offset.wrapping_sub(step);
        let headers = module.headers().ok();
        let address = headers.and_then(|headers| headers.segments.address_of(offset));
        let named = address.and_then(|address| names(&self.reader, files, address));
        let mut named = named.unwrap_or_default();
        if named.is_empty() {
            // The virtual address, as addr2line takes it.
            let place = address.unwrap_or(offset).wrapping_add(step);
            named.push(SymbolName {
                function: format!("{}+{place:#x}", beginning(&module.name(), NAME_LIMIT)),
                ..SymbolName::default()
            });
        }
        let path = module.path.to_string_lossy();
        let frame = |named: SymbolName| Frame {
            function: named.function,
            file: named.file,
            line: named.line,
            inlined: named.inlined,
            module: beginning(&path, NAME_LIMIT),
            address: location.address,
            ..Frame::default()
        };
        named.into_iter().map(frame).collect()
    }

    /// The JIT symbol of `pid` at `address`, from the map that is open, or else from one that is there by now.
    fn jit_symbol(&mut self, pid: u32, address: u64) -> Option<String> {
        self.in_map(pid, address).or_else(|| {
            let lately = |(last, at): (u32, Instant)| last == pid && at.elapsed() < PAUSE;
            if self.looked_for.is_some_and(lately) {
                return None;
            }
            self.looked_for = Some((pid, Instant::now()));
            let found = self.opener.open(&Wanted::PerfMap(pid), None)?;
            self.keep_perf_map(pid, Some(found));
            self.in_map(pid, address)
        })
    }

    fn in_map(&mut self, pid: u32, address: u64) -> Option<String> {
        let (number, map) = self.maps.get(&pid)?;
        let request = Request::JitSymbol(*number, address);
        self.reader.ask(&[map], &request)?
    }
}

/// The functions at an address of a module, with debug information, or without it if that cannot be read.
fn names(reader: &FileReader, files: &[OpenFile], address: u64) -> Option<Vec<SymbolName>> {
    let files: Vec<_> = files.iter().collect();
    files.first()?;
    let ask = |with_details| reader.answer(&files, &Request::Names(address, with_details));
    let names: Option<Option<_>> = match ask(true).ok()? {
        None => ask(false).ok()?,
        names => names,
    };
    names?
}

/// The frame of a JIT-compiled function. `CPython` names them `py::FUNCTION:FILE`.
fn jit_frame(name: &str, address: u64) -> Frame {
    let of_python = name
        .strip_prefix("py::")
        .and_then(|name| name.split_once(':'));
    let (function, file, language) = match of_python {
        Some((function, file)) => (function, Some(file.to_owned()), Language::Python),
        None => (name, None, Language::Native),
    };
    Frame {
        function: function.to_owned(),
        file,
        language,
        module: JIT.to_owned(),
        address,
        ..Frame::default()
    }
}

#[cfg(test)]
mod tests;
