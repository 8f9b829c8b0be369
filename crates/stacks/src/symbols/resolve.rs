//! Making frames of locations: a reader names the functions, and may fail at it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::debug_file::Search;
use super::demangle::beginning_of;
use super::{Answer, Request};
use crate::Module;
use crate::cache::Cache;
use crate::reader::{Named, Names, Numbered, Opener, Reader, Request as Asked, Wanted};
use gpuprobe_model::stack::{Frame, JIT, Language, Location, ModuleId, bare_frame};

/// Places whose frames are remembered, and bytes that they take.
const CACHE_LIMIT: usize = 1 << 18;
const CACHE_BYTES: usize = 24 << 20;
/// Modules whose files are known.
const MODULES_LIMIT: usize = 512;
/// Perf maps that are kept open, so that they can be read when their processes have ended.
const MAPS_LIMIT: usize = 256;
/// Processes of which it is remembered when their maps were looked for, and how often that is done.
const LOOKED_LIMIT: usize = 4096;
const PAUSE: Duration = Duration::from_millis(100);

/// Names the functions at locations, for one thread.
#[derive(Debug)]
pub struct Symbolizer {
    reader: Reader,
    opener: Opener,
    of_modules: Cache<ModuleId, Sources>,
    cache: HashMap<(ModuleId, u64), Arc<[Named]>>,
    /// Bytes that the frames take that are remembered.
    bytes: usize,
    maps: Cache<u32, Numbered>,
    looked_for: HashMap<u32, Instant>,
    /// Processes whose maps the reader has, since it was started for the so-manieth time.
    given: HashSet<u32>,
    generation: u64,
}

/// Where the symbols of a module are.
#[derive(Debug)]
struct Sources {
    module: Arc<Module>,
    debug: Option<Module>,
    /// What its debugging information has in common with that of others.
    supplement: Option<Module>,
    /// Its debugging information may be read.
    has_details: bool,
}

fn bytes_of(named: &Named) -> usize {
    let file = named.file.as_ref().map_or(0, String::len);
    size_of::<Named>() + named.function.len() + file
}

impl Symbolizer {
    /// Knows nothing yet; `reader` is for names.
    pub fn new(reader: Reader, opener: Opener) -> Self {
        Self {
            reader,
            opener,
            of_modules: Cache::new(MODULES_LIMIT, u64::MAX),
            cache: HashMap::new(),
            bytes: 0,
            maps: Cache::new(MAPS_LIMIT, u64::MAX),
            looked_for: HashMap::new(),
            given: HashSet::new(),
            generation: 0,
        }
    }

    /// Makes a module known that the next request names.
    pub fn open(&mut self, module: &Arc<Module>) {
        if self.of_modules.get(&module.id).is_some() {
            return;
        }
        let search = Search {
            module,
            reader: &self.reader,
            opener: &self.opener,
        };
        let debug = search.find();
        let sources = Sources {
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

    fn close_files(&self, sources: &Sources) {
        let others = [&sources.debug, &sources.supplement].into_iter().flatten();
        let files = others
            .chain([&*sources.module])
            .filter_map(Module::numbered);
        files.for_each(|file| self.reader.close(file));
    }

    /// The functions at the requested location.
    pub fn answer(&mut self, request: Request) -> Answer {
        let frames = self.frames(&request);
        Answer { request, frames }
    }

    /// Takes the file in which process `pid` writes down what its runtime has made, which is open: it
    /// can be read when the process has ended.
    pub fn keep_perf_map(&mut self, pid: u32, file: File) {
        let inode = |file: &File| {
            file.metadata()
                .map(|status| (status.dev(), status.ino()))
                .ok()
        };
        let known = self.maps.get(&pid).and_then(|known| inode(&known.file));
        if known.is_some() && known == inode(&file) {
            return;
        }
        if let Some(file) =
            Numbered::new(file, Path::new(&format!("the perf map of process {pid}")))
        {
            self.maps.make_room(0);
            self.maps.insert(pid, 0, file);
            self.given.remove(&pid);
            self.give(pid);
        }
    }

    /// The process runs another program or has ended: names of code that it has made at run time
    /// are dropped.
    pub fn forget(&mut self, pid: u32) {
        self.maps.remove(&pid);
        self.given.remove(&pid);
        self.looked_for.remove(&pid);
        self.reader.tell(&Asked::Forget(pid));
    }

    fn frames(&mut self, request: &Request) -> Vec<Frame> {
        let Request { pid, location, .. } = request;
        let step = u64::from(!request.is_innermost);
        let Some(id) = location.module else {
            return vec![self.without_module(*pid, location.address, step)];
        };
        // The file was known once.
        let Some(sources) = self.of_modules.get(&id) else {
            return vec![bare_frame(location)];
        };
        let module = sources.module.clone();
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
        let before = address.wrapping_sub(step);
        let mut name = self.made_name(pid, before);
        if name.is_none() && self.look_for_map(pid) {
            name = self.made_name(pid, before);
        }
        match name {
            Some(name) => made_at_run_time(name, address),
            None => bare_frame(&Location {
                address,
                module: None,
                offset: 0,
            }),
        }
    }

    /// The name of what `pid` has made at `address`, after the map that is known.
    fn made_name(&mut self, pid: u32, address: u64) -> Option<String> {
        self.give(pid);
        let map = self.maps.get(&pid)?;
        self.reader
            .ask(&[map], &Asked::MadeAtRunTime(pid, address))?
    }

    /// Gives the reader the map of `pid`, if it does not have it.
    fn give(&mut self, pid: u32) {
        let generation = self.reader.generation();
        if self.generation != generation {
            self.generation = generation;
            self.given.clear();
        }
        if let Some(map) = self.maps.get(&pid)
            && self.given.insert(pid)
        {
            let _is_there: Option<bool> = self.reader.ask_with(map, &Asked::PerfMap(pid));
        }
    }

    /// Looks for the map of `pid`, where that was not done just now; whether there is one.
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
        if let Some(file) = found {
            self.keep_perf_map(pid, file);
        }
        is_found
    }

    /// The functions at `offset` in the file.
    fn named(&mut self, module: &Arc<Module>, offset: u64, step: u64) -> Arc<[Named]> {
        let key = (module.id, offset);
        if let Some(known) = self.cache.get(&key) {
            return known.clone();
        }
        let headers = module.headers().ok();
        let address = headers.and_then(|headers| headers.segments.address_of(offset));
        let found = address.and_then(|address| self.look_up(module.id, address));
        // As addr2line wants it.
        let place = address.unwrap_or(offset).wrapping_add(step);
        let unnamed = || Named {
            function: format!("{}+{place:#x}", beginning_of(&module.name())),
            file: None,
            line: None,
            inlined: false,
        };
        let found = found.filter(|found| !found.is_empty());
        let named: Arc<[Named]> = found.unwrap_or_else(|| vec![unnamed()]).into();
        if self.cache.len() >= CACHE_LIMIT || self.bytes >= CACHE_BYTES {
            self.cache.clear();
            self.bytes = 0;
        }
        self.bytes += named.iter().map(bytes_of).sum::<usize>();
        self.cache.insert(key, named.clone());
        named
    }

    /// Asks for the functions at an address of a module: with debugging information, and where
    /// reading that fails, without.
    fn look_up(&mut self, id: ModuleId, address: u64) -> Option<Vec<Named>> {
        let sources = self.of_modules.get(&id)?;
        let own = sources.module.numbered()?;
        let debug = sources.debug.as_ref().and_then(Module::numbered);
        let supplement = sources.supplement.as_ref().and_then(Module::numbered);
        let files: Vec<_> = debug.into_iter().chain([own]).collect();
        let given: Vec<_> = files.iter().copied().chain(supplement).collect();
        loop {
            let names = Names {
                module: own.number,
                files: files.iter().map(|file| file.number).collect(),
                supplement: supplement.map(|file| file.number),
                address,
                with_details: sources.has_details,
            };
            let failed = match self.reader.attempt(&given, &Asked::Names(names)) {
                Ok(answer) => return answer.flatten(),
                Err(failed) => failed,
            };
            let path = sources.module.path.display();
            if !failed.was_fresh {
                // What it had read of others may have been too much.
                tracing::debug!("{path}: read again");
            } else if std::mem::take(&mut sources.has_details) {
                tracing::warn!(
                    "{path}: its debugging information cannot be read: its functions are shown \
                     without lines"
                );
            } else {
                if failed.is_fault {
                    self.reader.blame(own, "ends whoever does");
                }
                return None;
            }
        }
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
