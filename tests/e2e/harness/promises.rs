//! Promises that hold beside hostile users: memory, delays of reports and of the end, and files that are not
//! written.

use std::collections::HashMap;
use std::fs;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use procfs::process::Process;

use super::child::{raw, readers_of};
use super::{Gpuprobe, Report, wait_for};

/// How late a report is at most.
pub(crate) const LATE: Duration = Duration::from_secs(2);
/// Time limit of a shutdown.
const END: Duration = Duration::from_secs(2);
/// Limit of memory of gpuprobe and its readers together.
pub(crate) const MEMORY_BYTES: u64 = 256_000_000;

/// The gpuprobe with this PID, and its readers.
fn with_readers(pid: u32) -> impl Iterator<Item = u32> {
    readers_of(pid).into_iter().chain([pid])
}

/// Resident memory of gpuprobe and its readers, without pages of files: these are in the page cache for whoever
/// maps the file, and the kernel drops them when it needs the memory.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let of_process = |pid: u32| {
        let status = Process::new(raw(pid).as_raw()).and_then(|process| process.status());
        // A reader may be gone by now.
        let kib = status.map_or([None; 2], |status| [status.rssanon, status.rssshmem]);
        kib.into_iter().flatten().sum::<u64>() * 1024
    };
    with_readers(pid).map(of_process).sum()
}

/// The helpers, which gpuprobe's main thread waits for while they answer.
const AWAITED: [&str; 2] = ["parser", "reader"];

/// A process whose main thread is in the chain of those that a report waits for.
fn is_in_chain(gpuprobe: u32, pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let kind = line.split(|&byte| byte == 0).nth(2).unwrap_or_default();
    pid == gpuprobe || AWAITED.iter().any(|awaited| awaited.as_bytes() == kind)
}

/// Time that the main thread of a process has waited for a processor.
fn starved(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat"));
    let waited = text.unwrap_or_default();
    let waited = waited.split(' ').nth(1).map(str::parse);
    waited.map_or(Duration::ZERO, |ns| Duration::from_nanos(ns.unwrap()))
}

/// Whether a process that ends waits for the kernel's list of those who map one of its files. Kernels that look for
/// idle memory (`kdamond`) walk these lists, which are long beside many processes, and keep a list to themselves
/// while they wait for a processor: 3 s were seen. Any other program that ends then waits as long.
fn waits_for_mappings(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let mut threads = threads.flatten().flatten();
    threads.any(|thread| {
        let place = fs::read_to_string(thread.path().join("wchan"));
        place.is_ok_and(|place| place.starts_with("unlink_file_vma"))
    })
}

/// A delay of gpuprobe, without the time that it waits for a processor, or at its end for [`waits_for_mappings`]: that
/// is the kernel's doing, and tests run beside other programs. Its main thread and a reader that it asks wait one
/// after the other, so their times are added. It waits for nobody who attaches or detaches.
pub(crate) struct Delay {
    pid: u32,
    since: Instant,
    /// When it was last looked at.
    last_look: Instant,
    /// How long each of these processes had waited for a processor by then.
    starved: HashMap<u32, Duration>,
    /// Time until then that was not gpuprobe's.
    waited: Duration,
}

impl Delay {
    pub(crate) fn of(gpuprobe: u32) -> Self {
        let now = Instant::now();
        let mut delay = Self {
            pid: gpuprobe,
            since: now,
            last_look: now,
            starved: HashMap::new(),
            waited: Duration::ZERO,
        };
        delay.so_far();
        delay.waited = Duration::ZERO;
        delay
    }

    /// To be called again and again: it sees what lasts, and no longer what has ended.
    pub(crate) fn so_far(&mut self) -> Duration {
        let now = Instant::now();
        let since = now - mem::replace(&mut self.last_look, now);
        let chain = with_readers(self.pid).filter(|&pid| is_in_chain(self.pid, pid));
        let mut waited = Duration::ZERO;
        for pid in chain {
            let to = starved(pid);
            let from = self.starved.insert(pid, to).unwrap_or_default();
            waited += to.saturating_sub(from);
        }
        if waits_for_mappings(self.pid) {
            waited = since;
        }
        self.waited += since.min(waited);
        self.since.elapsed().saturating_sub(self.waited)
    }
}

/// Asserts that each of the next `count` reports comes in time.
pub(crate) fn assert_reports_come(gpuprobe: &Gpuprobe, interval: Duration, count: usize) {
    for _ in 0..count {
        let mut delay = Delay::of(gpuprobe.child.pid());
        let mut took = Duration::ZERO;
        gpuprobe.next_report_while(|| took = delay.so_far());
        assert!(took < interval + LATE, "{took:?}");
    }
}

/// Asserts that SIGTERM ends it within two seconds; returns the last report.
pub(crate) fn assert_ends(gpuprobe: &mut Gpuprobe) -> Report {
    let mut delay = Delay::of(gpuprobe.child.pid());
    gpuprobe.child.signal(Signal::SIGTERM);
    let mut took = Duration::ZERO;
    wait_for("gpuprobe's end", || {
        let has_ended = gpuprobe.child.streams().try_wait().unwrap().is_some();
        if !has_ended {
            took = delay.so_far();
        }
        has_ended.then_some(())
    });
    assert!(took < END, "{took:?}: {:#?}", gpuprobe.said());
    gpuprobe.final_report()
}

/// A file of others, which gpuprobe must not write to.
pub(crate) struct OthersFile {
    path: PathBuf,
    bytes: Vec<u8>,
    facts: [u64; 6],
}

impl OthersFile {
    pub(crate) fn of(path: &Path) -> Self {
        let file = fs::symlink_metadata(path).unwrap();
        let [mode, uid, gid] = [file.mode(), file.uid(), file.gid()].map(u64::from);
        // The kernel changes the last two with every change of the file.
        let changed = [file.ctime(), file.ctime_nsec()].map(i64::cast_unsigned);
        Self {
            path: path.to_owned(),
            bytes: fs::read(path).unwrap(),
            facts: [file.ino(), mode, uid, gid, changed[0], changed[1]],
        }
    }

    /// Asserts that it is what it was.
    pub(crate) fn assert_unwritten(&self) {
        let now = Self::of(&self.path);
        let path = self.path.display();
        assert_eq!(now.facts, self.facts, "{path}");
        assert!(now.bytes == self.bytes, "{path}");
    }
}
