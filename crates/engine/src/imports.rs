//! Whose memory a process has opened.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::totals::Total;

/// A process that has exported memory, as it was then.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exporter {
    /// Process id.
    pub pid: u32,
    /// Name, if known.
    pub comm: Option<String>,
    /// Its command line, of which the end may be missing, if known.
    pub command: Option<String>,
}

/// Memory that was exported.
#[derive(Clone, Debug)]
pub(super) struct Export {
    pub(super) size_bytes: u64,
    pub(super) exporter: Arc<Exporter>,
}

/// The exporters of what a process has open, as far as they were seen to export it.
#[derive(Debug, Default)]
pub(super) struct Imports(HashMap<u64, Arc<Exporter>>);

impl Imports {
    /// What has this key among allocations is this process's.
    pub(super) fn enter(&mut self, key: u64, exporter: Arc<Exporter>) {
        self.0.insert(key, exporter);
    }

    pub(super) fn remove(&mut self, key: u64) {
        self.0.remove(&key);
    }

    /// Entries that are kept.
    pub(super) fn kept(&self) -> usize {
        self.0.len()
    }

    /// What is open of each exporter, in the order of their process ids, by the bytes of a key.
    pub(super) fn totals(&self, bytes: impl Fn(u64) -> Option<u64>) -> Vec<(Arc<Exporter>, Total)> {
        let mut sums: BTreeMap<&Arc<Exporter>, Total> = BTreeMap::new();
        for (&key, exporter) in &self.0 {
            if let Some(bytes) = bytes(key) {
                let one = Total {
                    bytes,
                    allocations: 1,
                };
                sums.entry(exporter).or_default().merge(one);
            }
        }
        let sums = sums.into_iter();
        sums.map(|(of, sum)| (Arc::clone(of), sum)).collect()
    }
}
