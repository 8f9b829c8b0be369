//! Host info: facts about traced processes from `/proc` and NVML, beyond their events.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::budget::Budget;
use super::identity::{self, Users};
use super::nvml::Nvml;
use gpuprobe_engine::AddressKind;
use gpuprobe_engine::HostInfo;
use gpuprobe_model::event::Task;
use gpuprobe_model::identity::Identity;
use gpuprobe_os::proc::{Mapping, Mappings};
use gpuprobe_stacks::blocks::BlockReader;
use gpuprobe_stacks::helper::{FileReader, ProcessReader};
use gpuprobe_stacks::symbols::HostFiles;

/// How long the mappings of a process stay valid.
const MAPS_FOR: Duration = Duration::from_secs(1);

/// Host info of the running system.
pub struct ProcFs {
    /// NVML; `None` if it cannot be loaded.
    pub nvml: Option<Nvml>,
    maps: RefCell<HashMap<u32, Maps>>,
    users: RefCell<Users>,
    /// The executables and libraries of processes.
    files: RefCell<HostFiles>,
    processes: ProcessReader,
    /// Blocks of frameworks' allocators.
    pub blocks: RefCell<BlockReader>,
}

/// Snapshot of a process's mappings.
#[derive(Debug, Default)]
struct Maps {
    read: Option<Instant>,
    ranges: Vec<MappedRange>,
    budget: Budget,
}

impl Maps {
    /// The kind of memory at `address`. The mappings are read again if they are old, or `address` is in
    /// none and may just have been mapped; not too often, as a process may have many such addresses, or very many
    /// mappings.
    fn place(&mut self, pid: u32, address: u64) -> Option<AddressKind> {
        let read = || Mappings::of(pid).map_or(Vec::new(), |maps| maps.iter().map(range).collect());
        if (self.is_old() || find(&self.ranges, address).is_none())
            && let Some(ranges) = self.budget.spend(read)
        {
            self.ranges = ranges;
            self.read = Some(Instant::now());
        }
        find(&self.ranges, address)?.place
    }

    fn is_old(&self) -> bool {
        self.read.is_none_or(|read| read.elapsed() >= MAPS_FOR)
    }
}

/// A mapping of a process; `place` is `None` if it may be host or device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MappedRange {
    start: u64,
    end: u64,
    place: Option<AddressKind>,
}

impl ProcFs {
    /// Host info of this host; files of programs are read by `reader`, processes by `processes`.
    pub fn open(reader: FileReader, processes: ProcessReader) -> Self {
        Self {
            nvml: Nvml::open(),
            maps: RefCell::default(),
            users: RefCell::default(),
            files: RefCell::new(HostFiles::new(reader.clone())),
            blocks: RefCell::new(BlockReader::new(reader, processes.clone())),
            processes,
        }
    }
}

impl HostInfo for ProcFs {
    fn identity(&self, task: &Task) -> Identity {
        // PID reuse or exec: cached files are of another program.
        self.files.borrow_mut().forget(task.pid);
        self.blocks.borrow_mut().forget(task.pid);
        let mut users = self.users.borrow_mut();
        let nvml = self.nvml.as_ref();
        identity::of(task, nvml, &mut users, &self.processes)
    }

    fn kernel_at(&self, pid: u32, address: u64) -> Option<String> {
        self.files.borrow_mut().kernel_at(pid, address)
    }

    fn variable_size(&self, pid: u32, name: &str) -> Option<u64> {
        self.files.borrow().size_of_variable(pid, name)
    }

    fn place(&self, pid: u32, address: u64) -> Option<AddressKind> {
        let mut processes = self.maps.borrow_mut();
        if !processes.contains_key(&pid) {
            processes.retain(|_, maps| !(maps.is_old() && maps.budget.is_over()));
        }
        processes.entry(pid).or_default().place(pid, address)
    }
}

fn find(ranges: &[MappedRange], address: u64) -> Option<&MappedRange> {
    let next = ranges.partition_point(|range| range.start <= address);
    let range = ranges.get(next.checked_sub(1)?)?;
    (address < range.end).then_some(range)
}

/// Kind of memory by mapping, as observed with driver 580: device memory is reserved address space
/// without access rights, pinned memory is shared memory without a file (`/dev/zero`), and managed
/// memory, which can be on either side, is a mapping of `/dev/nvidia-uvm`.
fn range(map: Mapping<'_>) -> MappedRange {
    let path = map.path().map(|path| path.as_os_str().as_encoded_bytes());
    let of_driver = path.is_some_and(|path| path.starts_with(b"/dev/nvidia"));
    let place = match (map.is_readable || map.is_writable, of_driver) {
        (false, _) => Some(AddressKind::Device(None)),
        (true, true) => None,
        (true, false) => Some(AddressKind::Host),
    };
    MappedRange {
        start: map.start,
        end: map.end,
        place,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_stacks::program::ON_THREADS;

    fn host_info() -> ProcFs {
        ProcFs::open(FileReader::new(ON_THREADS), ProcessReader::new(ON_THREADS))
    }

    #[test]
    fn own_memory_is_host_memory() {
        let host = host_info();
        let on_stack = 0u8;
        let on_heap = Box::new(0u8);
        let pid = std::process::id();
        let place = |address: *const u8| host.place(pid, address as u64);
        assert_eq!(place(&raw const on_stack), Some(AddressKind::Host));
        assert_eq!(place(&raw const *on_heap), Some(AddressKind::Host));
        assert_eq!(host.place(pid, 8), None);
    }

    #[test]
    fn unmapped_addresses_cost_few_reads() {
        let host = host_info();
        let pid = std::process::id();
        let begin = Instant::now();
        for page in 0..100_000 {
            // Beyond the address space of any process.
            assert_eq!(host.place(pid, (1 << 60) + (page << 12)), None);
        }
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn new_mappings_are_found() {
        let host = host_info();
        let pid = std::process::id();
        assert_eq!(host.place(pid, 8), None);
        for _ in 0..20 {
            // So much has a mapping of its own, and memory that is freed may be reused without a new one.
            let mapped = vec![0u8; 33 << 20].leak();
            let address = mapped.as_ptr() as u64 + (1 << 19);
            let mut place = host.place(pid, address);
            // A thread of another test had address space without access there for its heap when the mappings were
            // read; that is known for as long as they are valid.
            let begin = Instant::now();
            while place == Some(AddressKind::Device(None)) && begin.elapsed() < 2 * MAPS_FOR {
                std::thread::yield_now();
                place = host.place(pid, address);
            }
            assert_eq!(place, Some(AddressKind::Host));
        }
    }
}
