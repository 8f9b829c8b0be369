//! What a recording or an Nsight Systems export says: who held memory when, and what was launched
//! and copied.
//!
//! Memory events are read once, in order, next to the calls that made them ([`pass()`]). A
//! [`tracker::Tracker`] keeps the one map of what is live; a [`Visitor`] sees every change.

pub mod activity;
mod answer;
pub mod calls;
pub mod classic;
pub mod diff;
pub mod events;
pub mod groups;
pub mod listing;
pub mod order;
pub mod pass;
pub mod profile;
pub mod report;
pub mod summary;
pub mod text;
pub mod tracker;
pub mod usage;

pub use events::{MemoryEvent, Origin, Trace};
pub use pass::{Visitor, pass};
pub use tracker::Tracker;

use gpuprobe_recording::ids;

/// What of a file is looked at.
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
    /// Whether `event` is of the process and device that are looked at.
    pub fn includes(&self, event: &MemoryEvent) -> bool {
        self.pid.is_none_or(|pid| pid == ids::pid(event.process))
            && self.device.is_none_or(|device| device == event.device)
    }
}
