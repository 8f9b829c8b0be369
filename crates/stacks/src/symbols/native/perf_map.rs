//! Names of code that a process has made at run time, as its runtime has written them down for
//! `perf`: lines of `START SIZE NAME` in `/tmp/perf-PID.map`.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cache::Cache;
use crate::symbols::demangle::beginning_of;
use gpuprobe_os::bounded::read_at;
use gpuprobe_os::proc::Status;
use gpuprobe_os::regular::open_regular_in_root;

/// Bytes of a map that are read, and kept for its names.
const LIMIT: u64 = 64 << 20;
/// Functions of a map, of 24 bytes each; those of large Java programs are some hundred thousand.
const FUNCTIONS_LIMIT: usize = 1 << 20;
/// Bytes that all maps take together.
const BYTES_LIMIT: u64 = 256 << 20;
/// Processes whose maps, or want of one, are remembered.
const MAPS_LIMIT: usize = 4096;
/// How long a map is taken not to have changed.
const PAUSE: Duration = Duration::from_secs(1);

/// The maps of all processes.
#[derive(Debug)]
pub(super) struct PerfMaps(Cache<u32, PerfMap>);

/// The map of one process.
#[derive(Debug, Default)]
struct PerfMap {
    /// The map as it was read.
    text: Vec<u8>,
    /// Sorted by address.
    functions: Vec<Function>,
    read_at: Option<Instant>,
    size: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    size: u64,
    /// Where its name begins and ends in the text.
    name: Range<u32>,
}

impl Default for PerfMaps {
    fn default() -> Self {
        Self(Cache::new(MAPS_LIMIT, BYTES_LIMIT))
    }
}

impl PerfMaps {
    /// The name of the function at `address` of process `pid`.
    pub(super) fn name(&mut self, pid: u32, address: u64) -> Option<String> {
        let Self(maps) = self;
        let known = maps.get(&pid).and_then(|map| map.find(address));
        if known.is_some() {
            return known;
        }
        let mut map = maps.remove(&pid).unwrap_or_default();
        map.refresh(pid);
        maps.make_room(map.bytes());
        maps.insert(pid, map.bytes(), map).find(address)
    }

    /// The process runs another program or has ended.
    pub(super) fn forget(&mut self, pid: u32) {
        self.0.remove(&pid);
    }
}

impl PerfMap {
    fn bytes(&self) -> u64 {
        (self.text.capacity() + self.functions.capacity() * size_of::<Function>()) as u64
    }

    fn find(&self, address: u64) -> Option<String> {
        let after = self.functions.partition_point(|f| f.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        (address - function.start < function.size).then_some(())?;
        let [start, end] = [function.name.start, function.name.end].map(usize::try_from);
        let name = self.text.get(start.ok()?..end.ok()?)?;
        Some(beginning_of(&String::from_utf8_lossy(name)))
    }

    /// Reads the map again if it has grown; that of a process that has ended stays as it is.
    fn refresh(&mut self, pid: u32) {
        if self.read_at.is_some_and(|time| time.elapsed() < PAUSE) {
            return;
        }
        self.read_at = Some(Instant::now());
        // The runtime knows itself by the id that it has in its own namespace.
        let status = Status::of(pid).ok();
        let ids = status.as_ref().and_then(|status| status.field("NSpid"));
        let own = ids.and_then(|ids| ids.split_ascii_whitespace().next_back());
        let own = own.and_then(|own| own.parse().ok()).unwrap_or(pid);
        let path = format!("/tmp/perf-{own}.map");
        let Ok(file) = open_regular_in_root(pid, Path::new(&path)) else {
            return;
        };
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        if size == self.size {
            return;
        }
        self.size = size;
        // Not both at once.
        (self.text, self.functions) = (Vec::new(), Vec::new());
        self.text = read_at(&file, 0, size.min(LIMIT)).unwrap_or_default();
        self.functions = parse(&self.text);
        if size > LIMIT || self.functions.len() >= FUNCTIONS_LIMIT {
            tracing::warn!("{path} of process {pid} is too large: not all is read of it");
        }
    }
}

fn parse(text: &[u8]) -> Vec<Function> {
    let mut functions = Vec::new();
    let mut begin = 0;
    for line in text.split(|&byte| byte == b'\n') {
        functions.extend(function(line, begin));
        begin += line.len() + 1;
        if functions.len() >= FUNCTIONS_LIMIT {
            break;
        }
    }
    // Of code that has been replaced, the last line is the valid one.
    functions.reverse();
    functions.sort_by_key(|function| function.start);
    functions.dedup_by_key(|function| function.start);
    functions.shrink_to_fit();
    functions
}

/// The function in a line that begins at `begin`.
fn function(line: &[u8], begin: usize) -> Option<Function> {
    let mut words = line.splitn(3, |&byte| byte == b' ');
    let mut number = || {
        let word = str::from_utf8(words.next()?).ok()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = words.next()?;
    let begin = begin + (line.len() - name.len());
    let name = name.trim_ascii_end();
    let place = u32::try_from(begin).ok()?..u32::try_from(begin + name.len()).ok()?;
    (!name.is_empty()).then_some(Function {
        start,
        size,
        name: place,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &[u8]) -> PerfMap {
        PerfMap {
            functions: parse(text),
            text: text.to_vec(),
            ..PerfMap::default()
        }
    }

    #[test]
    fn the_last_line_about_an_address_counts() {
        let map =
            map(b"1000 10 old\nnonsense\n2000 8 py::f:/a b.py\n1000 20 new\n0x3000 8 x\n4000\n");
        let name = |address| map.find(address);
        assert_eq!(name(0x101f).as_deref(), Some("new"));
        assert_eq!(name(0x1020), None);
        assert_eq!(name(0x2007).as_deref(), Some("py::f:/a b.py"));
        assert_eq!(name(0x3000).as_deref(), Some("x"));
        assert_eq!(name(0xfff), None);
        assert!(parse(&[0xff; 100]).is_empty());
    }

    #[test]
    fn maps_take_no_more_than_they_may() {
        let lines = (0..FUNCTIONS_LIMIT + 100).map(|n| format!("{n:x} 1 a\n"));
        let lines: String = lines.collect();
        let one = map(lines.as_bytes());
        assert_eq!(one.functions.len(), FUNCTIONS_LIMIT);
        assert!(one.bytes() < 64 << 20, "{}", one.bytes());
        let mut maps = PerfMaps::default();
        for pid in 1..=10 {
            let map = map(lines.as_bytes());
            maps.0.insert(u32::MAX - pid, map.bytes(), map);
            // There is none of this process; what room it takes is made.
            assert_eq!(maps.name(u32::MAX - 11, 0x10), None);
        }
        assert!(maps.0.has_room(0));
        assert_eq!(maps.name(u32::MAX - 10, 0x10).as_deref(), Some("a"));
        assert_eq!(maps.name(u32::MAX - 1, 0x10), None);
        for pid in 1..=10 {
            maps.forget(u32::MAX - pid);
        }
        assert!(maps.0.has_room(BYTES_LIMIT));
    }
}
