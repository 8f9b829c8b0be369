//! Exporters of the memory that a process has imported.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::totals::Total;

/// A process that has exported memory, as identified at that time.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exporter {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// Name (comm) of the process, if known.
    pub comm: Option<String>,
    /// Its command line, possibly truncated, if known.
    pub command: Option<String>,
}

/// Exported memory, with its exporter.
#[derive(Clone, Debug)]
pub(super) struct Export {
    pub(super) size_bytes: u64,
    pub(super) exporter: Arc<Exporter>,
}

/// Exporters of the memory that a process has open, as far as the exports were seen, by allocation key.
#[derive(Debug, Default)]
pub(super) struct Imports(HashMap<u64, Arc<Exporter>>);

impl Imports {
    /// Sets the exporter of the allocation with this key.
    pub(super) fn enter(&mut self, key: u64, exporter: Arc<Exporter>) {
        self.0.insert(key, exporter);
    }

    pub(super) fn remove(&mut self, key: u64) {
        self.0.remove(&key);
    }

    /// Number of entries kept.
    pub(super) fn kept(&self) -> usize {
        self.0.len()
    }

    /// Open memory by exporter, in the order of process ids; `bytes` returns the size of the allocation
    /// with a key, if it is live.
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
