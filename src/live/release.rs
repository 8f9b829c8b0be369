//! Giving up the probes of files that nobody uses any more.
//!
//! A probe keeps its file in the kernel, and with that the file system: that of a container that has
//! ended, or the room of a library that was deleted. So now and then it is found out which probed files
//! have no name here and no process that has them mapped. Of processes that are not traced nobody wants
//! to know: only of a whole host.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::tracer::{Look, Tracer};
use crate::host::LibraryId;
use crate::host::process;

/// How often it is asked whether there are such files.
const EVERY: Duration = Duration::from_secs(5);
/// The time that a step of a search takes at most, of those that come every tenth of a second.
const STEP: Duration = Duration::from_millis(3);
/// Rounds of a search: processes that are born meanwhile are found in the next one.
const MAX_ROUNDS: u32 = 10;

/// The search for files that can be given up.
#[derive(Debug, Default)]
pub(super) struct Release {
    asked: Option<Instant>,
    search: Option<Search>,
}

/// A look at what every process has mapped.
#[derive(Debug)]
struct Search {
    /// Files that none was seen to have.
    unused: HashSet<LibraryId>,
    /// Processes that were looked at, and those that are to be.
    seen: HashSet<u32>,
    left: Vec<u32>,
    rounds: u32,
    look: Option<Look>,
}

impl Release {
    /// Searches on for a moment, if it is time, and gives up what was found.
    pub(super) fn step(&mut self, tracer: &mut Tracer) {
        let now = Instant::now();
        if self.search.is_none() && self.asked.is_none_or(|asked| now - asked >= EVERY) {
            self.asked = Some(now);
            self.search = Search::begin(tracer);
        }
        let Some(search) = &mut self.search else {
            return;
        };
        if search.go_on(tracer, now + STEP) {
            for library in search.unused.drain() {
                tracer.release(library);
            }
            self.search = None;
        }
    }
}

impl Search {
    /// None if there is nothing to search for.
    fn begin(tracer: &mut Tracer) -> Option<Self> {
        let unused = tracer.unused();
        if unused.is_empty() {
            return None;
        }
        // From now on, every program that begins is looked at; before, one might go by unnoticed whose
        // loader is probed.
        tracer.probe.forget_images();
        Some(Self {
            unused,
            seen: HashSet::new(),
            left: process::all_pids(),
            rounds: 1,
            look: None,
        })
    }

    /// Searches until `until`; true at the end.
    fn go_on(&mut self, tracer: &mut Tracer, until: Instant) -> bool {
        while !self.unused.is_empty() && Instant::now() < until {
            if self.look.is_some() {
                self.look_on(tracer, until);
            } else if let Some(pid) = self.left.pop() {
                // One that has ended meanwhile has nothing mapped.
                self.look = self
                    .seen
                    .insert(pid)
                    .then(|| tracer.begin_look(pid).ok())
                    .flatten();
            } else if !self.next_round() {
                return true;
            }
        }
        self.unused.is_empty()
    }

    fn look_on(&mut self, tracer: &mut Tracer, until: Instant) {
        let Some(look) = &mut self.look else { return };
        let done = tracer.look_on(look, Some(until));
        look.looked.warn();
        self.unused
            .retain(|library| !look.looked.uses.contains(library));
        if done.unwrap_or(true) {
            self.look = None;
        }
    }

    /// Begins another round with the processes that are new. False if there are none.
    fn next_round(&mut self) -> bool {
        let all = process::all_pids();
        self.left = all
            .into_iter()
            .filter(|pid| !self.seen.contains(pid))
            .collect();
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS {
            // On a host where that does not end, it is tried again later.
            self.unused.clear();
        }
        !self.left.is_empty()
    }
}
