//! What is known about the traced processes: pure state, fed with events.

pub mod ledger;
mod live;
mod process;

pub use ledger::{Counts, Ledger};
pub use live::Allocation;
pub use process::{Process, Thread};
