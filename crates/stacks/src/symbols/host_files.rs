//! Names of kernels and sizes of variables, from the symbols of traced programs. Symbols are many: a
//! file's are read once for all that is asked of it, as long as there is room.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::native::AllSources;
use super::stub::kernel_of_symbol;
use super::variable::Variables;
use crate::Module;
use crate::cache::Cache;
use crate::modules::Modules;
use gpuprobe_os::proc::Mappings;
use gpuprobe_os::regular::open_regular;

/// Bytes of the functions of all files, of 8 each. The largest libraries have a million.
const FUNCTIONS_BYTES: u64 = 64 << 20;
/// Programs whose variables are remembered, and their bytes.
const PROGRAMS_LIMIT: usize = 256;
const VARIABLES_BYTES: u64 = 128 << 20;
/// Bytes of a kernel's mangled name.
const NAME_LIMIT: usize = 64 << 10;
/// How long the mappings of a process are believed.
const MAPPED_FOR: Duration = Duration::from_secs(1);
/// Who asks reads the kernel's rings meanwhile. This long may reading files take at once, and this
/// part of the time for good; then, programs with ever new files get no answers.
const READING_AT_ONCE: Duration = Duration::from_secs(5);
const READING_SHARE: u32 = 10;

/// Files of traced programs, as far as they were asked about.
#[derive(Debug)]
pub struct HostFiles {
    modules: Modules,
    functions: AllSources,
    variables: Cache<Identity, Variables>,
    /// The mappings of the process that was last asked about.
    mapped: Option<(u32, Instant, Mappings)>,
    /// When this began, and how long reading has taken since.
    since: Instant,
    reading: Duration,
    is_told: bool,
}

/// Which file it is, and as who has written to it last has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl Default for HostFiles {
    fn default() -> Self {
        Self {
            modules: Modules::default(),
            functions: AllSources::without_details(FUNCTIONS_BYTES),
            variables: Cache::new(PROGRAMS_LIMIT, VARIABLES_BYTES),
            mapped: None,
            since: Instant::now(),
            reading: Duration::ZERO,
            is_told: false,
        }
    }
}

impl HostFiles {
    /// The mangled name of the kernel whose host function is at `address` in process `pid`, if the
    /// file that holds it has kept its symbols.
    pub fn kernel_at(&mut self, pid: u32, address: u64) -> Option<String> {
        let (module, offset) = self.place(pid, address)?;
        let is_read = self.functions.module(module.id).is_some();
        (is_read || self.may_read()).then_some(())?;
        let begin = Instant::now();
        self.functions.open(&module);
        let name = self.functions.symbol(&module, offset);
        self.reading += begin.elapsed();
        Some(kernel_of_symbol(
            &name.filter(|name| name.len() <= NAME_LIMIT)?,
        ))
    }

    /// Bytes of the device variable `name` of process `pid`. nvcc makes a variable of the same size
    /// in the host's code for each; it is found if the program's own file has kept its symbols.
    pub fn size_of_variable(&mut self, pid: u32, name: &str) -> Option<u64> {
        let file = open_regular(format!("/proc/{pid}/exe").as_ref()).ok()?;
        let identity = Identity::of(&file)?;
        if self.variables.get(&identity).is_none() {
            self.may_read().then_some(())?;
            let read = self.timed(|| Variables::read(&file));
            if !read.is_whole() {
                tracing::warn!(
                    "a program has too many variables: not all of their sizes are known"
                );
            }
            self.variables.make_room(read.bytes());
            self.variables.insert(identity, read.bytes(), read);
        }
        self.variables.get(&identity)?.size(name)
    }

    /// The program that this process runs has changed.
    pub fn forget(&mut self, pid: u32) {
        self.mapped.take_if(|(mapped, _, _)| *mapped == pid);
    }

    /// The module that is mapped at `address`, and the place in it.
    fn place(&mut self, pid: u32, address: u64) -> Option<(Arc<Module>, u64)> {
        let is_known = |mapped: &(u32, Instant, Mappings)| {
            let (of, at, maps) = mapped;
            *of == pid && at.elapsed() < MAPPED_FOR && maps.at(address).is_some()
        };
        if !self.mapped.as_ref().is_some_and(is_known) {
            self.mapped = None;
            self.may_read().then_some(())?;
            let maps = self.timed(|| Mappings::of(pid)).ok()?;
            self.mapped = Some((pid, Instant::now(), maps));
        }
        let (_, _, maps) = self.mapped.as_ref()?;
        let map = maps.at(address)?;
        let offset = (address - map.start).checked_add(map.offset)?;
        Some((self.modules.of(pid, &map)?, offset))
    }

    fn timed<T>(&mut self, read: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = read();
        self.reading += begin.elapsed();
        result
    }

    fn may_read(&mut self) -> bool {
        let may = self.reading < READING_AT_ONCE + self.since.elapsed() / READING_SHARE;
        if !may && !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!("reading the symbols of programs takes too long: some have no names");
        }
        may
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn our_own(files: &mut HostFiles) -> Option<String> {
        let here = our_own as fn(&mut HostFiles) -> Option<String>;
        files.kernel_at(std::process::id(), here as usize as u64 + 3)
    }

    #[test]
    fn a_file_is_read_once() {
        let mut files = HostFiles::default();
        let first = our_own(&mut files).unwrap();
        assert!(first.contains("our_own"), "{first}");
        files.size_of_variable(std::process::id(), "no such variable");
        let taken = files.reading;
        for _ in 0..100 {
            assert_eq!(our_own(&mut files).as_ref(), Some(&first));
            let size = files.size_of_variable(std::process::id(), "no such variable");
            assert_eq!(size, None);
        }
        // The mappings may be read again, which takes far less than the symbols did.
        assert!(files.reading < 2 * taken, "{taken:?}");
    }

    #[test]
    fn reading_does_not_take_all_time() {
        let mut files = HostFiles {
            reading: READING_AT_ONCE + Duration::from_secs(1),
            ..HostFiles::default()
        };
        assert_eq!(our_own(&mut files), None);
        files.since = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        assert!(our_own(&mut files).is_some());
    }
}
