//! Giving up the probes of files that nobody uses any more.
//!
//! A probe keeps its file in the kernel, and with that the file system: that of a container that has
//! ended, or the room of a library that was deleted. So now and then it is found out which probed files
//! have no name here and no process that has them mapped. Of processes that are not traced nobody wants
//! to know: only of a whole host.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::tracer::{Look, Tracer};
use crate::host::LibraryId;
use crate::host::process;
use gpuprobe_stacks::reader::{Opener, Place};

/// How often it is asked whether there are such files.
const EVERY: Duration = Duration::from_secs(5);
/// The time that a step of a search takes at most, of those that come every tenth of a second.
const STEP: Duration = Duration::from_millis(3);
/// Files that are looked for by their names at a time.
const MAX_NAMES: usize = 64;
/// Rounds of a search: processes that are born meanwhile are found in the next one.
const MAX_ROUNDS: u32 = 10;

/// The search for files that can be given up.
#[derive(Debug, Default)]
pub(super) struct Release {
    asked: Option<Instant>,
    opener: Option<Opener>,
    /// How many files have been looked for, of as many as there are.
    names: usize,
    /// The files that do not have their names here any more, or never had, once that is known.
    nameless: Option<Receiver<HashSet<LibraryId>>>,
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
        let Some(search) = &mut self.search else {
            self.ask(tracer, now);
            return;
        };
        if search.go_on(tracer, now + STEP) {
            for library in search.unused.drain() {
                tracer.release(library);
            }
            self.search = None;
        }
    }

    /// Asks which files have no name and no user, and begins to search for users once that is known.
    fn ask(&mut self, tracer: &mut Tracer, now: Instant) {
        if let Some(nameless) = &self.nameless {
            let found = match nameless.try_recv() {
                Ok(found) => found,
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => HashSet::new(),
            };
            self.nameless = None;
            self.search = (!found.is_empty()).then(|| Search::begin(tracer, found));
        } else if self.asked.is_none_or(|asked| now - asked >= EVERY) {
            self.asked = Some(now);
            let mut unused = tracer.without_user();
            // Those that have their names are there the next time, too.
            let begun = self.names.checked_rem(unused.len()).unwrap_or(0);
            unused.rotate_left(begun);
            unused.truncate(MAX_NAMES);
            self.names = begun + unused.len();
            if !unused.is_empty() {
                let opener = self
                    .opener
                    .get_or_insert_with(|| Opener::new(Place::Process));
                self.nameless = nameless(unused, opener.clone());
            }
        }
    }
}

/// Finds those that do not have their names, on a thread: what is at a name may not answer.
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
        // Without us, nobody wants to know.
        let _ = sender.send(found.map(|(library, ..)| *library).collect());
    };
    let started = thread::Builder::new()
        .name("names of files".into())
        .spawn(find);
    started.ok().map(|_| receiver)
}

impl Search {
    fn begin(tracer: &Tracer, unused: HashSet<LibraryId>) -> Self {
        // From now on, every program that begins is looked at; before, one might go by unnoticed whose
        // loader is probed.
        tracer.probe.forget_images();
        Self {
            unused,
            seen: HashSet::new(),
            left: process::all_pids(),
            rounds: 1,
            look: None,
        }
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
