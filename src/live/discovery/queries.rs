//! Probes on the driver's queries for the current device: their results tell the device of threads that
//! chose it before gpuprobe attached.
//!
//! Frameworks query it thousands of times a second, which doubles the time of a short training step. So the
//! queries are probed for a twentieth of the time only; a thread of a framework is met in the first part,
//! and one that waits meanwhile in a later one.

use std::fs::File;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::host::LibraryId;
use crate::probe::ProbePoint;

/// How long the queries are probed at once.
const PROBE_ON: Duration = Duration::from_millis(50);
/// From the end of such a time to the next one.
const PROBE_OFF: Duration = Duration::from_millis(950);
/// How many times there are.
const TIMES: u32 = 10;

/// The queries of one library.
#[derive(Debug)]
struct LibraryQueries<L> {
    library: LibraryId,
    file: File,
    points: Vec<ProbePoint>,
    links: Vec<L>,
}

/// The queries of all libraries; `L` is the link of a probe.
pub(super) struct DeviceQueries<L> {
    libraries: Vec<LibraryQueries<L>>,
    /// Number of times that are left, with the current one.
    left: u32,
    is_on: bool,
    /// When they are probed again, or no longer.
    due: Instant,
}

impl<L> DeviceQueries<L> {
    /// Queries that are probed from now on. Detaching is slow if each probe is detached by itself: then
    /// they are probed once.
    pub(super) fn new(one_by_one: bool) -> Self {
        Self {
            libraries: Vec::new(),
            left: if one_by_one { 1 } else { TIMES },
            is_on: true,
            due: Instant::now() + PROBE_ON,
        }
    }

    /// Queries that are never probed.
    pub(super) fn none() -> Self {
        Self {
            left: 0,
            ..Self::new(true)
        }
    }

    /// Whether queries are probed, now or later.
    pub(super) fn are_wanted(&self) -> bool {
        self.left > 0
    }

    /// Whether they are probed now.
    pub(super) fn are_on(&self) -> bool {
        self.is_on && self.are_wanted()
    }

    /// When the next [`Self::step`] is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.are_wanted().then_some(self.due)
    }

    /// Adds the queries of a library, with their probes if these are attached.
    pub(super) fn add(
        &mut self,
        library: LibraryId,
        file: File,
        points: Vec<ProbePoint>,
        links: Vec<L>,
    ) {
        self.libraries.push(LibraryQueries {
            library,
            file,
            points,
            links,
        });
    }

    /// Attaches the probes with `attach`, or returns those to detach.
    pub(super) fn step(
        &mut self,
        now: Instant,
        attach: impl Fn(&File, &[ProbePoint]) -> Result<Vec<L>>,
    ) -> Vec<L> {
        self.is_on = !self.is_on;
        if self.is_on {
            for library in &mut self.libraries {
                match attach(&library.file, &library.points) {
                    Ok(links) => library.links = links,
                    Err(error) => tracing::debug!("device queries: {error:#}"),
                }
            }
            // The time begins when they are attached.
            self.due = Instant::now() + PROBE_ON;
            return Vec::new();
        }
        self.due = now + PROBE_OFF;
        self.left = self.left.saturating_sub(1);
        let links = self.take_links();
        if self.left == 0 {
            self.libraries.clear();
        }
        links
    }

    /// Removes and returns all links.
    pub(super) fn take_links(&mut self) -> Vec<L> {
        let all = self.libraries.iter_mut();
        all.flat_map(|library| library.links.drain(..)).collect()
    }

    /// Forgets a library. Returns its links.
    pub(super) fn release(&mut self, library: LibraryId) -> Vec<L> {
        let is_it = |queries: &mut LibraryQueries<L>| queries.library == library;
        let released = self.libraries.extract_if(.., is_it);
        released.flat_map(|queries| queries.links).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::host::{LibraryRole, MappedLibrary};
    use std::cell::Cell;
    use std::path::Path;

    fn add(queries: &mut DeviceQueries<u32>, role: LibraryRole, links: Vec<u32>) -> LibraryId {
        let path = Path::new("/proc/self/exe");
        let executable = std::fs::read_link(path).unwrap();
        let library = MappedLibrary::open(&executable, path, role).unwrap();
        let file = library.file.try_clone().unwrap();
        queries.add(library.id(), file, Vec::new(), links);
        library.id()
    }

    #[test]
    fn queries_are_probed_for_a_twentieth_of_the_time() {
        let asked = Cell::new(0);
        let attach = |_: &File, _: &[ProbePoint]| {
            asked.set(asked.get() + 1);
            Ok(vec![asked.get()])
        };
        let mut queries = DeviceQueries::new(false);
        let first = add(&mut queries, LibraryRole::Loader, vec![77]);
        assert!(queries.are_on());
        assert_eq!(queries.step(Instant::now(), attach), [77]);
        // A library found meanwhile is probed at the next time, and one that is gone is not.
        assert!(!queries.are_on());
        add(&mut queries, LibraryRole::Framework, Vec::new());
        assert!(queries.release(first).is_empty());
        let (mut on, mut off) = (PROBE_ON, PROBE_OFF);
        while let Some(due) = queries.due() {
            let was_on = queries.are_on();
            let detached = queries.step(due, attach);
            assert_eq!(detached.len(), usize::from(was_on));
            match was_on {
                true => on += PROBE_ON,
                false => off += PROBE_OFF,
            }
        }
        assert_eq!(asked.get(), TIMES - 1);
        assert_eq!(on, PROBE_ON * TIMES);
        assert!(on * 20 <= on + off);
        assert!(!queries.are_wanted() && queries.libraries.is_empty());
    }

    #[test]
    fn slow_probes_are_attached_once() {
        let attach = |_: &File, _: &[ProbePoint]| Ok(vec![1]);
        let mut queries = DeviceQueries::new(true);
        let library = add(&mut queries, LibraryRole::Loader, vec![1]);
        assert!(queries.are_wanted());
        assert_eq!(queries.step(Instant::now(), attach), [1]);
        assert!(!queries.are_wanted() && queries.due().is_none());
        assert!(queries.release(library).is_empty());
        assert!(!DeviceQueries::<u32>::none().are_wanted());
    }
}
