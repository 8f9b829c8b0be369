//! Recordings and Nsight Systems exports: their rows, entered into the engine, and the reports that
//! are made of that.

mod accounts;
mod answer;
mod callers;
pub mod classic;
pub mod diff;
pub mod explain;
mod file;
mod merged;
pub(crate) mod present;
mod processes;
pub mod report;
mod tables;
pub(crate) mod tensors;
mod text;
mod totals;
mod usage;
mod work;

use anyhow::Result;

use gpuprobe_recording::{MemoryRow, Origin, ids};

pub use accounts::{Accounts, Part, Step};
pub use callers::Callers;
pub use file::{About, AtPeak};
pub use present::NoMatch;
pub use totals::{Amount, Findings, Totals};

/// The part of a file that is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// This process only.
    pub pid: Option<u32>,
    /// This device only.
    pub device: Option<i64>,
    /// Memory of the host too.
    pub host: bool,
    /// From this time on, nanoseconds from the first event.
    pub from_ns: Option<i64>,
    /// Up to this time, nanoseconds from the first event.
    pub to_ns: Option<i64>,
}

impl Selection {
    /// Whether `row` is of the process and device that are looked at.
    pub fn includes(&self, row: &MemoryRow) -> bool {
        self.pid.is_none_or(|pid| pid == ids::pid(row.process))
            && self.device.is_none_or(|device| device == row.device)
    }
}

/// Sees every change of what is live.
pub trait Visitor {
    /// Something has changed what is live.
    ///
    /// # Errors
    /// Returns the error after which the visitor does not go on.
    fn change(&mut self, step: &Step<'_>, accounts: &Accounts<'_>) -> Result<()>;

    /// An event was read that is selected, whatever it changed.
    ///
    /// # Errors
    /// Returns the error after which the visitor does not go on.
    fn event(&mut self, row: &MemoryRow, origin: &Origin) -> Result<()> {
        let _ = (row, origin);
        Ok(())
    }

    /// Whether the visitor can begin again after it has seen something. If not, the order of the
    /// rows is looked at first, which takes time.
    fn can_restart(&self) -> bool {
        false
    }

    /// Everything begins again: the rows were not in order.
    ///
    /// # Errors
    /// Returns the error after which the visitor does not go on.
    fn restart(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Sees nothing.
impl Visitor for () {
    fn change(&mut self, _: &Step<'_>, _: &Accounts<'_>) -> Result<()> {
        Ok(())
    }

    fn can_restart(&self) -> bool {
        true
    }
}
