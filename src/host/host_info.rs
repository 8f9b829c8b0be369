//! Host info: facts about traced processes from `/proc` and NVML, beyond their events.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::budget::Budget;
use super::identity::{self, Cgroups, Users};
use super::nvml::Nvml;
use gpuprobe_engine::AddressKind;
use gpuprobe_engine::HostInfo;
use gpuprobe_model::event::Task;
use gpuprobe_model::identity::Identity;
use gpuprobe_os::budget::MappingBudget;
use gpuprobe_os::proc::Mapping;
use gpuprobe_stacks::reader::{FileReader, ProcessReader};
use gpuprobe_stacks::symbols::HostFiles;

/// How long the mappings of a process stay valid.
const MAPS_FOR: Duration = Duration::from_secs(1);
/// How long a page stays in the cache of unmapped pages.
const MISSED_FOR: Duration = Duration::from_millis(250);

/// Host info of the running system.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
pub struct ProcFs {
    /// NVML; `None` if it cannot be loaded.
    pub nvml: Option<Nvml>,
    maps: RefCell<HashMap<u32, Maps>>,
    mappings: RefCell<MappingBudget>,
    cgroups: RefCell<Cgroups>,
    users: RefCell<Users>,
    /// The executables and libraries of processes.
    files: RefCell<HostFiles>,
    processes: ProcessReader,
}

/// Maximum number of unmapped pages in the cache, per process.
const MAX_MISSED: usize = 4096;
/// Maximum number of reads of a process's mappings per second.
const MAX_READS: u32 = 200;
const PAGE: u64 = 4096;

/// Snapshot of a process's mappings.
#[derive(Debug)]
struct Maps {
    read: Instant,
    ranges: Vec<MappedRange>,
    /// Pages found in no mapping, since `missed_since`.
    missed: HashSet<u64>,
    missed_since: Instant,
    budget: Budget,
    #[cfg(test)]
    reads: u32,
}

impl Maps {
    fn of(pid: u32, now: Instant, mappings: &mut MappingBudget) -> Self {
        let mut maps = Self {
            read: now,
            ranges: Vec::new(),
            missed: HashSet::new(),
            missed_since: now,
            budget: Budget::new(now),
            #[cfg(test)]
            reads: 0,
        };
        maps.read(pid, now, mappings);
        maps
    }

    fn read(&mut self, pid: u32, now: Instant, mappings: &mut MappingBudget) {
        match mappings.read(pid) {
            Ok(Some(maps)) => self.ranges = maps.iter().map(range).collect(),
            // The budget of its user is spent: keep the old snapshot.
            Ok(None) => {}
            Err(_) => self.ranges.clear(),
        }
        self.read = now;
        self.budget.spend(now.elapsed());
        #[cfg(test)]
        {
            self.reads += 1;
        }
    }

    /// The kind of memory at `address`. The mappings are read again if they are old, or `address` is in
    /// none and may just have been mapped. Unmapped pages are cached, and the reads have a budget,
    /// against processes with many unmapped addresses or very many mappings.
    fn place(
        &mut self,
        pid: u32,
        address: u64,
        now: Instant,
        mappings: &mut MappingBudget,
    ) -> Option<AddressKind> {
        let found = find(&self.ranges, address);
        if now.duration_since(self.missed_since) > MISSED_FOR || self.missed.len() >= MAX_MISSED {
            self.missed.clear();
            self.missed_since = now;
        }
        let is_old = now.duration_since(self.read) >= MAPS_FOR;
        let is_new = found.is_none() && !self.missed.contains(&(address / PAGE));
        if (is_old || is_new) && self.budget.allows(now, MAX_READS) {
            self.read(pid, now, mappings);
        }
        let found = find(&self.ranges, address);
        if found.is_none() {
            self.missed.insert(address / PAGE);
        }
        found?.place
    }

    /// Whether the snapshot can be dropped.
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.read) >= MAPS_FOR && self.budget.is_over(now)
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
            mappings: RefCell::default(),
            cgroups: RefCell::default(),
            users: RefCell::default(),
            files: RefCell::new(HostFiles::new(reader)),
            processes,
        }
    }

    /// Closes files of programs that nobody has asked for lately.
    pub fn close_unused(&self) {
        self.files.borrow_mut().close_unused();
    }
}

impl HostInfo for ProcFs {
    fn identity(&self, task: &Task) -> Identity {
        // PID reuse or exec: cached files are of another program.
        self.files.borrow_mut().forget(task.pid);
        let mut cgroups = self.cgroups.borrow_mut();
        let mut users = self.users.borrow_mut();
        let nvml = self.nvml.as_ref();
        identity::of(task, nvml, &mut cgroups, &mut users, &self.processes)
    }

    fn kernel_at(&self, pid: u32, address: u64) -> Option<String> {
        self.files.borrow_mut().kernel_at(pid, address)
    }

    fn variable_size(&self, pid: u32, name: &str) -> Option<u64> {
        self.files.borrow_mut().size_of_variable(pid, name)
    }

    fn place(&self, pid: u32, address: u64) -> Option<AddressKind> {
        let now = Instant::now();
        let mut processes = self.maps.borrow_mut();
        if !processes.contains_key(&pid) {
            processes.retain(|_, maps| !maps.is_over(now));
        }
        let maps = processes.entry(pid);
        let mappings = &mut *self.mappings.borrow_mut();
        let maps = maps.or_insert_with(|| Maps::of(pid, now, mappings));
        maps.place(pid, address, now, mappings)
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
    let place = if !map.is_readable && !map.is_writable {
        Some(AddressKind::Device(None))
    } else if of_driver {
        None
    } else {
        Some(AddressKind::Host)
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

    #[test]
    fn own_memory_is_host_memory() {
        let host_info = ProcFs::default();
        let on_stack = 0u8;
        let on_heap = Box::new(0u8);
        let pid = std::process::id();
        let place = |address: *const u8| host_info.place(pid, address as u64);
        assert_eq!(place(&raw const on_stack), Some(AddressKind::Host));
        assert_eq!(place(&raw const *on_heap), Some(AddressKind::Host));
        assert_eq!(host_info.place(pid, 8), None);
    }

    fn reads(host_info: &ProcFs) -> u32 {
        host_info.maps.borrow()[&std::process::id()].reads
    }

    #[test]
    fn unmapped_addresses_are_cached() {
        let host_info = ProcFs::default();
        let pid = std::process::id();
        for _ in 0..1000 {
            assert_eq!(host_info.place(pid, 8), None);
        }
        // Once at the beginning, and again whenever the cache has expired.
        assert!(reads(&host_info) < 20, "{}", reads(&host_info));
        for page in 0..10_000 {
            assert_eq!(host_info.place(pid, page % 16 * PAGE), None);
        }
        for page in 0..100_000 {
            // Beyond the address space of any process.
            assert_eq!(host_info.place(pid, (1 << 60) + page * PAGE), None);
        }
        assert!(reads(&host_info) < 10 * MAX_READS, "{}", reads(&host_info));
    }

    #[test]
    fn new_mappings_are_found() {
        let host_info = ProcFs::default();
        let pid = std::process::id();
        assert_eq!(host_info.place(pid, 8), None);
        for _ in 0..20 {
            // Allocators reuse freed memory without a new mapping, so all of it is kept.
            let mapped = vec![0u8; 1 << 20].leak();
            let address = mapped.as_ptr() as u64 + (1 << 19);
            assert_eq!(host_info.place(pid, address), Some(AddressKind::Host));
        }
    }
}
