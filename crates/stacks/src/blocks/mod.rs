//! Blocks of frameworks' allocators, read from the memory of a running process, which is neither stopped nor written to.
//!
//! Nothing is known beforehand about where a field lies: it is found from what must hold, and the blocks are taken only
//! if their sums are those that the allocator keeps itself, before and after they were read.

mod bfc;
mod contexts;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod torch;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::helper::{FileReader, OpenFile, ProcessReader, Range, Request, Words};
use crate::module;
use crate::python::interpreter::Interpreter;
use gpuprobe_cuda::Framework;
use gpuprobe_model::abi::RawPython;
use gpuprobe_model::blocks::{DeviceBlocks, FoundBlock, FoundBlocks};
use gpuprobe_model::clock;
use gpuprobe_model::event::Tensor;
use gpuprobe_os::proc::{self, Mappings};

/// Frameworks that have blocks which can be read.
pub const FRAMEWORKS: [Framework; 3] = [Framework::PyTorch, Framework::TensorFlow, Framework::Xla];

/// Words that are read as one.
const PAGE_WORDS: usize = 512;
/// Pages that are read ahead, about.
const MAX_PAGES: usize = 4096;

type Read<T> = Result<T, Unread>;

/// Reads blocks of processes.
#[derive(Debug)]
pub struct BlockReader {
    files: FileReader,
    processes: ProcessReader,
    /// Addresses of the variables that point to PyTorch's allocator, by process; where there is none, the bytes of the
    /// address space, which change with its mappings.
    roots: HashMap<u32, Result<u64, u64>>,
    /// What reads of PyTorch's blocks needed that failed, by process.
    needed: HashMap<u32, Needed>,
}

impl BlockReader {
    /// Files are read by `files`, processes by `processes`.
    pub fn new(files: FileReader, processes: ProcessReader) -> Self {
        Self {
            files,
            processes,
            roots: HashMap::new(),
            needed: HashMap::new(),
        }
    }

    /// The blocks of a framework in process `pid`, whose allocators have sent these events last, if they are objects that
    /// only their events lead to. There may be several of a device.
    ///
    /// # Errors
    /// Says why there are none.
    pub fn read(
        &mut self,
        pid: u32,
        framework: Framework,
        events: &[Tensor],
    ) -> Result<Vec<DeviceBlocks>, Unread> {
        let memory = self.processes.memory(pid);
        if framework == Framework::PyTorch {
            let root = self.root(pid)?;
            let needed = self.needed.entry(pid).or_default();
            let memory = ReadAhead::of(&memory, needed).ok_or(Unread::Unreadable)?;
            let found = torch::read(&memory, root);
            match found {
                Err(Unread::Changed | Unread::Unlike(_)) => needed.add(&memory.asked.into_inner()),
                _ => drop(self.needed.remove(&pid)),
            }
            return found;
        }
        let mut failed = Unread::Empty;
        let mut found = Vec::new();
        for event in events {
            match bfc::read(&memory, event) {
                Ok(device) => found.extend(device),
                Err(Unread::Changed) => return Err(Unread::Changed),
                Err(error) => failed = error,
            }
        }
        if found.is_empty() {
            Err(failed)
        } else {
            Ok(found)
        }
    }

    /// The blocks of PyTorch in process `pid`, tried again for so long where its allocator is in use.
    ///
    /// # Errors
    /// Says why there are none.
    pub fn read_tried(&mut self, pid: u32, within: Duration) -> Result<FoundBlocks, Unread> {
        let until = Instant::now() + within;
        let framework = Framework::PyTorch;
        let row = gpuprobe_cuda::row_of_blocks(framework).ok_or(Unread::Empty)?;
        loop {
            let time_ns = clock::monotonic_ns();
            match self.read(pid, framework, &[]) {
                Err(Unread::Changed | Unread::Unlike(_)) if Instant::now() < until => {}
                read => {
                    let mut devices = read?;
                    self.find_stacks(pid, &mut devices);
                    return Ok(FoundBlocks {
                        pid,
                        row,
                        time_ns,
                        census: None,
                        devices,
                    });
                }
            }
        }
    }

    fn root(&mut self, pid: u32) -> Result<u64, Unread> {
        let size = proc::stat(pid).map_or(0, |stat| stat.vsize);
        let known = self.roots.get(&pid).copied();
        let known = known.filter(|known| known.is_ok() || *known == Err(size));
        let root = known.unwrap_or_else(|| self.torch_root(pid).ok_or(size));
        self.roots.insert(pid, root);
        root.map_err(|_| Unread::Empty)
    }

    /// Forgets what is known of a process that has ended, or runs another program.
    pub fn forget(&mut self, pid: u32) {
        self.roots.remove(&pid);
        self.needed.remove(&pid);
    }

    /// Finds where blocks were allocated, by the history that PyTorch has of them.
    pub fn find_stacks(&self, pid: u32, devices: &mut [DeviceBlocks]) {
        let is_one = |block: &FoundBlock| block.place != 0 && !block.is_pending;
        if devices.iter().flat_map(|it| &it.blocks).any(is_one)
            && let Some(python) = self.python(pid)
        {
            contexts::find(&self.processes.memory(pid), &python, devices);
        }
    }

    fn torch_root(&self, pid: u32) -> Option<u64> {
        let (file, base) = self.image(pid, |name| name.starts_with("libc10_cuda.so"))?;
        let request = Request::Address(torch::ROOT.into());
        let address: Option<u64> = self.files.ask(&[&file], &request)?;
        Some(base.wrapping_add(address?))
    }

    fn python(&self, pid: u32) -> Option<RawPython> {
        ["libpython", "python"].iter().find_map(|begin| {
            let (file, base) = self.image(pid, |name| name.starts_with(begin))?;
            let found: Option<Interpreter> = self.files.ask(&[&file], &Request::Interpreter)?;
            found?.layout(base).ok()
        })
    }

    /// The first file of a process with such a name, and the address that it is loaded at.
    fn image(&self, pid: u32, is_it: impl Fn(&str) -> bool) -> Option<(OpenFile, u64)> {
        let maps = Mappings::of(pid).ok()?;
        let map = maps.iter().find(|map| {
            let name = map.path_without_mark().and_then(|path| path.file_name());
            name.is_some_and(|name| is_it(&name.to_string_lossy()))
        })?;
        let file = OpenFile::new(module::open(pid, &map)?, map.path_without_mark()?)?;
        let headers = self.files.headers(&file).ok()?;
        let address = headers.segments.address_of(map.offset)?;
        Some((file, map.start.wrapping_sub(address)))
    }
}

/// Why no blocks could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The allocator was in use meanwhile; it may be tried again.
    Changed,
    /// The process has ended, cannot be read, or not in time.
    Unreadable,
    /// It is not as this reader expects; with what was not found.
    Unlike(&'static str),
    /// It has no blocks.
    Empty,
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Changed => write!(f, "it changed while it was read"),
            Self::Unreadable => write!(f, "its memory cannot be read"),
            Self::Unlike(what) => write!(f, "its {what} are not where they were expected"),
            Self::Empty => write!(f, "it has no blocks, or is older than PyTorch 2.0"),
        }
    }
}

/// What reads of a process's blocks needed.
#[derive(Debug, Default)]
struct Needed {
    /// Pages of the allocators themselves: they are read first, and again last, to see whether anything has changed.
    ends: Vec<Range>,
    /// Pages of all the rest, by address, and whether they were there when they were last read.
    pages: BTreeMap<u64, bool>,
}

impl Needed {
    /// What has to be read at once, in this order, and pages that are likely not there.
    fn ranges(&self) -> [Vec<Range>; 2] {
        let (mut all, mut absent) = (self.ends.clone(), Vec::new());
        for (&page, &is_there) in &self.pages {
            let before = page.checked_sub(PAGE_WORDS as u64 * 8);
            let is_one = before.and_then(|page| self.pages.get(&page)) == Some(&true);
            match all.last_mut() {
                _ if !is_there => absent.push((page, PAGE_WORDS)),
                Some((_, words)) if is_one => *words += PAGE_WORDS,
                _ => all.push((page, PAGE_WORDS)),
            }
        }
        all.extend(&self.ends);
        [all, absent]
    }

    /// Also what this read asked for.
    fn add(&mut self, asked: &[(Range, usize)]) {
        if self.pages.len() > MAX_PAGES {
            *self = Self::default();
        }
        for &(range, read) in asked {
            match range.1 {
                PAGE_WORDS if self.ends.contains(&range) => {}
                PAGE_WORDS => self.ends.push(range),
                _ => pages_of(range.0, range.1).for_each(|page| {
                    let end = range.0.saturating_add(read as u64 * 8);
                    let is_there = read > 0 && page < end;
                    *self.pages.entry(page).or_default() |= is_there;
                }),
            }
        }
    }
}

fn pages_of(at: u64, words: usize) -> impl Iterator<Item = u64> {
    let page = PAGE_WORDS * 8;
    (at - at % page as u64..at.saturating_add(words as u64 * 8)).step_by(page)
}

/// Memory of which all that earlier reads needed is read at once. That takes much less time than one step after another,
/// in which an allocator that is in use seldom rests.
struct ReadAhead<'a, W> {
    memory: &'a W,
    /// What was read ahead; of the ends, twice.
    ends: RefCell<HashMap<Range, VecDeque<Vec<u64>>>>,
    pages: RefCell<HashMap<u64, Vec<u64>>>,
    /// What was asked for, and the number of words that there were.
    asked: RefCell<Vec<(Range, usize)>>,
}

impl<'a, W: Words> ReadAhead<'a, W> {
    fn of(memory: &'a W, needed: &mut Needed) -> Option<Self> {
        let mut ends: HashMap<_, VecDeque<_>> = HashMap::new();
        let mut pages = HashMap::new();
        let [ranges, absent] = needed.ranges();
        let read = memory.read_at_rest(&ranges, needed.ends.len())?;
        for (range, words) in ranges.iter().zip(read) {
            if needed.ends.contains(range) {
                ends.entry(*range).or_default().push_back(words);
                continue;
            }
            let read = words.chunks(PAGE_WORDS).map(<[u64]>::to_vec);
            let mut read = read.chain([Vec::new()]);
            for page in pages_of(range.0, range.1) {
                // Behind one that is not there any more, none of a range is read.
                let words = read.next();
                let is_there = words.as_ref().is_some_and(|words| !words.is_empty());
                needed.pages.insert(page, is_there);
                pages.extend(words.map(|words| (page, words)));
            }
        }
        // One that is there now was not read at the same time.
        for (range, words) in absent.iter().zip(memory.read(&absent)?) {
            needed.pages.insert(range.0, !words.is_empty());
            pages.extend(words.is_empty().then_some((range.0, words)));
        }
        Some(Self {
            memory,
            ends: ends.into(),
            pages: pages.into(),
            asked: RefCell::default(),
        })
    }

    fn known(&self, &(at, words): &Range) -> Option<Vec<u64>> {
        if words == PAGE_WORDS {
            return self.ends.borrow_mut().get_mut(&(at, words))?.pop_front();
        }
        let (pages, first) = (self.pages.borrow(), (at / 8) as usize % PAGE_WORDS);
        let mut found = Vec::new();
        for page in pages_of(at, words) {
            found.extend(pages.get(&page)?);
        }
        let found = found.get(first..).unwrap_or_default();
        Some(found[..words.min(found.len())].to_vec())
    }
}

impl<W: Words> Words for ReadAhead<'_, W> {
    fn read(&self, ranges: &[Range]) -> Option<Vec<Vec<u64>>> {
        let found: Option<Vec<_>> = ranges.iter().map(|range| self.known(range)).collect();
        let found = found.or_else(|| {
            // What is read from now on is later than all of it.
            self.ends.borrow_mut().clear();
            self.pages.borrow_mut().clear();
            self.memory.read(ranges)
        })?;
        let read = found.iter().map(Vec::len);
        self.asked
            .borrow_mut()
            .extend(ranges.iter().copied().zip(read));
        Some(found)
    }
}

/// Words at one address: fewer at the end of a mapping.
fn one(memory: &impl Words, at: u64, words: usize) -> Read<Vec<u64>> {
    let read = memory.read(&[(at, words)]).ok_or(Unread::Unreadable)?;
    Ok(read.into_iter().next().unwrap_or_default())
}

/// Words at one address, up to the end of the mapping.
fn region(memory: &impl Words, at: u64, words: usize) -> Read<Vec<u64>> {
    Ok(regions_of(memory, &[at], words)?.pop().unwrap_or_default())
}

fn regions_of(memory: &impl Words, bases: &[u64], words: usize) -> Read<Vec<Vec<u64>>> {
    let pages = |base: u64| {
        (0..words / PAGE_WORDS).map(move |page| {
            (
                base.wrapping_add((page * PAGE_WORDS * 8) as u64),
                PAGE_WORDS,
            )
        })
    };
    let wanted: Vec<_> = bases.iter().flat_map(|&base| pages(base)).collect();
    let found = memory.read(&wanted).ok_or(Unread::Unreadable)?;
    let regions = found.chunks(words / PAGE_WORDS);
    Ok(regions.map(<[Vec<u64>]>::concat).collect())
}
