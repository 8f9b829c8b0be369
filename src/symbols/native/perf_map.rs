//! Names of code that a process has made at run time, as its runtime has written them down for
//! `perf`: lines of `START SIZE NAME` in `/tmp/perf-PID.map`.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::discover::proc::Status;
use crate::stacks::elf::ReadAt;
use crate::stacks::open_in_root;

/// Bytes of a map that are read.
const LIMIT: u64 = 64 << 20;
/// How long a map is taken not to have changed.
const PAUSE: Duration = Duration::from_secs(1);

/// The map of one process.
#[derive(Debug, Default)]
pub(super) struct PerfMap {
    /// Sorted by address.
    functions: Vec<Function>,
    read_at: Option<Instant>,
    size: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    size: u64,
    name: String,
}

impl PerfMap {
    /// The name of the function at `address` of process `pid`.
    pub(super) fn name(&mut self, pid: u32, address: u64) -> Option<&str> {
        if self.find(address).is_none() {
            self.refresh(pid);
        }
        self.find(address)
    }

    fn find(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|f| f.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        (address - function.start < function.size).then_some(&function.name)
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
        let Some(file) = open_in_root(pid, Path::new(&path)) else {
            return;
        };
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        if size == self.size {
            return;
        }
        self.size = size;
        let bytes = usize::try_from(size.min(LIMIT)).ok();
        let bytes = bytes.and_then(|size| ReadAt::read_at(&file, 0, size));
        self.functions = parse(&bytes.unwrap_or_default());
    }
}

fn parse(bytes: &[u8]) -> Vec<Function> {
    let lines = bytes.split(|&byte| byte == b'\n');
    let mut functions: Vec<_> = lines.filter_map(function).collect();
    // Of code that has been replaced, the last line is the valid one.
    functions.reverse();
    functions.sort_by_key(|function| function.start);
    functions.dedup_by_key(|function| function.start);
    functions
}

fn function(line: &[u8]) -> Option<Function> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.splitn(3, ' ');
    let mut number = || {
        let word = words.next()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = words.next()?.trim_end();
    (!name.is_empty()).then(|| Function {
        start,
        size,
        name: super::resolve::bounded(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_about_an_address_counts() {
        let text = b"1000 10 old\nnonsense\n2000 8 py::f:/a b.py\n1000 20 new\n0x3000 8 x\n4000\n";
        let map = PerfMap {
            functions: parse(text),
            ..PerfMap::default()
        };
        assert_eq!(map.find(0x101f), Some("new"));
        assert_eq!(map.find(0x1020), None);
        assert_eq!(map.find(0x2007), Some("py::f:/a b.py"));
        assert_eq!(map.find(0x3000), Some("x"));
        assert_eq!(map.find(0xfff), None);
        assert!(parse(&[0xff; 100]).is_empty());
    }
}
