//! Perf maps: symbols of JIT-compiled code, which runtimes write to `/tmp/perf-PID.map` as lines of
//! `START SIZE NAME`.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::demangle::{NAME_LIMIT, beginning};

/// Maximum number of bytes read of a map.
const LIMIT: u64 = 24 << 20;
/// Maximum number of functions of a map; large Java programs have some hundred thousand.
const FUNCTIONS_LIMIT: usize = 1 << 18;

/// The map of one process: the functions by their start address, with their sizes and names.
#[derive(Debug, Default)]
pub(crate) struct PerfMap {
    /// Bytes of the lines read so far.
    pub(crate) length: usize,
    pub(crate) functions: BTreeMap<u64, (u64, Box<str>)>,
}

impl PerfMap {
    /// The name of the function at `address`. On a miss the map in `file` is read further, as the process may have
    /// written more.
    pub(crate) fn name(&mut self, file: &File, address: u64) -> Option<&str> {
        if self.find(address).is_none() {
            self.read(file);
        }
        self.find(address)
    }

    pub(crate) fn find(&self, address: u64) -> Option<&str> {
        let (start, (size, name)) = self.functions.range(..=address).next_back()?;
        (address - start < *size).then_some(name)
    }

    /// Reads the part of `file` behind the last read, so that each byte is read once; or all, if it was truncated.
    fn read(&mut self, file: &File) {
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        if size < self.length as u64 {
            *self = Self::default();
        }
        let begin = self.length as u64;
        let mut more = vec![0; size.min(LIMIT).saturating_sub(begin) as usize];
        if file.read_exact_at(&mut more, begin).is_ok() {
            self.append(&more);
        }
    }

    /// Adds the complete lines of `more`.
    pub(crate) fn append(&mut self, more: &[u8]) {
        let end = more.iter().rposition(|&byte| byte == b'\n');
        let lines = &more[..end.map_or(0, |last| last + 1)];
        self.length += lines.len();
        for line in lines.split(|&byte| byte == b'\n') {
            if self.functions.len() >= FUNCTIONS_LIMIT {
                break;
            }
            // For replaced code, the last line is valid.
            self.functions.extend(function(line));
        }
    }
}

/// The function in a line: its start address, its size and its name.
fn function(line: &[u8]) -> Option<(u64, (u64, Box<str>))> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.splitn(3, ' ');
    let mut number = || {
        let word = words.next()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = beginning(words.next()?.trim_ascii_end(), NAME_LIMIT);
    (!name.is_empty()).then(|| (start, (size, name.into())))
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
        assert_eq!(name(0x101f), Some("new"));
        assert_eq!(name(0x1020), None);
        assert_eq!(name(0x2007), Some("py::f:/a b.py"));
        assert_eq!(name(0x3000), Some("x"));
        assert_eq!(name(0xfff), None);
        assert!(self::map(&[0xff; 100]).functions.is_empty());
    }

    #[test]
    fn a_map_stays_within_its_limit() {
        let lines = (0..FUNCTIONS_LIMIT + 100).map(|n| format!("{n:x} 1 a\n"));
        let lines: String = lines.collect();
        assert_eq!(map(lines.as_bytes()).functions.len(), FUNCTIONS_LIMIT);
    }

    /// A map file with `text`.
    fn written(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn a_map_is_read_further() {
        let mut file = written("1000 10 first\n2000 10 sec");
        let mut map = PerfMap::default();
        assert_eq!(map.name(&file, 0x1001), Some("first"));
        assert_eq!(map.name(&file, 0x2001), None, "an incomplete line");
        file.write_all(b"ond\n1000 10 again\n").unwrap();
        assert_eq!(map.name(&file, 0x2001), Some("second"));
        assert_eq!(map.name(&file, 0x1001), Some("again"));
        for n in 3..100 {
            file.write_all(format!("{n}000 10 f{n}\n").as_bytes())
                .unwrap();
            let address = u64::from_str_radix(&format!("{n}001"), 16).unwrap();
            let name = format!("f{n}");
            assert_eq!(map.name(&file, address), Some(&*name));
        }
    }

    #[test]
    fn a_truncated_map_is_read_again() {
        let mut file = written("1000 10 of_the_first\n2000 10 other\n");
        let mut map = PerfMap::default();
        assert_eq!(map.name(&file, 0x1000), Some("of_the_first"));
        file.set_len(0).unwrap();
        file.rewind().unwrap();
        file.write_all(b"3000 10 anew\n").unwrap();
        assert_eq!(map.name(&file, 0x3000), Some("anew"));
        assert_eq!(map.name(&file, 0x1000), None);
    }

    #[test]
    fn lines_have_a_start_a_size_and_a_name() {
        for (line, expected) in [
            (&b"10 8 a b "[..], Some((0x10, (8, "a b".into())))),
            (b"0xff 0x0 \xff", Some((0xff, (0, "\u{fffd}".into())))),
            (b"10 8 ", None),
            (b"10 8", None),
            (b"10 x f", None),
        ] {
            assert_eq!(function(line), expected, "{line:?}");
        }
    }

    #[test]
    fn a_full_map_is_read_no_further() {
        let mut file = written("1000 10 a\n");
        let mut map = PerfMap {
            length: usize::try_from(LIMIT).unwrap(),
            ..PerfMap::default()
        };
        file.set_len(LIMIT).unwrap();
        file.seek(std::io::SeekFrom::End(0)).unwrap();
        file.write_all(b"2000 10 b\n").unwrap();
        map.read(&file);
        assert!(map.functions.is_empty() && map.length as u64 == LIMIT);
    }
}
