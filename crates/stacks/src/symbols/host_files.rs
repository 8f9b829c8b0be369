//! Kernel names and variable sizes from the symbols of traced programs.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::stub::kernel_of_symbol;
use crate::Module;
use crate::helper::{FileReader, NumberedFile, Request};
use crate::modules::Modules;
use gpuprobe_os::proc::Mappings;
use gpuprobe_os::regular::open_program;

/// How long a snapshot of a process's mappings is valid.
const MAPPED_FOR: Duration = Duration::from_secs(1);
/// How often files are closed that nobody has asked for meanwhile.
const CLOSE_EVERY: Duration = Duration::from_secs(30);

/// Files of traced programs.
#[derive(Debug)]
pub struct HostFiles {
    modules: Modules,
    /// Snapshot of the last process's mappings.
    mapped: Option<(u32, Instant, Mappings)>,
    /// Executable of the last process.
    program: Option<(u32, NumberedFile)>,
    /// When files were last closed.
    closed: Option<Instant>,
}

impl HostFiles {
    /// An empty cache; files are read by `reader`.
    pub fn new(reader: FileReader) -> Self {
        Self {
            modules: Modules::new(reader),
            mapped: None,
            program: None,
            closed: None,
        }
    }

    /// The mangled name of the kernel whose host stub is at `address` in process `pid`, unless the file
    /// is stripped.
    pub fn kernel_at(&mut self, pid: u32, address: u64) -> Option<String> {
        let (module, offset) = self.place(pid, address)?;
        let address = module.headers().ok()?.segments.address_of(offset)?;
        let file = module.numbered()?;
        let request = Request::Symbol(file.number, address);
        let name: Option<String> = self.modules.reader().ask(&[file], &request)?;
        name.map(|name| kernel_of_symbol(&name))
    }

    /// Size in bytes of the device variable `name` of process `pid`: that of the host's shadow variable,
    /// which nvcc generates with the same size, unless the executable is stripped.
    pub fn size_of_variable(&mut self, pid: u32, name: &str) -> Option<u64> {
        if self.program.as_ref().is_none_or(|(known, _)| *known != pid) {
            self.close_program();
            let file = open_program(pid).ok()?;
            self.program = Some((pid, NumberedFile::new(file, Path::new("its program"))?));
        }
        let (_, program) = self.program.as_ref()?;
        let request = Request::Variable(program.number, name.to_owned());
        self.modules.reader().ask(&[program], &request)?
    }

    /// Closes, if it is time, what nobody has asked for lately: it may be of a container that has ended.
    pub fn close_unused(&mut self) {
        let since = self.closed.get_or_insert_with(Instant::now);
        if since.elapsed() > CLOSE_EVERY {
            *since = Instant::now();
            self.modules.close_unused(&HashSet::new());
            self.close_program();
        }
    }

    fn close_program(&mut self) {
        if let Some((_, program)) = self.program.take() {
            self.modules.reader().close(&program);
        }
    }

    /// Drops the files of a process that has called exec or whose id was reused.
    pub fn forget(&mut self, pid: u32) {
        self.mapped.take_if(|(mapped, _, _)| *mapped == pid);
        if self
            .program
            .as_ref()
            .is_some_and(|(known, _)| *known == pid)
        {
            self.close_program();
        }
    }

    /// The module mapped at `address`, and the file offset.
    fn place(&mut self, pid: u32, address: u64) -> Option<(Arc<Module>, u64)> {
        let is_known = |mapped: &(u32, Instant, Mappings)| {
            let (of, at, maps) = mapped;
            *of == pid && at.elapsed() < MAPPED_FOR && maps.at(address).is_some()
        };
        if !self.mapped.as_ref().is_some_and(is_known) {
            self.mapped = None;
            let maps = Mappings::of(pid).ok()?;
            self.mapped = Some((pid, Instant::now(), maps));
        }
        let (_, _, maps) = self.mapped.as_ref()?;
        let map = maps.at(address)?;
        let offset = (address - map.start).checked_add(map.offset)?;
        Some((self.modules.of(pid, &map)?, offset))
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
    fn what_nobody_has_asked_for_is_closed_after_a_while() {
        let mut files = HostFiles::new(FileReader::default());
        let pid = std::process::id();
        files.size_of_variable(pid, "none");
        files.close_unused();
        assert!(files.program.is_some() && files.closed.is_some());
        files.closed = Some(Instant::now() + HOUR);
        files.close_unused();
        assert!(files.program.is_some(), "it is too early");
        files.closed = Instant::now().checked_sub(2 * CLOSE_EVERY);
        files.close_unused();
        assert!(files.program.is_none());
        assert!(files.closed.unwrap().elapsed() < CLOSE_EVERY);
    }

    #[test]
    fn files_are_those_of_the_last_process_until_it_is_forgotten() {
        let mut files = HostFiles::new(FileReader::default());
        let pid = std::process::id();
        files.size_of_variable(pid, "none");
        our_own(&mut files).unwrap();
        files.forget(pid ^ 1);
        assert!(files.mapped.is_some() && files.program.is_some());
        let number = |files: &HostFiles| files.program.as_ref().unwrap().1.number;
        let first = number(&files);
        files.size_of_variable(pid, "none");
        assert_eq!(number(&files), first);
        files.program.as_mut().unwrap().0 = pid ^ 1;
        files.size_of_variable(pid, "none");
        assert_ne!(number(&files), first);
        files.forget(pid);
        assert!(files.mapped.is_none() && files.program.is_none());
    }

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
