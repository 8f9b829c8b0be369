//! Perf maps: symbols of JIT-compiled code, which runtimes write to `/tmp/perf-PID.map` as lines of
//! `START SIZE NAME`.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::cache::Cache;
use crate::symbols::demangle::beginning_of;
use gpuprobe_os::bounded::read_at;

/// Maximum number of bytes read of a map.
const LIMIT: u64 = 24 << 20;
/// Maximum number of functions of a map; large Java programs have some hundred thousand.
const FUNCTIONS_LIMIT: usize = 1 << 18;
/// Size of an entry: most nodes of the tree are half full.
const FUNCTION_BYTES: usize = 48;
/// Maximum number of bytes of all maps.
const BYTES_LIMIT: u64 = 48 << 20;
/// Maximum number of cached maps.
const MAPS_LIMIT: usize = 4096;
/// Maximum number of open maps; open ones can be read after their processes have ended.
const OPEN_LIMIT: usize = 256;
/// Minimum interval between reads from the beginning of a truncated map.
const PAUSE: Duration = Duration::from_millis(100);

/// The maps of all processes.
#[derive(Debug)]
pub(crate) struct PerfMaps {
    maps: Cache<u32, PerfMap>,
    files: Cache<u32, File>,
}

/// The map of one process.
#[derive(Debug, Default)]
struct PerfMap {
    /// The lines read so far.
    text: Vec<u8>,
    /// The functions by their start address.
    functions: BTreeMap<u64, PerfMapFunction>,
    begun: Pace,
    /// Device and inode of the file.
    file: Option<(u64, u64)>,
    is_full: bool,
}

/// A rate limit: when something was last done.
#[derive(Clone, Copy, Debug, Default)]
struct Pace(Option<Instant>);

impl Pace {
    /// Whether [`PAUSE`] has passed; records the time if so.
    fn may_go_on(&mut self) -> bool {
        let may = self.0.is_none_or(|at| at.elapsed() >= PAUSE);
        if may {
            self.0 = Some(Instant::now());
        }
        may
    }
}

#[derive(Debug, PartialEq, Eq)]
struct PerfMapFunction {
    size: u64,
    /// Range of its name in the text.
    name: Range<u32>,
}

impl Default for PerfMaps {
    fn default() -> Self {
        Self {
            maps: Cache::new(MAPS_LIMIT, BYTES_LIMIT),
            files: Cache::new(OPEN_LIMIT, u64::MAX),
        }
    }
}

impl PerfMaps {
    /// The name of the function at `address` of process `pid`. On a miss the map is read further, as the
    /// process may have written more.
    pub(crate) fn name(&mut self, pid: u32, address: u64) -> Option<String> {
        let known = self.maps.get(&pid).and_then(|map| map.find(address));
        known.or_else(|| self.refreshed(pid).find(address))
    }

    /// Sets the map of a process if `file` is given, and reads it. Returns whether there is a map that was
    /// not removed; a removed one may have a successor.
    pub(crate) fn keep(&mut self, pid: u32, file: Option<File>) -> bool {
        if let Some(file) = file {
            self.files.make_room(0);
            self.files.insert(pid, 0, file);
            self.refreshed(pid);
        }
        let is_there = self.files.get(&pid).and_then(|file| file.metadata().ok());
        is_there.is_some_and(|metadata| metadata.nlink() > 0)
    }

    /// Removes the map of a process that has ended or called exec.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.maps.remove(&pid);
        self.files.remove(&pid);
    }

    /// The map of `pid`, with the lines added since the last read.
    fn refreshed(&mut self, pid: u32) -> &PerfMap {
        let mut map = self.maps.remove(&pid).unwrap_or_default();
        if let Some(file) = self.files.get(&pid) {
            map.read(file);
        }
        self.maps.make_room(map.bytes());
        self.maps.insert(pid, map.bytes(), map)
    }
}

impl PerfMap {
    fn bytes(&self) -> u64 {
        (self.text.capacity() + self.functions.len() * FUNCTION_BYTES) as u64
    }

    fn find(&self, address: u64) -> Option<String> {
        let (start, function) = self.functions.range(..=address).next_back()?;
        (address - start < function.size).then_some(())?;
        let [start, end] = [function.name.start, function.name.end].map(usize::try_from);
        let name = self.text.get(start.ok()?..end.ok()?)?;
        Some(beginning_of(&String::from_utf8_lossy(name)))
    }

    /// Reads the part of `file` behind the last read, so that each byte is read once.
    fn read(&mut self, file: &File) {
        let Ok(metadata) = file.metadata() else {
            return;
        };
        let identity = Some((metadata.dev(), metadata.ino()));
        let was_cut = metadata.len() < self.text.len() as u64;
        if self.file != identity || was_cut {
            if was_cut && self.file == identity && !self.begun.may_go_on() {
                return;
            }
            *self = Self {
                file: identity,
                begun: self.begun,
                ..Self::default()
            };
        }
        let begin = self.text.len() as u64;
        let more = metadata.len().min(LIMIT).saturating_sub(begin);
        if more > 0 && !self.is_full {
            self.append(&read_at(file, begin, more).unwrap_or_default());
        }
        let is_too_large = metadata.len() > LIMIT || self.functions.len() >= FUNCTIONS_LIMIT;
        self.is_full |= is_too_large;
    }

    /// Adds the complete lines of `more`.
    fn append(&mut self, more: &[u8]) {
        let lines = more.iter().rposition(|&byte| byte == b'\n');
        let lines = lines.map_or(&more[..0], |last| &more[..=last]);
        let mut begin = self.text.len();
        self.text.extend_from_slice(lines);
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            if self.functions.len() >= FUNCTIONS_LIMIT {
                break;
            }
            // For replaced code, the last line is valid.
            self.functions.extend(function(line, begin));
            begin += line.len();
        }
    }
}

/// The function in a line at offset `begin` of the text, with its start address.
fn function(line: &[u8], begin: usize) -> Option<(u64, PerfMapFunction)> {
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
    let function = PerfMapFunction { size, name: place };
    (!name.is_empty()).then_some((start, function))
}

/// Reads `text` at once and in two parts, the first of `length` bytes; returns the number of functions that have
/// a name. For untrusted maps.
///
/// # Panics
/// Panics if the parts have other functions than the whole.
#[cfg(any(test, fuzzing))]
pub(crate) fn try_parts(text: &[u8], length: usize) -> usize {
    let (mut whole, mut parts) = (PerfMap::default(), PerfMap::default());
    whole.append(text);
    parts.append(&text[..length]);
    let read = parts.text.len();
    parts.append(&text[read..]);
    assert_eq!(whole.functions, parts.functions, "the whole, and its parts");
    let starts = whole.functions.keys();
    starts.filter(|&&start| whole.find(start).is_some()).count()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    fn map(text: &[u8]) -> PerfMap {
        let mut map = PerfMap::default();
        map.append(text);
        map
    }

    #[test]
    fn the_last_line_for_an_address_counts() {
        let map =
            map(b"1000 10 old\nnonsense\n2000 8 py::f:/a b.py\n1000 20 new\n0x3000 8 x\n4000\n");
        let name = |address| map.find(address);
        assert_eq!(name(0x101f).as_deref(), Some("new"));
        assert_eq!(name(0x1020), None);
        assert_eq!(name(0x2007).as_deref(), Some("py::f:/a b.py"));
        assert_eq!(name(0x3000).as_deref(), Some("x"));
        assert_eq!(name(0xfff), None);
        assert!(self::map(&[0xff; 100]).functions.is_empty());
    }

    #[test]
    fn maps_stay_within_their_limits() {
        let lines = (0..FUNCTIONS_LIMIT + 100).map(|n| format!("{n:x} 1 a\n"));
        let lines: String = lines.collect();
        let one = map(lines.as_bytes());
        assert_eq!(one.functions.len(), FUNCTIONS_LIMIT);
        assert!(one.bytes() < 64 << 20, "{}", one.bytes());
        let mut maps = PerfMaps::default();
        for pid in 1..=10 {
            let map = map(lines.as_bytes());
            maps.maps.insert(u32::MAX - pid, map.bytes(), map);
            // This process has no map, but room is made for it.
            assert_eq!(maps.name(u32::MAX - 11, 0x10), None);
        }
        assert!(maps.maps.has_room(0));
        assert_eq!(maps.name(u32::MAX - 10, 0x10).as_deref(), Some("a"));
        assert_eq!(maps.name(u32::MAX - 1, 0x10), None);
        for pid in 1..=10 {
            maps.forget(u32::MAX - pid);
        }
        assert!(maps.maps.has_room(BYTES_LIMIT));
    }

    /// A map file with `text`, and the maps that have it.
    fn written(text: &str) -> (File, PerfMaps) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let mut maps = PerfMaps::default();
        maps.keep(PID, Some(file.try_clone().unwrap()));
        (file, maps)
    }

    /// Id of a process that does not exist.
    const PID: u32 = u32::MAX - 20;

    #[test]
    fn a_map_is_read_further_after_its_process_has_ended() {
        let (mut file, mut maps) = written("1000 10 first\n2000 10 sec");
        assert_eq!(maps.name(PID, 0x1001).as_deref(), Some("first"));
        assert_eq!(maps.name(PID, 0x2001), None, "an incomplete line");
        file.write_all(b"ond\n1000 10 again\n").unwrap();
        assert_eq!(maps.name(PID, 0x2001).as_deref(), Some("second"));
        assert_eq!(maps.name(PID, 0x1001).as_deref(), Some("again"));
        for n in 3..100 {
            file.write_all(format!("{n}000 10 f{n}\n").as_bytes())
                .unwrap();
            let address = u64::from_str_radix(&format!("{n}001"), 16).unwrap();
            assert_eq!(maps.name(PID, address), Some(format!("f{n}")));
        }
        maps.forget(PID);
        assert_eq!(maps.name(PID, 0x1001), None);
    }

    #[test]
    fn a_truncated_map_is_read_again() {
        let (mut file, mut maps) = written("1000 10 of_the_first\n2000 10 other\n");
        file.set_len(0).unwrap();
        file.rewind().unwrap();
        file.write_all(b"3000 10 anew\n").unwrap();
        let begin = Instant::now();
        while maps.name(PID, 0x3000).as_deref() != Some("anew") {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::sleep(PAUSE);
        }
        assert_eq!(maps.name(PID, 0x1000), None);
        // Another file, as long as the one before.
        let (next, _) = written("5000 10 next\n");
        maps.keep(PID, Some(next));
        assert_eq!(maps.name(PID, 0x5000).as_deref(), Some("next"));
        assert_eq!(maps.name(PID, 0x3000), None);
    }

    #[test]
    fn the_number_of_open_maps_is_limited() {
        let mut maps = PerfMaps::default();
        let limit = u32::try_from(OPEN_LIMIT).unwrap();
        for pid in PID - limit..=PID {
            let (file, _) = written("1000 10 a\n");
            maps.keep(pid, Some(file));
        }
        assert!(maps.files.get(&(PID - limit)).is_none() && maps.files.get(&PID).is_some());
        // Maps already read stay in the cache.
        assert_eq!(maps.name(PID - limit, 0x1000).as_deref(), Some("a"));
    }

    #[test]
    fn lines_have_a_start_a_size_and_a_name() {
        for (line, expected) in [
            (&b"10 8 a b \n"[..], Some((0x10, 8, 105..108))),
            (b"0xff 0x0 f\n", Some((0xff, 0, 109..110))),
            (b"10 8 \n", None),
            (b"10 8\n", None),
            (b"10 x f\n", None),
        ] {
            let found = function(line, 100).map(|(start, f)| (start, f.size, f.name));
            assert_eq!(found, expected, "{line:?}");
        }
        let one = map(b"1000 10 a\n2000 10 b\n");
        assert_eq!(one.bytes(), one.text.capacity() as u64 + 2 * 48);
        assert!(one.text.capacity() > 0);
    }

    #[test]
    fn a_map_is_there_until_it_is_removed() {
        let mut maps = PerfMaps::default();
        assert!(!maps.keep(PID, None));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"1000 10 a\n").unwrap();
        assert!(maps.keep(PID, Some(file.reopen().unwrap())));
        assert!(maps.keep(PID, None));
        file.close().unwrap();
        assert!(!maps.keep(PID, None));
        assert_eq!(maps.name(PID, 0x1000).as_deref(), Some("a"));
    }

    #[test]
    fn a_full_map_is_read_no_further_and_a_whole_one_once() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"1000 10 a\n").unwrap();
        let mut map = PerfMap::default();
        map.read(&file);
        map.read(&file);
        assert!(map.begun.0.is_none() && !map.is_full && map.functions.len() == 1);
        map.is_full = true;
        file.write_all(b"2000 10 b\n").unwrap();
        map.read(&file);
        assert!(map.is_full && map.functions.len() == 1);
        // One that was cut is read at once, and then seldom.
        file.set_len(10).unwrap();
        map = PerfMap::default();
        map.read(&file);
        for (length, count) in [(9, 0), (8, 0)] {
            map.text.resize(10, b' ');
            file.set_len(length).unwrap();
            map.read(&file);
            assert_eq!(map.functions.len(), count);
            assert_eq!(map.text.is_empty(), length == 9);
        }
    }
}
