//! Analysis of recordings and Nsight Systems exports: applies their rows to the engine, and builds
//! reports.

mod about;
pub mod diff;
mod file;
mod filter;
mod played;
pub(crate) mod processes;
pub(crate) mod range;
pub(crate) mod work;

pub use about::{About, AnalysisTotals, Anomalies, AtPeak};
pub(crate) use file::Observer;
pub use file::{Analysis, File, Lists};
pub use filter::{Filter, Moment, NoMatch};
pub use played::{Listener, MemoryChange, Played};
pub use processes::ProcessRow;
pub use range::first_ns;
