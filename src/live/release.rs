//! Detaching from files that no process uses.
//!
//! A uprobe keeps a reference to its inode, and so to the file system: that of an ended container, or the
//! blocks of a deleted library. So probed files are checked at intervals for a remaining path on this
//! host or a process that has them mapped. This is done only host-wide, as it takes a scan of all
//! processes.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::tracer::{ProcessScan, ScanProgress, ScanPurpose, Tracer};
use crate::host::LibraryId;
use crate::host::process;
use gpuprobe_stacks::reader::{Opener, ReaderHost};

/// Interval of checks for unused files.
const EVERY: Duration = Duration::from_secs(5);
/// Maximum time of one step of a search; steps come every 100 ms.
const STEP: Duration = Duration::from_millis(3);
/// Number of files whose paths are checked at a time.
const MAX_NAMES: usize = 64;
/// Maximum rounds of a search; each scans the processes started during the last one.
const MAX_ROUNDS: u32 = 10;

/// The search for unused probed files.
#[derive(Debug, Default)]
pub(super) struct Release {
    /// When the paths were last checked.
    asked: Option<Instant>,
    /// Opens paths in other users' directories.
    opener: Option<Opener>,
    /// Position in the list of files without a known user, modulo its length.
    names: usize,
    /// Receives the files that are no longer at their paths.
    nameless: Option<Receiver<HashSet<LibraryId>>>,
    search: Option<MappingSearch>,
}

/// A scan of the mappings of all processes.
#[derive(Debug)]
struct MappingSearch {
    /// Files that no scanned process has mapped.
    unused: HashSet<LibraryId>,
    /// Processes scanned, and those left to scan.
    seen: HashSet<u32>,
    left: Vec<u32>,
    rounds: u32,
    scan: Option<ProcessScan>,
}

impl Release {
    /// Continues the search for at most [`STEP`] and detaches from the files found unused.
    pub(super) fn step(&mut self, tracer: &mut Tracer) {
        let now = Instant::now();
        let Some(search) = &mut self.search else {
            self.ask(tracer, now);
            return;
        };
        if search.advance(tracer, now + STEP) {
            for library in search.unused.drain() {
                tracer.release(library);
            }
            self.search = None;
        }
    }

    /// Starts a check of the paths if it is due; begins a search once one has ended.
    fn ask(&mut self, tracer: &mut Tracer, now: Instant) {
        if let Some(nameless) = &self.nameless {
            let found = match nameless.try_recv() {
                Ok(found) => found,
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => HashSet::new(),
            };
            self.nameless = None;
            self.search = (!found.is_empty()).then(|| MappingSearch::begin(tracer, found));
        } else if self.asked.is_none_or(|asked| now - asked >= EVERY) {
            self.asked = Some(now);
            let mut unused = tracer.without_user();
            // Files that are at their paths come again: go on behind the last ones.
            let begun = self.names.checked_rem(unused.len()).unwrap_or(0);
            unused.rotate_left(begun);
            unused.truncate(MAX_NAMES);
            self.names = begun + unused.len();
            if !unused.is_empty() {
                let opener = self
                    .opener
                    .get_or_insert_with(|| Opener::new(ReaderHost::Process));
                self.nameless = nameless(unused, opener.clone());
            }
        }
    }
}

/// Finds the files that are no longer at their paths, on a thread: opening a path may block.
fn nameless(
    unused: Vec<(LibraryId, PathBuf, u32)>,
    opener: Opener,
) -> Option<Receiver<HashSet<LibraryId>>> {
    let (sender, receiver) = channel();
    let find = move || {
        let is_gone = |(library, path, owner): &(LibraryId, PathBuf, u32)| {
            !library.is_at(path, *owner, &opener)
        };
        let found = unused.iter().filter(|one| is_gone(one));
        // Fails only if the session has ended.
        let _ = sender.send(found.map(|(library, ..)| *library).collect());
    };
    let started = thread::Builder::new()
        .name("names of files".into())
        .spawn(find);
    started.ok().map(|_| receiver)
}

impl MappingSearch {
    fn begin(tracer: &Tracer, unused: HashSet<LibraryId>) -> Self {
        // From now on every exec causes a scan; with known images, a program whose loader is probed would
        // not be noticed.
        tracer.probe.forget_images();
        Self {
            unused,
            seen: HashSet::new(),
            left: process::all_pids(),
            rounds: 1,
            scan: None,
        }
    }

    /// Searches until `until`. Returns true at the end.
    fn advance(&mut self, tracer: &mut Tracer, until: Instant) -> bool {
        while !self.unused.is_empty() && Instant::now() < until {
            if self.scan.is_some() {
                self.continue_scan(tracer, until);
            } else if let Some(pid) = self.left.pop() {
                // An ended process has nothing mapped.
                self.scan = self
                    .seen
                    .insert(pid)
                    .then(|| tracer.begin_scan(pid, ScanPurpose::Uses).ok())
                    .flatten();
            } else if !self.next_round() {
                return true;
            }
        }
        self.unused.is_empty()
    }

    fn continue_scan(&mut self, tracer: &mut Tracer, until: Instant) {
        let Some(scan) = &mut self.scan else { return };
        let done = tracer.continue_scan(scan, Some(until));
        scan.scanned.warn();
        self.unused
            .retain(|library| !scan.scanned.uses.contains(library));
        if !done.is_ok_and(|done| done == ScanProgress::OutOfTime) {
            self.scan = None;
        }
    }

    /// Begins another round with the processes started since. Returns false if there are none.
    fn next_round(&mut self) -> bool {
        let all = process::all_pids();
        self.left = all
            .into_iter()
            .filter(|pid| !self.seen.contains(pid))
            .collect();
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS {
            // Too many process starts: tried again at the next check.
            self.unused.clear();
        }
        !self.left.is_empty()
    }
}
