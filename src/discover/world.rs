//! What the live system tells about traced processes beyond their events.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::identity;
use super::nvml::Nvml;
use super::proc::{Mapping, Mappings};
use crate::event::Task;
use crate::state::transfers::Place;
use crate::state::{Identity, World};
use crate::symbols;

/// How long the mappings of a process are believed.
const MAPS_FOR: Duration = Duration::from_secs(1);

/// Answers from `/proc`.
#[derive(Debug, Default)]
pub struct Live {
    /// NVIDIA's management library, if it is there.
    pub nvml: Option<Nvml>,
    maps: RefCell<HashMap<u32, (Instant, Vec<Range>)>>,
    /// Bytes of variables, by process and name: a program may ask for one over and over, and to
    /// find out takes reading its symbols.
    variables: RefCell<HashMap<u32, HashMap<String, Option<u64>>>>,
}

/// Variables of a process, and processes, whose sizes are remembered.
const MAX_VARIABLES: usize = 4096;
const MAX_PROCESSES: usize = 256;

/// A mapping of a process; `None` where it may be either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    place: Option<Place>,
}

impl Live {
    /// With what this host has.
    pub fn open() -> Self {
        Self {
            nvml: Nvml::open(),
            ..Self::default()
        }
    }
}

impl World for Live {
    fn identity(&self, task: &Task) -> Identity {
        // Its id may have been another's, or it runs another program.
        self.variables.borrow_mut().remove(&task.pid);
        identity::of(task, self.nvml.as_ref())
    }

    fn kernel_at(&self, pid: u32, address: u64) -> Option<String> {
        symbols::kernel_of_host_function(pid, address)
    }

    fn variable_size(&self, pid: u32, name: &str) -> Option<u64> {
        let mut processes = self.variables.borrow_mut();
        if processes.len() >= MAX_PROCESSES && !processes.contains_key(&pid) {
            processes.clear();
        }
        let variables = processes.entry(pid).or_default();
        if let Some(&known) = variables.get(name) {
            return known;
        }
        if variables.len() >= MAX_VARIABLES {
            return None;
        }
        let size = symbols::size_of_variable(pid, name);
        variables.insert(name.to_owned(), size);
        size
    }

    fn place(&self, pid: u32, address: u64) -> Option<Place> {
        let mut maps = self.maps.borrow_mut();
        let fresh = maps.get(&pid).is_some_and(|(read, ranges)| {
            read.elapsed() < MAPS_FOR && find(ranges, address).is_some()
        });
        if !fresh {
            maps.retain(|_, (read, _)| read.elapsed() < MAPS_FOR);
            maps.insert(pid, (Instant::now(), ranges_of(pid)));
        }
        let (_, ranges) = maps.get(&pid)?;
        find(ranges, address)?.place
    }
}

fn find(ranges: &[Range], address: u64) -> Option<&Range> {
    let next = ranges.partition_point(|range| range.start <= address);
    let range = ranges.get(next.checked_sub(1)?)?;
    (address < range.end).then_some(range)
}

fn ranges_of(pid: u32) -> Vec<Range> {
    let maps = Mappings::of(pid);
    maps.map_or(Vec::new(), |maps| maps.iter().map(range).collect())
}

/// As seen with driver 580: the addresses of device memory are reserved without access rights,
/// pinned memory is shared memory without a file (`/dev/zero`), and managed memory, which can be on
/// either side, is a mapping of `/dev/nvidia-uvm`.
fn range(map: Mapping<'_>) -> Range {
    let path = map.path().map(|path| path.as_os_str().as_encoded_bytes());
    let of_driver = path.is_some_and(|path| path.starts_with(b"/dev/nvidia"));
    let place = if !map.is_readable && !map.is_writable {
        Some(Place::Device)
    } else if of_driver {
        None
    } else {
        Some(Place::Host)
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
        assert_eq!(place(&raw const on_stack), Some(Place::Host));
        assert_eq!(place(&raw const *on_heap), Some(Place::Host));
        assert_eq!(world.place(pid, 8), None);
    }
}
