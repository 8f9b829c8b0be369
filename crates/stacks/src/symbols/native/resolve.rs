//! Making frames of locations.

use std::collections::HashMap;
use std::sync::Arc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized};

use super::perf_map::PerfMaps;
use super::sources::{AllSources, BYTES_LIMIT, Source as File};
use super::{Answer, Request, Symbolize};
use crate::Module;
use crate::symbols::demangle::{NAME_LIMIT, beginning, beginning_of, function_name};
use gpuprobe_model::stack::{Frame, JIT, Language, Location, ModuleId, bare_frame};

/// Places whose frames are remembered, and bytes that they take.
const CACHE_LIMIT: usize = 1 << 18;
const CACHE_BYTES: usize = 128 << 20;
/// Functions that can be inlined at one place.
const INLINED_LIMIT: usize = 256;
/// Bytes of all names at one place: of so many functions that are inlined into each other, names
/// are shortened.
const PLACE_LIMIT: usize = 256 << 10;

/// Names the functions at locations, for one thread.
pub struct Symbolizer {
    sources: AllSources,
    cache: HashMap<(ModuleId, u64), Arc<[Named]>>,
    /// Bytes that the frames take that are remembered.
    bytes: usize,
    perf_maps: PerfMaps,
}

/// A frame, wherever its module is in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    function: String,
    file: Option<String>,
    line: Option<u32>,
    inlined: bool,
}

impl Named {
    fn bytes(&self) -> usize {
        let file = self.file.as_ref().map_or(0, String::len);
        size_of::<Self>() + self.function.len() + file
    }
}

impl Default for Symbolizer {
    fn default() -> Self {
        Self::new()
    }
}

impl Symbolizer {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self {
            sources: AllSources::new(BYTES_LIMIT),
            cache: HashMap::new(),
            bytes: 0,
            perf_maps: PerfMaps::default(),
        }
    }

    fn frames(&mut self, request: &Request) -> Vec<Frame> {
        let Request { pid, location, .. } = request;
        let step = u64::from(!request.is_innermost);
        let Some(id) = location.module else {
            return vec![self.without_module(*pid, location.address, step)];
        };
        // The file was known once.
        let Some(module) = self.sources.module(id) else {
            return vec![bare_frame(location)];
        };
        let named = self.named(&module, location.offset.wrapping_sub(step), step);
        let path = module.path.to_string_lossy();
        let frame = |named: &Named| Frame {
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
        match self.perf_maps.name(pid, address.wrapping_sub(step)) {
            Some(name) => made_at_run_time(name, address),
            None => bare_frame(&Location {
                address,
                module: None,
                offset: 0,
            }),
        }
    }

    /// The functions at `offset` in the file.
    fn named(&mut self, module: &Arc<Module>, offset: u64, step: u64) -> Arc<[Named]> {
        let key = (module.id, offset);
        if let Some(known) = self.cache.get(&key) {
            return known.clone();
        }
        let address = module
            .headers()
            .ok()
            .and_then(|h| h.segments.address_of(offset));
        let sources = &mut self.sources;
        let found = address.and_then(|address| {
            sources.find(module.id, |library, file| {
                look_up(library, file, module, address)
            })
        });
        // As addr2line wants it.
        let place = address.unwrap_or(offset).wrapping_add(step);
        let unnamed = || Named {
            function: format!("{}+{place:#x}", beginning_of(&module.name())),
            file: None,
            line: None,
            inlined: false,
        };
        let named: Arc<[Named]> = found.unwrap_or_else(|| vec![unnamed()]).into();
        if self.cache.len() >= CACHE_LIMIT || self.bytes >= CACHE_BYTES {
            self.cache.clear();
            self.bytes = 0;
        }
        self.bytes += named.iter().map(Named::bytes).sum::<usize>();
        self.cache.insert(key, named.clone());
        named
    }
}

impl Symbolize for Symbolizer {
    fn open(&mut self, module: &Arc<Module>) {
        self.sources.open(module);
    }

    fn answer(&mut self, request: Request) -> Answer {
        let frames = self.frames(&request);
        Answer { request, frames }
    }

    fn keep_perf_map(&mut self, pid: u32, file: std::fs::File) {
        self.perf_maps.keep(pid, file);
    }

    fn forget(&mut self, pid: u32) {
        self.perf_maps.forget(pid);
    }
}

impl AllSources {
    /// The mangled name of the function at `offset` of `module`, which is open.
    pub(crate) fn symbol(&mut self, module: &Module, offset: u64) -> Option<String> {
        let address = module.headers().ok()?.segments.address_of(offset)?;
        self.find(module.id, |library, file| {
            let symbol = find(library, file, address, false)?;
            is_at(&symbol, module, address).then(|| symbol.name.into_owned())
        })
    }
}

/// The frame of a function that a runtime has made and called `name`. `CPython`'s are
/// `py::FUNCTION:FILE`.
fn made_at_run_time(name: String, address: u64) -> Frame {
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

/// The function at `address` of a file, after its debugging information or its symbols.
fn find<'library>(
    library: &'library blazesym::symbolize::Symbolizer,
    file: &File,
    address: u64,
    debug_syms: bool,
) -> Option<Sym<'library>> {
    let mut elf = Elf::new(&file.path);
    elf.debug_syms = debug_syms;
    match library.symbolize_single(&Source::Elf(elf), Input::VirtOffset(address)) {
        Ok(Symbolized::Sym(symbol)) => Some(symbol),
        _ => None,
    }
}

fn look_up(
    library: &blazesym::symbolize::Symbolizer,
    file: &File,
    module: &Module,
    address: u64,
) -> Option<Vec<Named>> {
    let find = |debug_syms| find(library, file, address, debug_syms);
    let symbol = find(false).filter(|symbol| is_at(symbol, module, address));
    let detailed = file.has_details.then(|| find(true)).flatten();
    // Of functions that are in several parts, the library does not say where they begin.
    let in_parts = |symbol: &Sym<'_>| symbol.addr == 0 && symbol.code_info.is_some();
    let detailed = detailed.filter(|found| is_at(found, module, address) || in_parts(found));
    let mut frames = named(detailed.as_ref().or(symbol.as_ref())?);
    // Symbols have the whole name; debugging information may have `operator()` alone.
    if let (Some(symbol), Some(outer)) = (symbol, frames.last_mut()) {
        outer.function = function_name(&symbol.name, NAME_LIMIT);
    }
    let is_named = |frame: &Named| !frame.function.is_empty();
    frames.last().is_some_and(is_named).then_some(frames)
}

/// Whether the symbol is that of the function at `address`, not of one that stands before it.
fn is_at(symbol: &Sym<'_>, module: &Module, address: u64) -> bool {
    let Some(distance) = address.checked_sub(symbol.addr) else {
        return false;
    };
    match symbol.size {
        Some(size) => u64::try_from(size).is_ok_and(|size| distance < size),
        // Assembly code often does not say how large its functions are; the unwinding tables do.
        None => {
            let tables = (distance > 0).then(|| module.tables()).flatten();
            let start = tables.and_then(|tables| tables.function_start(address));
            distance == 0 || start == Some(symbol.addr)
        }
    }
}

fn named(symbol: &Sym<'_>) -> Vec<Named> {
    let count = symbol.inlined.len().min(INLINED_LIMIT) + 1;
    // Half of it for their files.
    let limit = (PLACE_LIMIT / count / 2).min(NAME_LIMIT);
    let one = |name: &str, code: Option<&CodeInfo<'_>>, inlined| Named {
        function: function_name(name, limit),
        file: code.map(|code| beginning(&code.to_path().to_string_lossy(), limit)),
        line: code.and_then(|code| code.line).filter(|&line| line > 0),
        inlined,
    };
    // The library lists them outermost first.
    let inlined = symbol.inlined.iter().rev().take(INLINED_LIMIT);
    let inlined = inlined.map(|f| one(&f.name, f.code_info.as_ref(), true));
    let itself = one(&symbol.name, symbol.code_info.as_deref(), false);
    inlined.chain([itself]).collect()
}

/// Names the functions at some places of `file`, for tests with files that are not to be trusted.
/// Gives how many frames there were.
#[doc(hidden)]
pub fn try_symbols(file: &[u8]) -> std::io::Result<usize> {
    let memory = gpuprobe_os::bounded::file_of(file)?;
    let module = Arc::new(Module::of_file("/nowhere/elf".into(), memory));
    let mut symbolizer = Symbolizer::new();
    symbolizer.open(&module);
    let step = (file.len() / 64).max(1);
    let places = (0..file.len())
        .step_by(step)
        .filter_map(|at| u64::try_from(at).ok());
    let frames = places.map(|offset| {
        let location = Location {
            address: offset,
            module: Some(module.id),
            offset,
        };
        let request = Request {
            pid: 1,
            location,
            is_innermost: false,
        };
        symbolizer.frames(&request).len()
    });
    Ok(frames.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_python_are_functions_and_files() {
        let named = |name: &str| {
            let frame = made_at_run_time(name.to_owned(), 0x10);
            (frame.function, frame.file, frame.language)
        };
        for (name, function, file) in [
            ("py::step:/home/ada/train.py", "step", "/home/ada/train.py"),
            (
                "py::A.f.<locals>.<lambda>:/a:b.py",
                "A.f.<locals>.<lambda>",
                "/a:b.py",
            ),
            ("py::<module>:<string>", "<module>", "<string>"),
        ] {
            let expected = (function.to_owned(), Some(file.to_owned()), Language::Python);
            assert_eq!(named(name), expected);
        }
        for name in ["py::cut", "LazyCompile:~f /a.js:1", "pypy"] {
            assert_eq!(named(name), (name.to_owned(), None, Language::Native));
        }
    }
}
