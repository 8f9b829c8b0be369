//! Analysis of recordings and Nsight Systems exports: applies their rows to the engine, and builds
//! reports.

mod about;
mod answer;
mod callers;
pub mod diff;
pub mod explain;
mod file;
pub(crate) mod launches;
mod merged;
mod moment;
pub(crate) mod processes;
pub(crate) mod range;
pub(crate) mod replayed;
pub mod report;
mod row_ledger;
mod tables;
mod text;
mod totals;
mod usage;
pub(crate) mod validate_filter;
pub(crate) mod work;

use anyhow::Result;

use gpuprobe_recording::{MemoryRow, OriginatingCall, ids};

pub use about::{About, AtPeak};
pub use callers::Callers;
pub use moment::Moment;
pub use range::first_ns;
pub use row_ledger::{AllocationWithCaller, LedgerChange, RowLedger};
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

/// Is called for every change of live memory.
pub trait Visitor {
    /// Called after live memory has changed.
    ///
    /// # Errors
    ///
    /// Returns an error to stop the analysis.
    fn change(&mut self, step: &LedgerChange<'_>, row_ledger: &RowLedger<'_>) -> Result<()>;

    /// Called for every selected event, whether it changed live memory or not.
    ///
    /// # Errors
    ///
    /// Returns an error to stop the analysis.
    fn event(&mut self, row: &MemoryRow, origin: &OriginatingCall) -> Result<()> {
        let _ = (row, origin);
        Ok(())
    }

    /// Whether the visitor can restart after it has been called. If not, the order of the rows is
    /// checked first, which takes time.
    fn can_restart(&self) -> bool {
        false
    }

    /// Called when the analysis restarts because the rows were not in order.
    ///
    /// # Errors
    ///
    /// Returns an error to stop the analysis.
    fn restart(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A visitor that does nothing.
impl Visitor for () {
    fn change(&mut self, _: &LedgerChange<'_>, _: &RowLedger<'_>) -> Result<()> {
        Ok(())
    }

    fn can_restart(&self) -> bool {
        true
    }
}
