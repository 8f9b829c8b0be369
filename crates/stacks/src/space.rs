//! Executable mappings of all traced processes: locations of addresses, and unwinding.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::{SysconfVar, sysconf};

use super::elf::Refusal;
use super::helper::{FileReader, ProcessMemory, ProcessReader};
use super::modules::Modules;
use super::unwind::{self, ProcessCode, UnwindRow, UnwindRule, trampoline};
use super::{Module, StackCopy, Unwound};
use gpuprobe_model::abi::{CODE_SHIFT, CODE_WORDS, RawCode};
use gpuprobe_model::stack::{Location, ModuleId};
use gpuprobe_os::proc::{self, Mapping, Mappings};

/// How long a page in no mapping stays in the cache of unmapped pages.
const PAUSE: Duration = Duration::from_millis(250);
/// Maximum number of reads of a process's mappings in that time, for new pages.
const MAX_READS: usize = 10;
const PAGE: u64 = 4096;
/// Maximum number of anonymous mappings of a process whose beginning is read; `CPython`'s trampolines are
/// in one or two.
const MAX_PEEKS: u32 = 64;
/// Maximum number of cached unwind rules, of about 200 bytes each.
const RULES_LIMIT: usize = 1 << 17;

/// The executable mappings of all traced processes.
#[derive(Debug)]
pub struct AddressSpaces {
    processes: HashMap<u32, CodeSpace>,
    modules: Modules,
    rules: Rules,
    memory: ProcessReader,
}

/// The executable mappings of one process.
#[derive(Debug, Default)]
struct CodeSpace {
    /// The mappings, sorted by address.
    ranges: Vec<CodeRange>,
    /// Number of executable pages, as counted by the kernel when the mappings were read.
    exec_pages: Option<u64>,
    /// Unmapped pages since then, for each of which the mappings were read again.
    missed_since: Option<Instant>,
    missed: HashSet<u64>,
}

/// A mapping of a process with execute permission.
#[derive(Debug)]
struct CodeRange {
    start: u64,
    end: u64,
    /// File offset of its beginning.
    offset: u64,
    is_writable: bool,
    module: Option<Arc<Module>>,
    /// The unwind rule of return addresses in it, if it has no file and begins with a trampoline.
    trampoline: Option<Arc<UnwindRule>>,
}

/// Cache of unwind rules by module and first address, shared by all processes.
#[derive(Debug, Default)]
struct Rules(BTreeMap<(ModuleId, u64), Known>);

/// End address of a rule, and the rule if there is one.
type Known = (u64, Option<Arc<UnwindRule>>);

impl Rules {
    /// The rule of `module` for `address`. A miss requests the rules of the whole function.
    fn at(
        &mut self,
        reader: &FileReader,
        module: &Module,
        address: u64,
    ) -> Option<Arc<UnwindRule>> {
        let Self(known) = self;
        let key = |address| (module.id, address);
        let before = known.range(key(0)..=key(address)).next_back();
        if let Some((_, (end, rule))) = before
            && address < *end
        {
            return rule.clone();
        }
        let rows = module
            .opened()
            .and_then(|file| reader.rules(file, address))
            .unwrap_or_default();
        if known.len() + rows.len() >= RULES_LIMIT {
            known.clear();
        }
        let mut found = None;
        for UnwindRow { addresses, rule } in rows {
            let rule = Some(Arc::new(rule));
            if addresses.contains(&address) {
                found.clone_from(&rule);
            }
            known.insert(key(addresses.start), (addresses.end, rule));
        }
        if found.is_none() {
            known.insert(key(address), (address.saturating_add(1), None));
        }
        found
    }
}

impl AddressSpaces {
    /// Without processes; files are read by `reader`, memory of processes by `memory`.
    pub fn new(reader: FileReader, memory: ProcessReader) -> Self {
        Self {
            processes: HashMap::new(),
            modules: Modules::new(reader),
            rules: Rules::default(),
            memory,
        }
    }

    /// The memory of process `pid`.
    pub(crate) fn memory(&self, pid: u32) -> ProcessMemory {
        self.memory.memory(pid)
    }

    /// The reader of files.
    pub(crate) fn reader(&self) -> &FileReader {
        self.modules.reader()
    }

    /// Takes a snapshot of the mappings of `pid`: when it is first seen, has mapped a library, or is
    /// held at exec. The last snapshot is kept if the process has ended.
    pub fn refresh(&mut self, pid: u32) {
        let space = self.processes.entry(pid).or_default();
        // Before the mappings: a mapping added in between makes the count differ, so it is noticed.
        let exec_pages = exec_pages(pid);
        let maps = Mappings::of(pid).ok();
        // A zombie has no mappings.
        let Some(maps) = maps.filter(|maps| maps.iter().next().is_some()) else {
            return;
        };
        space.exec_pages = exec_pages;
        let (modules, memory) = (&mut self.modules, self.memory.memory(pid));
        let mut peeks = 0..MAX_PEEKS;
        let mut trampoline_at = |address| {
            peeks.next()?;
            let mut code = [0; trampoline::WHOLE];
            let code = memory.read(address, &mut code)?;
            trampoline::rule(code).map(Arc::new)
        };
        let range = |map: Mapping<'_>| {
            let is_anonymous = map.inode == 0 && map.path().is_none();
            CodeRange {
                start: map.start,
                end: map.end,
                offset: map.offset,
                is_writable: map.is_writable,
                module: modules.of(pid, &map),
                trampoline: is_anonymous.then(|| trampoline_at(map.start)).flatten(),
            }
        };
        let code = maps.iter().filter(|map| map.is_code && !map.is_vsyscall());
        space.ranges = code.map(range).collect();
    }

    /// Drops the mappings of a process that has ended or called exec, but not the modules.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Closes files that no process has mapped any more, nor had when this was last called: who wants
    /// the names of their functions has asked for them. Gives the modules of these.
    pub fn close_unused(&mut self) -> Vec<ModuleId> {
        let ranges = self.processes.values().flat_map(|space| &space.ranges);
        let mapped = ranges.filter_map(|range| Some(range.module.as_ref()?.id));
        self.modules.close_unused(&mapped.collect())
    }

    /// Why stacks of `pid` are not supported, if so.
    pub fn refusal(&self, pid: u32) -> Option<&Refusal> {
        let mut mapped = self.processes.get(&pid)?.ranges.iter();
        let main = mapped.find_map(|range| range.module.as_ref())?;
        let refusal = main.headers().err();
        refusal.filter(|refusal| !matches!(refusal, Refusal::Damaged(_)))
    }

    /// The executable pages of process `pid` for the kernel side. `None` if they are unknown or may change
    /// unnoticed: the kernel's count does not include writable pages.
    pub fn code(&self, pid: u32) -> Option<Box<RawCode>> {
        let space = self.processes.get(&pid)?;
        if space.ranges.iter().any(|range| range.is_writable) {
            return None;
        }
        let mut code = Box::new(RawCode {
            exec_pages: space.exec_pages?,
            bits: [0; CODE_WORDS],
        });
        let parts = 64 * CODE_WORDS as u64;
        for range in &space.ranges {
            let (first, last) = (range.start >> CODE_SHIFT, (range.end - 1) >> CODE_SHIFT);
            for part in (first..=last).take(64 * CODE_WORDS) {
                let part = part % parts;
                code.bits[(part / 64) as usize] |= 1 << (part % 64);
            }
        }
        Some(code)
    }

    /// The location of `address`. If it is in no mapping they are read again, a limited number of times.
    pub fn locate(&mut self, pid: u32, address: u64) -> Location {
        let located = self.find(pid, address, address);
        located.unwrap_or_else(|| nowhere(address))
    }

    /// The location of a call that returns to `address`. The call may be the last instruction of its
    /// mapping, so the byte before `address` is looked up.
    pub fn locate_caller(&mut self, pid: u32, address: u64) -> Location {
        let located = self.find(pid, address, address.wrapping_sub(1));
        located.unwrap_or_else(|| nowhere(address))
    }

    /// Unwinds a copied stack of process `pid`.
    pub fn unwind(&mut self, pid: u32, copy: &StackCopy<'_>) -> Unwound {
        unwind::unwind(&mut UnwoundProcess { pid, spaces: self }, copy)
    }

    /// The files of which process `pid` has mapped code, each with its load bias; the executable first.
    pub(crate) fn images(&self, pid: u32) -> impl Iterator<Item = (&Arc<Module>, u64)> {
        let space = self.processes.get(&pid).into_iter();
        space.flat_map(|space| &space.ranges).filter_map(|range| {
            let module = range.module.as_ref()?;
            let segments = &module.headers().ok()?.segments;
            let stated = segments.address_of_code(range.offset)?;
            Some((module, range.start.wrapping_sub(stated)))
        })
    }

    /// The file of the code at `address`, and the file offset, in the last snapshot.
    pub(crate) fn code_at(&self, pid: u32, address: u64) -> Option<(Arc<Module>, u64)> {
        let location = self.processes.get(&pid)?.find(address, address)?;
        Some((self.module(location.module?)?, location.offset))
    }

    /// The virtual address in the file of the byte before a return address.
    pub(crate) fn file_address(&self, location: &Location) -> Option<u64> {
        let module = self.module(location.module?)?;
        let before = location.offset.checked_sub(1)?;
        module.headers().ok()?.segments.address_of(before)
    }

    /// The module with this id.
    pub fn module(&self, id: ModuleId) -> Option<Arc<Module>> {
        self.modules.get(id)
    }

    /// The location of `address`, in the mapping at `lookup`.
    fn find(&mut self, pid: u32, address: u64, lookup: u64) -> Option<Location> {
        let space = self.processes.entry(pid).or_default();
        let found = space.find(address, lookup);
        if found.is_some() || !space.may_read(lookup) {
            return found;
        }
        self.refresh(pid);
        self.processes.get(&pid)?.find(address, lookup)
    }

    /// The processes with a snapshot.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.keys().copied()
    }
}

/// Number of executable pages of process `pid`, as counted by the kernel.
fn exec_pages(pid: u32) -> Option<u64> {
    let status = proc::status(pid).ok()?;
    // One is the executable, the other everything else.
    let kib = status.vmexe?.checked_add(status.vmlib?)?;
    let bytes = kib.checked_mul(1024)?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    bytes.checked_div(u64::try_from(page).ok()?)
}

fn nowhere(address: u64) -> Location {
    Location {
        address,
        module: None,
        offset: 0,
    }
}

/// One process, as seen by the unwinder.
struct UnwoundProcess<'a> {
    pid: u32,
    spaces: &'a mut AddressSpaces,
}

impl ProcessCode for UnwoundProcess<'_> {
    fn place(&mut self, address: u64, lookup: u64) -> Option<Location> {
        self.spaces.find(self.pid, address, lookup)
    }

    fn rule(&mut self, lookup: u64, has_called: bool) -> Option<Arc<UnwindRule>> {
        let range = self.spaces.processes.get(&self.pid)?.range(lookup)?;
        let Some(module) = &range.module else {
            return range.trampoline.clone().filter(|_| has_called);
        };
        let offset = range.offset.wrapping_add(lookup.wrapping_sub(range.start));
        let address = module.headers().ok()?.segments.address_of(offset)?;
        let reader = self.spaces.modules.reader();
        self.spaces.rules.at(reader, module, address)
    }
}

impl CodeSpace {
    /// Whether to read the mappings again because `address` is in none: it may just have been mapped.
    fn may_read(&mut self, address: u64) -> bool {
        let since = self.missed_since;
        if since.is_none_or(|since| since.elapsed() > PAUSE) {
            self.missed_since = Some(Instant::now());
            self.missed.clear();
        }
        self.missed.len() < MAX_READS && self.missed.insert(address / PAGE)
    }

    fn range(&self, address: u64) -> Option<&CodeRange> {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (address < range.end).then_some(range)
    }

    fn find(&self, address: u64, lookup: u64) -> Option<Location> {
        let range = self.range(lookup)?;
        let mut location = nowhere(address);
        if let Some(module) = &range.module {
            let distance = address.wrapping_sub(range.start);
            location.module = Some(module.id);
            location.offset = range.offset.wrapping_add(distance);
        }
        Some(location)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
