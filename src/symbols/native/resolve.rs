//! Making frames of locations.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized};

use super::perf_map::PerfMap;
use super::vet::{Allowed, vet};
use super::{debug_file, guard};
use crate::stacks::{Frame, Language, Location, Module, ModuleId};

/// Bytes of a name. Names of C++ templates reach some hundred thousand.
const NAME_LIMIT: usize = 4096;
/// Places whose frames are remembered.
const CACHE_LIMIT: usize = 1 << 18;
/// Functions that can be inlined at one place.
const INLINED_LIMIT: usize = 256;

/// Names the functions at locations, for one thread.
pub struct Symbolizer {
    library: blazesym::symbolize::Symbolizer,
    sources: HashMap<ModuleId, Sources>,
    cache: HashMap<(ModuleId, u64), Arc<[Named]>>,
    perf_maps: HashMap<u32, PerfMap>,
}

/// Where the symbols of a module are, best first.
struct Sources {
    /// Keeps the file open, under the number by which it is known here.
    module: Arc<Module>,
    _debug: Option<File>,
    files: Vec<(PathBuf, Allowed)>,
}

/// A frame, wherever its module is in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    function: String,
    file: Option<String>,
    line: Option<u32>,
    inlined: bool,
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
            library: library(),
            sources: HashMap::new(),
            cache: HashMap::new(),
            perf_maps: HashMap::new(),
        }
    }

    /// The frames at `location` of process `pid`, innermost first; never empty. `module` is the
    /// one that the location names. Unless `is_innermost`, the location is where a call returns
    /// to, which may be the beginning of another function or line.
    pub fn frames(
        &mut self,
        pid: u32,
        location: &Location,
        module: Option<&Arc<Module>>,
        is_innermost: bool,
    ) -> Vec<Frame> {
        let step = u64::from(!is_innermost);
        let Some(module) = module else {
            return vec![self.without_module(pid, location.address, step)];
        };
        let named = self.named(module, location.offset.wrapping_sub(step), step);
        let path = module.path.to_string_lossy();
        let frame = |named: &Named| Frame {
            function: named.function.clone(),
            file: named.file.clone(),
            line: named.line,
            module: bounded(&path),
            address: location.address,
            language: Language::Native,
            inlined: named.inlined,
        };
        named.iter().map(frame).collect()
    }

    /// The process runs another program or has ended: what it has made at run time is forgotten.
    pub fn forget(&mut self, pid: u32) {
        self.perf_maps.remove(&pid);
    }

    fn without_module(&mut self, pid: u32, address: u64, step: u64) -> Frame {
        let map = self.perf_maps.entry(pid).or_default();
        let name = map.name(pid, address.wrapping_sub(step)).map(str::to_owned);
        let module = if name.is_some() { "[jit]" } else { "[unknown]" };
        Frame {
            function: name.unwrap_or_else(|| format!("{address:#x}")),
            file: None,
            line: None,
            module: module.to_owned(),
            address,
            language: Language::Native,
            inlined: false,
        }
    }

    /// What is at `offset` in the file.
    fn named(&mut self, module: &Arc<Module>, offset: u64, step: u64) -> Arc<[Named]> {
        let key = (module.id, offset);
        if let Some(known) = self.cache.get(&key) {
            return known.clone();
        }
        let address = module.headers().ok().and_then(|h| h.address_of(offset));
        let found = address.and_then(|address| self.resolve(module, address));
        // As addr2line wants it.
        let place = address.unwrap_or(offset).wrapping_add(step);
        let unnamed = || Named {
            function: format!("{}+{place:#x}", bounded(&module.name())),
            file: None,
            line: None,
            inlined: false,
        };
        let named: Arc<[Named]> = found.unwrap_or_else(|| vec![unnamed()]).into();
        if self.cache.len() >= CACHE_LIMIT {
            self.cache.clear();
        }
        self.cache.insert(key, named.clone());
        named
    }

    fn resolve(&mut self, module: &Arc<Module>, address: u64) -> Option<Vec<Named>> {
        let of_module = self.sources.entry(module.id);
        let sources = of_module.or_insert_with(|| sources(module));
        let library = &self.library;
        let found = guard::reading(|| {
            let mut files = sources.files.iter();
            files.find_map(|(path, allowed)| look_up(library, path, *allowed, module, address))
        });
        found.unwrap_or_else(|| {
            // What the library has half done is not used any more, nor is the file.
            self.library = library_again(&mut self.library);
            sources.files.clear();
            None
        })
    }
}

impl Sources {
    fn add(&mut self, file: &File, allowed: Allowed) {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if allowed != Allowed::Nothing {
            self.files.push((path.into(), allowed));
        }
    }
}

fn library() -> blazesym::symbolize::Symbolizer {
    // Debugging information in other files is looked for here: beside the path that the process
    // knows, not beside the descriptor.
    blazesym::symbolize::Symbolizer::builder()
        .enable_auto_reload(false)
        .set_debug_dirs(Some(std::iter::empty::<PathBuf>()))
        .build()
}

fn library_again(old: &mut blazesym::symbolize::Symbolizer) -> blazesym::symbolize::Symbolizer {
    let old = std::mem::replace(old, library());
    // Whatever it holds may be in any state; to drop it may panic again.
    let _ = guard::reading(move || drop(old));
    library()
}

fn sources(module: &Arc<Module>) -> Sources {
    let mut sources = Sources {
        module: module.clone(),
        _debug: None,
        files: Vec::new(),
    };
    if let Some((file, headers)) = debug_file::find(module) {
        sources.add(&file, vet(&headers, &file));
        sources._debug = Some(file);
    }
    let module = sources.module.clone();
    if let (Some(file), Ok(headers)) = (module.file(), module.headers()) {
        let mut allowed = vet(headers, file);
        // The library would follow the link by itself, and believe what it finds.
        if headers.section(".gnu_debuglink").is_some() && allowed == Allowed::Everything {
            allowed = Allowed::Symbols;
        }
        sources.add(file, allowed);
    }
    sources
}

fn look_up(
    library: &blazesym::symbolize::Symbolizer,
    path: &Path,
    allowed: Allowed,
    module: &Module,
    address: u64,
) -> Option<Vec<Named>> {
    let find = |debug_syms| {
        let mut elf = Elf::new(path);
        elf.debug_syms = debug_syms;
        let found = library.symbolize_single(&Source::Elf(elf), Input::VirtOffset(address));
        match found {
            Ok(Symbolized::Sym(symbol)) => Some(symbol),
            _ => None,
        }
    };
    let symbol = find(false).filter(|symbol| is_at(symbol, module, address));
    let detailed = (allowed == Allowed::Everything)
        .then(|| find(true))
        .flatten();
    // Of functions that are in several parts, the library does not say where they begin.
    let in_parts = |symbol: &Sym<'_>| symbol.addr == 0 && symbol.code_info.is_some();
    let detailed = detailed.filter(|found| is_at(found, module, address) || in_parts(found));
    let mut frames = named(detailed.as_ref().or(symbol.as_ref())?);
    // Symbols have the whole name; debugging information may have `operator()` alone.
    if let (Some(symbol), Some(outer)) = (symbol, frames.last_mut()) {
        outer.function = bounded(&symbol.name);
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
    let one = |name: &str, code: Option<&CodeInfo<'_>>, inlined| Named {
        function: bounded(name),
        file: code.map(|code| bounded(&code.to_path().to_string_lossy())),
        line: code.and_then(|code| code.line).filter(|&line| line > 0),
        inlined,
    };
    // The library lists them outermost first.
    let inlined = symbol.inlined.iter().rev().take(INLINED_LIMIT);
    let inlined = inlined.map(|f| one(&f.name, f.code_info.as_ref(), true));
    let itself = one(&symbol.name, symbol.code_info.as_deref(), false);
    inlined.chain([itself]).collect()
}

/// As much of a name as anybody wants to read.
pub(super) fn bounded(name: &str) -> String {
    match name.char_indices().nth(NAME_LIMIT - 3) {
        Some((end, _)) if name.len() > NAME_LIMIT => format!("{}...", &name[..end]),
        _ => name.to_owned(),
    }
}

/// Names what is at some places of `file`: for tests with files that are not to be trusted.
/// Gives how many frames there were.
#[doc(hidden)]
pub fn try_symbols(file: &[u8]) -> std::io::Result<usize> {
    use std::io::Write;
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    let mut memory = File::from(nix::sys::memfd::memfd_create(c"elf", flags)?);
    memory.write_all(file)?;
    let module = Arc::new(Module::of_file("/nowhere/elf".into(), memory));
    let mut symbolizer = Symbolizer::new();
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
        symbolizer.frames(1, &location, Some(&module), false).len()
    });
    Ok(frames.sum())
}
