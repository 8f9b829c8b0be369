//! Probes on the driver's queries for the current device: their results tell the device of threads that
//! chose it before gpuprobe attached.
//!
//! Frameworks query it thousands of times a second, which doubles the time of a short training step. So the
//! queries are probed for a twentieth of the time only; a thread of a framework is met in the first part,
//! and one that waits meanwhile in a later one.

use std::collections::HashMap;
use std::fs::File;
use std::time::Duration;

use anyhow::Result;

use crate::probe::{AttachId, AttachOutcome, Attached, FileProbes, ProbePoint};

/// How long the queries are probed at once; also the time until the first [`DeviceQueries::step`].
pub(super) const PROBE_ON: Duration = Duration::from_millis(50);
/// From the end of such a time to the next one.
const PROBE_OFF: Duration = Duration::from_millis(950);
/// How many times there are.
const TIMES: u32 = 10;

/// The queries of one library.
#[derive(Debug)]
struct LibraryQueries {
    group: FileProbes,
    file: File,
    points: Vec<ProbePoint>,
}

/// The queries of all libraries; `A` is their probes.
pub(super) struct DeviceQueries<A = Attached> {
    libraries: Vec<LibraryQueries>,
    attached: Vec<(FileProbes, A)>,
    /// Requests to attach on their way.
    asked: HashMap<AttachId, (FileProbes, A)>,
    /// Number of times that are left, with the current one.
    left: u32,
    is_on: bool,
}

impl<A> DeviceQueries<A> {
    /// Queries that are probed from now on. Detaching is slow if each probe is detached by itself: then
    /// they are probed once.
    pub(super) fn new(one_by_one: bool) -> Self {
        Self {
            libraries: Vec::new(),
            attached: Vec::new(),
            asked: HashMap::new(),
            left: if one_by_one { 1 } else { TIMES },
            is_on: true,
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

    /// Adds the queries of a library, with their probes if these are attached.
    pub(super) fn add(
        &mut self,
        group: FileProbes,
        file: File,
        points: Vec<ProbePoint>,
        attached: Option<A>,
    ) {
        let library = LibraryQueries {
            group,
            file,
            points,
        };
        if let (true, Some(attached)) = (self.is_on, attached) {
            self.attached.push((group, attached));
        }
        self.libraries.push(library);
    }

    /// Detaches the probes, or requests with `attach` to attach them again. Returns the time until the next call;
    /// `None` at the end.
    pub(super) fn step(
        &mut self,
        attach: impl Fn(&File, &[ProbePoint]) -> Result<(AttachId, A)>,
    ) -> Option<Duration> {
        if self.is_on && !self.asked.is_empty() {
            // The time begins when they are attached.
            return Some(PROBE_ON);
        }
        if self.is_on {
            self.is_on = false;
            self.attached.clear();
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                self.libraries.clear();
                return None;
            }
            return Some(PROBE_OFF);
        }
        self.is_on = true;
        for library in &self.libraries {
            match attach(&library.file, &library.points) {
                Ok((id, attached)) => {
                    self.asked.insert(id, (library.group, attached));
                }
                Err(error) => tracing::debug!("device queries: {error:#}"),
            }
        }
        Some(PROBE_ON)
    }

    /// Takes the answer to a request. Returns it if it is one to another.
    pub(super) fn answered(&mut self, outcome: AttachOutcome) -> Option<AttachOutcome> {
        let Some((group, attached)) = self.asked.remove(&outcome.id) else {
            return Some(outcome);
        };
        match outcome.result {
            Ok(()) => self.attached.push((group, attached)),
            Err(error) => tracing::debug!("device queries: {error:#}"),
        }
        None
    }

    /// Forgets a library.
    pub(super) fn release(&mut self, group: FileProbes) {
        self.attached.retain(|(of, _)| *of != group);
        self.asked.retain(|_, (of, _)| *of != group);
        self.libraries.retain(|library| library.group != group);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The probes of these queries.
    type Probes = &'static str;

    fn answer(queries: &mut DeviceQueries<Probes>, id: u32, result: Result<()>) -> bool {
        let id = AttachId(id);
        queries.answered(AttachOutcome { id, result }).is_none()
    }

    #[test]
    fn queries_are_probed_for_a_twentieth_of_the_time() {
        let asked = Cell::new(0);
        let attach = |_: &File, _: &[ProbePoint]| {
            asked.set(asked.get() + 1);
            Ok((AttachId(asked.get()), "again"))
        };
        let mut queries = DeviceQueries::new(false);
        let add = |queries: &mut DeviceQueries<Probes>, group, probes| {
            let file = File::open("/proc/self/exe").unwrap();
            queries.add(FileProbes(group), file, Vec::new(), probes);
        };
        add(&mut queries, 1, Some("first"));
        assert_eq!(queries.attached, [(FileProbes(1), "first")]);
        let (mut on, mut off) = (PROBE_ON, Duration::ZERO);
        while let Some(after) = queries.step(attach) {
            if queries.is_on {
                // The answer takes its time, which is not part of the time.
                assert_eq!(queries.step(attach), Some(PROBE_ON));
                assert!(answer(&mut queries, asked.get(), Ok(())));
                assert_eq!(queries.attached.len(), 1);
                on += after;
            } else {
                off += after;
                assert!(queries.attached.is_empty());
            }
        }
        assert_eq!(asked.get(), TIMES - 1);
        assert_eq!(on, PROBE_ON * TIMES);
        assert!(on * 20 <= on + off + PROBE_OFF);
        assert!(!queries.are_wanted() && !queries.are_on() && queries.libraries.is_empty());

        // A library found meanwhile is probed at the next time, and one that is gone is not.
        let mut queries = DeviceQueries::new(false);
        assert!(queries.are_on());
        queries.step(attach);
        assert!(!queries.are_on());
        add(&mut queries, 2, None);
        add(&mut queries, 3, Some("late"));
        assert!(queries.attached.is_empty());
        queries.release(FileProbes(2));
        queries.step(attach);
        assert!(!answer(&mut queries, asked.get() + 1, Ok(())), "another's");
        assert!(answer(&mut queries, asked.get(), Ok(())));
        assert_eq!(queries.attached, [(FileProbes(3), "again")]);
        queries.step(attach);
        queries.step(attach);
        let refused = anyhow::anyhow!("no");
        assert!(answer(&mut queries, asked.get(), Err(refused)));
        assert!(queries.attached.is_empty() && queries.asked.is_empty());
    }

    #[test]
    fn slow_probes_are_attached_once() {
        let attach = |_: &File, _: &[ProbePoint]| Ok((AttachId(1), ""));
        let mut queries = DeviceQueries::new(true);
        assert!(queries.are_wanted());
        assert_eq!(queries.step(attach), None);
        assert!(!queries.are_wanted());
        assert!(!DeviceQueries::<Probes>::none().are_wanted());
    }
}
