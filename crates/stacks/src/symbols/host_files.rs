//! What the symbols of traced programs tell about kernels and variables. Symbols are many: a file's
//! are read once for all that is asked of it, as long as there is room.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use super::stub::{Functions, kernel_of_symbol};
use super::variable::Variables;
use crate::cache::Cache;
use crate::module;
use gpuprobe_os::proc::Mappings;
use gpuprobe_os::regular::open_regular;

/// Bytes of what is remembered of all files. The functions of the largest library take 24 MB.
const BYTES_LIMIT: u64 = 128 << 20;
/// Files of which something is remembered.
const FILES_LIMIT: usize = 256;
/// How long the mappings of a process are believed.
const MAPPED_FOR: Duration = Duration::from_secs(1);
/// Who asks reads the kernel's rings meanwhile. This long may reading files take at once, and this
/// part of the time for good; then, programs with ever new files get no answers.
const READING_AT_ONCE: Duration = Duration::from_secs(5);
const READING_SHARE: u32 = 10;

/// Files of traced programs, as far as they were asked about.
#[derive(Debug)]
pub struct HostFiles {
    files: Cache<Identity, Known>,
    /// What the process that was last asked about has mapped.
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

#[derive(Debug, Default)]
struct Known {
    functions: Option<Functions>,
    variables: Option<Variables>,
}

impl Known {
    fn bytes(&self) -> u64 {
        let functions = self.functions.as_ref().map_or(0, Functions::bytes);
        let variables = self.variables.as_ref().map_or(0, Variables::bytes);
        (functions + variables) as u64
    }
}

impl Default for HostFiles {
    fn default() -> Self {
        Self {
            files: Cache::new(FILES_LIMIT, BYTES_LIMIT),
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
        let (file, offset) = self.place(pid, address)?;
        let known = self.about(&file, |known| {
            known
                .functions
                .get_or_insert_with(|| Functions::read(&file))
                .is_whole()
        })?;
        let name = known.functions.as_ref()?.name_at(&file, offset)?;
        Some(kernel_of_symbol(&name))
    }

    /// Bytes of the device variable `name` of process `pid`. nvcc makes a variable of the same size
    /// in the host's code for each; it is found if the program's own file has kept its symbols.
    pub fn size_of_variable(&mut self, pid: u32, name: &str) -> Option<u64> {
        let file = open_regular(format!("/proc/{pid}/exe").as_ref()).ok()?;
        let known = self.about(&file, |known| {
            known
                .variables
                .get_or_insert_with(|| Variables::read(&file))
                .is_whole()
        })?;
        known.variables.as_ref()?.size(name)
    }

    /// The program that this process runs has changed.
    pub fn forget(&mut self, pid: u32) {
        self.mapped.take_if(|(mapped, _, _)| *mapped == pid);
    }

    /// The file that is mapped at `address`, and the place in it.
    fn place(&mut self, pid: u32, address: u64) -> Option<(File, u64)> {
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
        Some((module::open(pid, &map)?, offset))
    }

    /// What is known of `file`, after `read` has made sure that it is what is wanted. That says
    /// whether the file has no more to tell than what was read.
    fn about(&mut self, file: &File, read: impl FnOnce(&mut Known) -> bool) -> Option<&mut Known> {
        let metadata = file.metadata().ok()?;
        let identity = Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        let mut known = self.files.remove(&identity).unwrap_or_default();
        let before = known.bytes();
        let is_read = known.functions.is_some() && known.variables.is_some();
        if is_read || self.may_read() {
            let is_whole = self.timed(|| read(&mut known));
            if !is_whole && known.bytes() > before {
                tracing::warn!("a program has too many symbols: not all of its kernels have names");
            }
        }
        self.files.make_room(known.bytes());
        Some(self.files.insert(identity, known.bytes(), known))
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
        assert!(!files.files.has_room(BYTES_LIMIT), "it is remembered");
        files.files.make_room(BYTES_LIMIT);
        assert!(files.files.has_room(BYTES_LIMIT));
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
