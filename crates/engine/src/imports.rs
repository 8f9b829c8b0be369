//! Exporters of the memory that a process has imported.

use std::sync::Arc;

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

/// Bytes of exported memory, and its exporter.
pub(super) type Export = (u64, Arc<Exporter>);
