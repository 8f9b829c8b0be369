//! Analysis of recordings and Nsight Systems exports: applies their rows to the engine, and builds
//! reports.

mod about;
pub mod diff;
mod file;
pub(crate) mod launches;
mod moment;
mod played;
pub(crate) mod processes;
pub(crate) mod range;
mod totals;
pub(crate) mod validate_filter;
pub(crate) mod work;

use gpuprobe_recording::{MemoryRow, ids};

pub use about::{About, AtPeak};
pub(crate) use file::Observer;
pub use file::{Analysis, File, Lists};
pub use moment::Moment;
pub use played::{AllocationAt, Listener, MemoryChange, Played};
pub use processes::ProcessRow;
pub use range::first_ns;
pub use totals::{AnalysisTotals, Anomalies};
pub use validate_filter::NoMatch;

/// Filter on the events of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Include this process only.
    pub pid: Option<u32>,
    /// Include this device only.
    pub device: Option<i64>,
    /// Include host memory, too.
    pub host: bool,
    /// Start of the selected time, nanoseconds from [`first_ns`].
    pub from_ns: Option<i64>,
    /// End of the selected time, nanoseconds from [`first_ns`].
    pub to_ns: Option<i64>,
}

impl Filter {
    /// Whether a part of the time is selected.
    pub fn has_range(&self) -> bool {
        self.from_ns.is_some() || self.to_ns.is_some()
    }

    /// Whether `row` is of the selected process and device.
    pub fn includes(&self, row: &MemoryRow) -> bool {
        self.pid.is_none_or(|pid| pid == ids::pid(row.process))
            && self.device.is_none_or(|device| device == row.device)
    }
}
