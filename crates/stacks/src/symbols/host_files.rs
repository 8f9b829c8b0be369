//! Kernel names and variable sizes from the symbols of traced programs.

use std::path::Path;
use std::time::{Duration, Instant};

use super::stub::kernel_of_symbol;
use crate::helper::{FileReader, OpenFile, Request};
use crate::module;
use gpuprobe_os::proc::Mappings;
use gpuprobe_os::regular::open_program;

/// How long a snapshot of a process's mappings is valid.
const MAPPED_FOR: Duration = Duration::from_secs(1);

/// Files of traced programs.
#[derive(Debug)]
pub struct HostFiles {
    reader: FileReader,
    /// Snapshot of the last process's mappings.
    mapped: Option<(u32, Instant, Mappings)>,
}

impl HostFiles {
    /// Files are read by `reader`.
    pub fn new(reader: FileReader) -> Self {
        Self {
            reader,
            mapped: None,
        }
    }

    /// The mangled name of the kernel whose host stub is at `address` in process `pid`, unless the file
    /// is stripped.
    pub fn kernel_at(&mut self, pid: u32, address: u64) -> Option<String> {
        let is_known = |(of, at, maps): &(u32, Instant, Mappings)| {
            *of == pid && at.elapsed() < MAPPED_FOR && maps.at(address).is_some()
        };
        if !self.mapped.as_ref().is_some_and(is_known) {
            let read = Mappings::of(pid).ok();
            self.mapped = read.map(|maps| (pid, Instant::now(), maps));
        }
        let (_, _, maps) = self.mapped.as_ref()?;
        let map = maps.at(address)?;
        let offset = (address - map.start).checked_add(map.offset)?;
        let file = OpenFile::new(module::open(pid, &map)?, map.path_without_mark()?)?;
        let name: Option<String> = self.reader.ask(&[&file], &Request::Symbol(offset))?;
        name.map(|name| kernel_of_symbol(&name))
    }

    /// Size in bytes of the device variable `name` of process `pid`: that of the host's shadow variable,
    /// which nvcc generates with the same size, unless the executable is stripped.
    pub fn size_of_variable(&self, pid: u32, name: &str) -> Option<u64> {
        let program = OpenFile::new(open_program(pid).ok()?, Path::new("its program"))?;
        let request = Request::Variable(name.to_owned());
        self.reader.ask(&[&program], &request)?
    }

    /// Drops the mappings of a process that has called exec or whose id was reused.
    pub fn forget(&mut self, pid: u32) {
        self.mapped.take_if(|(mapped, _, _)| *mapped == pid);
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
    fn functions_of_this_program_are_named() {
        let mut files = HostFiles::new(FileReader::default());
        for _ in 0..100 {
            let name = our_own(&mut files).unwrap();
            assert!(name.contains("our_own"), "{name}");
            let size = files.size_of_variable(std::process::id(), "no such variable");
            assert_eq!(size, None);
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_snapshot_of_mappings_is_used_for_a_while() {
        let mut files = HostFiles::new(FileReader::default());
        let pid = std::process::id();
        our_own(&mut files).unwrap();
        let read_at = |files: &mut HostFiles, of: u32, at: Instant, address: Option<u64>| {
            let mapped = files.mapped.as_mut().unwrap();
            (mapped.0, mapped.1) = (of, at);
            match address {
                Some(address) => assert!(files.kernel_at(pid, address).is_none()),
                None => assert!(our_own(files).is_some()),
            }
            files.mapped.as_ref().unwrap().1
        };
        let later = Instant::now() + HOUR;
        assert_eq!(read_at(&mut files, pid, later, None), later);
        assert!(read_at(&mut files, pid ^ 1, later, None) < later);
        assert!(
            read_at(&mut files, pid, later, Some(1)) < later,
            "it may be new"
        );
        let past = Instant::now().checked_sub(2 * MAPPED_FOR).unwrap();
        assert!(read_at(&mut files, pid, past, None) > past);
    }
}
