//! Symbolisation of locations by a reader process, which may fail on a file.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use super::debug_file::DebugFileSearch;
use super::demangle::{NAME_LIMIT, beginning};
use super::{ResolvedFrames, SymbolRequest};
use crate::Module;
use crate::helper::{
    Failure, FileReader, NumberedFile, Opener, Request, SymbolName, Wanted, WantedNames,
};
use gpuprobe_model::stack::{Frame, JIT, Language, ModuleId, bare_frame};

/// Maximum number of cached modules.
const MODULES_LIMIT: usize = 512;
/// Maximum number of open perf maps; open ones can be read after their processes have ended.
const MAPS_LIMIT: usize = 32;
/// Minimum interval of looking for the map of a process.
const PAUSE: Duration = Duration::from_millis(100);

/// Symbolises locations, on a single thread.
#[derive(Debug)]
pub struct Symbolizer {
    reader: FileReader,
    opener: Opener,
    of_modules: LruCache<ModuleId, SymbolSources>,
    maps: LruCache<u32, NumberedFile>,
    /// The process whose map was looked for last.
    looked_for: Option<(u32, Instant)>,
}

/// The files with the symbols of a module.
#[derive(Debug)]
struct SymbolSources {
    module: Arc<Module>,
    /// Its own file, the debug file, and the supplementary one, which holds DWARF shared with others.
    files: [Option<NumberedFile>; 3],
    /// Whether to read its debug information.
    has_details: bool,
}

impl Symbolizer {
    /// An empty cache; `reader` reads symbols, `opener` opens debug files and perf maps.
    pub fn new(reader: FileReader, opener: Opener) -> Self {
        Self {
            reader,
            opener,
            of_modules: LruCache::unbounded(),
            maps: LruCache::unbounded(),
            looked_for: None,
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
        let supplement = search.supplement(debug.as_ref().unwrap_or(module));
        let files = [Some(&**module), debug.as_ref(), supplement.as_ref()];
        let sources = SymbolSources {
            files: files.map(|file| file?.numbered().cloned()),
            module: module.clone(),
            has_details: true,
        };
        self.of_modules.put(module.id, sources);
        if self.of_modules.len() > MODULES_LIMIT
            && let Some((_, displaced)) = self.of_modules.pop_lru()
        {
            self.close_files(&displaced);
        }
    }

    /// Nobody has the file of this module mapped any more: it is not to be kept open.
    pub fn close(&mut self, module: ModuleId) {
        if let Some(sources) = self.of_modules.pop(&module) {
            self.close_files(&sources);
        }
    }

    fn close_files(&self, sources: &SymbolSources) {
        let files = sources.files.iter().flatten();
        files.for_each(|file| self.reader.close(file));
    }

    /// The frames at the requested location.
    pub fn answer(&mut self, request: SymbolRequest) -> ResolvedFrames {
        let frames = self.frames(&request);
        ResolvedFrames { request, frames }
    }

    /// Sets the open perf map of process `pid`, which can be read after the process has ended.
    pub fn keep_perf_map(&mut self, pid: u32, file: Option<File>) {
        let path = format!("the perf map of process {pid}");
        let Some(file) = file.and_then(|file| NumberedFile::new(file, Path::new(&path))) else {
            return;
        };
        let identity = |file: &File| file.metadata().ok().map(|found| (found.dev(), found.ino()));
        let known = self.maps.get(&pid).and_then(|known| identity(&known.file));
        if known != identity(&file.file) {
            self.close_perf_map(pid);
            self.maps.put(pid, file);
            if self.maps.len() > MAPS_LIMIT
                && let Some((_, displaced)) = self.maps.pop_lru()
            {
                self.reader.close(&displaced);
            }
        }
    }

    fn close_perf_map(&mut self, pid: u32) {
        if let Some(map) = self.maps.pop(&pid) {
            self.reader.close(&map);
        }
    }

    /// Drops the perf map of a process that has ended or called exec.
    pub fn forget(&mut self, pid: u32) {
        self.close_perf_map(pid);
        self.looked_for = None;
    }

    fn frames(&mut self, request: &SymbolRequest) -> Vec<Frame> {
        let SymbolRequest { pid, location, .. } = request;
        let step = u64::from(!request.is_innermost);
        let Some(id) = location.module else {
            let name = self.jit_symbol(*pid, location.address.wrapping_sub(step));
            let frame = name.map(|name| jit_frame(name, location.address));
            return vec![frame.unwrap_or_else(|| bare_frame(location))];
        };
        // Evicted from the cache.
        let Some(sources) = self.of_modules.get(&id) else {
            return vec![bare_frame(location)];
        };
        let module = sources.module.clone();
        let offset = location.offset.wrapping_sub(step);
        let headers = module.headers().ok();
        let address = headers.and_then(|headers| headers.segments.address_of(offset));
        let found = address.and_then(|address| self.look_up(id, address));
        let unnamed = || {
            // The virtual address, as addr2line takes it.
            let place = address.unwrap_or(offset).wrapping_add(step);
            let function = format!("{}+{place:#x}", beginning(&module.name(), NAME_LIMIT));
            vec![SymbolName {
                function,
                ..SymbolName::default()
            }]
        };
        let found = found.filter(|found| !found.is_empty());
        let named = found.unwrap_or_else(unnamed);
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
            let lately = |(last, at): &(u32, Instant)| *last == pid && at.elapsed() < PAUSE;
            if self.looked_for.as_ref().is_some_and(lately) {
                return None;
            }
            self.looked_for = Some((pid, Instant::now()));
            let found = self.opener.open(&Wanted::PerfMap(pid), None)?;
            self.keep_perf_map(pid, Some(found));
            self.in_map(pid, address)
        })
    }

    fn in_map(&mut self, pid: u32, address: u64) -> Option<String> {
        let map = self.maps.get(&pid)?;
        self.reader
            .ask(&[map], &Request::JitSymbol(map.number, address))?
    }

    /// Requests the functions at an address of a module, with debug information, or without it if reading
    /// it fails.
    fn look_up(&mut self, id: ModuleId, address: u64) -> Option<Vec<SymbolName>> {
        let sources = self.of_modules.get_mut(&id)?;
        let [Some(own), debug, supplement] = &sources.files else {
            return None;
        };
        let files: Vec<_> = sources.files.iter().flatten().collect();
        loop {
            let request = Request::Names(WantedNames {
                module: own.number,
                debug: debug.as_ref().map(|file| file.number),
                supplement: supplement.as_ref().map(|file| file.number),
                address,
                with_details: sources.has_details,
            });
            match self.reader.attempt(&files, &request) {
                Ok(answer) => return answer.flatten(),
                Err(Failure::NotNow) => return None,
                Err(_) if std::mem::take(&mut sources.has_details) => tracing::warn!(
                    "{}: cannot read its debug information; its functions are shown without \
                     source lines",
                    sources.module.path.display()
                ),
                Err(failure) => {
                    self.reader.deny(own, failure);
                    return None;
                }
            }
        }
    }
}

/// The frame of a JIT-compiled function. `CPython` names them `py::FUNCTION:FILE`.
fn jit_frame(name: String, address: u64) -> Frame {
    let frame = Frame {
        module: JIT.to_owned(),
        address,
        ..Frame::default()
    };
    let of_python = name
        .strip_prefix("py::")
        .and_then(|name| name.split_once(':'));
    match of_python {
        Some((function, file)) => Frame {
            function: function.to_owned(),
            file: Some(file.to_owned()),
            language: Language::Python,
            ..frame
        },
        None => Frame {
            function: name,
            ..frame
        },
    }
}

#[cfg(test)]
mod tests;
