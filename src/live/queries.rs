//! Probes on the driver's queries for the current device: their results tell the device of threads that
//! chose it before gpuprobe attached.
//!
//! Frameworks query it thousands of times a second, which doubles the time of a short training step. So the
//! queries are probed for a twentieth of the time only; a thread of a framework is met in the first part,
//! and one that waits meanwhile in a later one.

use std::fs::File;
use std::time::Duration;

use anyhow::Result;

use crate::host::path_of;
use crate::probe::{Attached, FileProbes, ProbePoint};

/// How long the queries are probed at once; also the time until the first [`DeviceQueries::step`].
pub(super) const PROBED_FOR: Duration = Duration::from_millis(50);
/// From the end of such a time to the next one.
const LEFT_FOR: Duration = Duration::from_millis(950);
/// How many times there are.
const TIMES: u32 = 10;

/// The queries of one library.
#[derive(Debug)]
struct LibraryQueries {
    group: FileProbes,
    file: File,
    points: Vec<ProbePoint>,
}

/// The queries of all libraries.
pub(super) struct DeviceQueries {
    libraries: Vec<LibraryQueries>,
    attached: Vec<(FileProbes, Attached)>,
    /// Number of times that are left, with the current one.
    left: u32,
    is_on: bool,
}

impl DeviceQueries {
    /// Queries that are probed from now on. Detaching is slow if each probe is detached by itself: then
    /// they are probed once.
    pub(super) fn new(one_by_one: bool) -> Self {
        Self {
            libraries: Vec::new(),
            attached: Vec::new(),
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

    /// Adds the queries of a library.
    ///
    /// # Errors
    /// Returns the error of attaching to them.
    pub(super) fn add(
        &mut self,
        group: FileProbes,
        file: File,
        points: Vec<ProbePoint>,
        attach: impl Fn(&str, &[ProbePoint]) -> Result<Attached>,
    ) -> Result<()> {
        let library = LibraryQueries {
            group,
            file,
            points,
        };
        if self.is_on {
            let attached = attach(&path_of(&library.file), &library.points)?;
            self.attached.push((group, attached));
        }
        self.libraries.push(library);
        Ok(())
    }

    /// Detaches the probes, or attaches them again with `attach`. Returns the time until the next call;
    /// `None` at the end.
    pub(super) fn step(
        &mut self,
        attach: impl Fn(&str, &[ProbePoint]) -> Result<Attached>,
    ) -> Option<Duration> {
        if self.is_on {
            self.is_on = false;
            self.attached
                .drain(..)
                .for_each(|(_, probes)| probes.remove());
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                self.libraries.clear();
                return None;
            }
            return Some(LEFT_FOR);
        }
        self.is_on = true;
        for library in &self.libraries {
            match attach(&path_of(&library.file), &library.points) {
                Ok(attached) => self.attached.push((library.group, attached)),
                Err(error) => tracing::debug!("device queries: {error:#}"),
            }
        }
        Some(PROBED_FOR)
    }

    /// Forgets a library.
    pub(super) fn release(&mut self, group: FileProbes) {
        self.attached.retain(|(of, _)| *of != group);
        self.libraries.retain(|library| library.group != group);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn queries_are_probed_for_a_twentieth_of_the_time() {
        let attaches = Cell::new(0);
        let attach = |_: &str, _: &[ProbePoint]| {
            attaches.set(attaches.get() + 1);
            Ok(Attached::default())
        };
        let mut queries = DeviceQueries::new(false);
        let add = |queries: &mut DeviceQueries, group| {
            let file = File::open("/proc/self/exe").unwrap();
            queries
                .add(FileProbes(group), file, Vec::new(), attach)
                .unwrap();
        };
        add(&mut queries, 1);
        assert_eq!((attaches.get(), queries.attached.len()), (1, 1));
        let (mut on, mut off) = (PROBED_FOR, Duration::ZERO);
        while let Some(after) = queries.step(attach) {
            if queries.is_on {
                on += after;
            } else {
                off += after;
                assert!(queries.attached.is_empty());
            }
        }
        assert_eq!(attaches.get(), TIMES);
        assert_eq!(on, PROBED_FOR * TIMES);
        assert!(on * 20 <= on + off + LEFT_FOR);
        assert!(!queries.are_wanted() && queries.libraries.is_empty());

        // A library found meanwhile is probed at the next time, and one that is gone is not.
        let mut queries = DeviceQueries::new(false);
        queries.step(attach);
        add(&mut queries, 2);
        add(&mut queries, 3);
        assert!(queries.attached.is_empty());
        queries.release(FileProbes(2));
        queries.step(attach);
        let groups: Vec<_> = queries.attached.iter().map(|(group, _)| group.0).collect();
        assert_eq!(groups, [3]);
    }

    #[test]
    fn slow_probes_are_attached_once() {
        let attach = |_: &str, _: &[ProbePoint]| Ok(Attached::default());
        let mut queries = DeviceQueries::new(true);
        assert!(queries.are_wanted());
        assert_eq!(queries.step(attach), None);
        assert!(!queries.are_wanted());
        assert!(!DeviceQueries::none().are_wanted());
    }
}
