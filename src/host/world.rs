//! What the live system tells about traced processes beyond their events.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::budget::Budget;
use super::identity::{self, Cgroups, Users};
use super::nvml::Nvml;
use gpuprobe_engine::Whereabouts;
use gpuprobe_engine::World;
use gpuprobe_model::event::Task;
use gpuprobe_model::identity::Identity;
use gpuprobe_os::budget::MappingBudget;
use gpuprobe_os::proc::Mapping;
use gpuprobe_stacks::reader::Reader;
use gpuprobe_stacks::symbols::HostFiles;

/// How long the mappings of a process are believed.
const MAPS_FOR: Duration = Duration::from_secs(1);
/// How long a page that is in none of them is taken to be in none.
const MISSED_FOR: Duration = Duration::from_millis(250);

/// Answers from `/proc`.
#[derive(Debug, Default)]
pub struct Live {
    /// NVIDIA's management library, if it is there.
    pub nvml: Option<Nvml>,
    maps: RefCell<HashMap<u32, Maps>>,
    mappings: RefCell<MappingBudget>,
    cgroups: RefCell<Cgroups>,
    users: RefCell<Users>,
    /// The files that the programs are in.
    files: RefCell<HostFiles>,
}

/// Pages that are in no mapping of a process, and readings of its mappings in a second.
const MAX_MISSED: usize = 4096;
const MAX_READS: u32 = 200;
const PAGE: u64 = 4096;

/// The mappings of a process, as they were when they were read.
#[derive(Debug)]
struct Maps {
    read: Instant,
    ranges: Vec<Range>,
    /// Pages that are in none, since then or a little before.
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
            // Too much of its user's was read lately: what was known has to do.
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

    /// Where `address` is. The mappings are read again when they are old, or it is in none: it may
    /// just have been mapped. Who has addresses that are nowhere does not have them read each time,
    /// and who has very many mappings not so often.
    fn place(
        &mut self,
        pid: u32,
        address: u64,
        now: Instant,
        mappings: &mut MappingBudget,
    ) -> Option<Whereabouts> {
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

    /// Whether it is of no use any more.
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.read) >= MAPS_FOR && self.budget.is_over(now)
    }
}

/// A mapping of a process; `None` where it may be either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    place: Option<Whereabouts>,
}

impl Live {
    /// With what this host has; files of programs are read by `reader`.
    pub fn open(reader: Reader) -> Self {
        Self {
            nvml: Nvml::open(),
            files: RefCell::new(HostFiles::new(reader)),
            ..Self::default()
        }
    }

    /// Closes files of programs that nobody has asked for lately.
    pub fn close_unused(&self) {
        self.files.borrow_mut().close_unused();
    }
}

impl World for Live {
    fn identity(&self, task: &Task) -> Identity {
        // Its id may have been another's, or it runs another program.
        self.files.borrow_mut().forget(task.pid);
        let mut cgroups = self.cgroups.borrow_mut();
        let mut users = self.users.borrow_mut();
        identity::of(task, self.nvml.as_ref(), &mut cgroups, &mut users)
    }

    fn kernel_at(&self, pid: u32, address: u64) -> Option<String> {
        self.files.borrow_mut().kernel_at(pid, address)
    }

    fn variable_size(&self, pid: u32, name: &str) -> Option<u64> {
        self.files.borrow_mut().size_of_variable(pid, name)
    }

    fn place(&self, pid: u32, address: u64) -> Option<Whereabouts> {
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

fn find(ranges: &[Range], address: u64) -> Option<&Range> {
    let next = ranges.partition_point(|range| range.start <= address);
    let range = ranges.get(next.checked_sub(1)?)?;
    (address < range.end).then_some(range)
}

/// As seen with driver 580: the addresses of device memory are reserved without access rights,
/// pinned memory is shared memory without a file (`/dev/zero`), and managed memory, which can be on
/// either side, is a mapping of `/dev/nvidia-uvm`.
fn range(map: Mapping<'_>) -> Range {
    let path = map.path().map(|path| path.as_os_str().as_encoded_bytes());
    let of_driver = path.is_some_and(|path| path.starts_with(b"/dev/nvidia"));
    let place = if !map.is_readable && !map.is_writable {
        Some(Whereabouts::Device(None))
    } else if of_driver {
        None
    } else {
        Some(Whereabouts::Host)
    };
    Range {
        start: map.start,
        end: map.end,
        place,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_is_the_hosts() {
        let world = Live::default();
        let on_stack = 0u8;
        let on_heap = Box::new(0u8);
        let pid = std::process::id();
        let place = |address: *const u8| world.place(pid, address as u64);
        assert_eq!(place(&raw const on_stack), Some(Whereabouts::Host));
        assert_eq!(place(&raw const *on_heap), Some(Whereabouts::Host));
        assert_eq!(world.place(pid, 8), None);
    }

    fn reads(world: &Live) -> u32 {
        world.maps.borrow()[&std::process::id()].reads
    }

    #[test]
    fn addresses_that_are_nowhere_are_believed_to_be() {
        let world = Live::default();
        let pid = std::process::id();
        for _ in 0..1000 {
            assert_eq!(world.place(pid, 8), None);
        }
        // Once at the beginning, and again whenever the page is taken to be somewhere.
        assert!(reads(&world) < 20, "{}", reads(&world));
        for page in 0..10_000 {
            assert_eq!(world.place(pid, page % 16 * PAGE), None);
        }
        for page in 0..100_000 {
            // All of them are beyond what a process can have.
            assert_eq!(world.place(pid, (1 << 60) + page * PAGE), None);
        }
        assert!(reads(&world) < 10 * MAX_READS, "{}", reads(&world));
    }

    #[test]
    fn what_was_just_mapped_is_found() {
        let world = Live::default();
        let pid = std::process::id();
        assert_eq!(world.place(pid, 8), None);
        for _ in 0..20 {
            // Where it has been given back, memory is taken without being mapped.
            let mapped = vec![0u8; 1 << 20].leak();
            let address = mapped.as_ptr() as u64 + (1 << 19);
            assert_eq!(world.place(pid, address), Some(Whereabouts::Host));
        }
    }
}
