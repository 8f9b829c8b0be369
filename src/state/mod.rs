//! What is known about the traced processes: pure state, fed with events.

mod allocation;
pub mod arrays;
mod calls;
mod contexts;
mod graphs;
pub mod identity;
pub mod launches;
pub mod ledger;
mod live;
pub mod physical;
pub mod pools;
mod process;
mod superseded;
pub mod totals;
pub mod transfers;

pub use allocation::Allocation;
pub use identity::Identity;
pub use launches::Launches;
pub use ledger::{Counts, Ledger, Outcome};
pub use process::{Process, Thread};
pub use transfers::Transfers;

use crate::api::Modes;
use crate::event::{Event, Task};
use transfers::{Place, Transfer};

/// What only the live system can tell; a replay knows nothing of it.
pub trait World {
    /// Who the process is; asked when it is first seen.
    fn identity(&self, task: &Task) -> Identity;

    /// The mangled name of the kernel whose host function is at `address`.
    fn kernel_at(&self, pid: u32, address: u64) -> Option<String>;

    /// Where `address` is.
    fn place(&self, pid: u32, address: u64) -> Option<Place>;
}

/// Everything that is known, fed with events.
#[derive(Debug, Default)]
pub struct State {
    /// Who holds memory.
    pub ledger: Ledger,
    /// Which kernels are launched.
    pub launches: Launches,
    /// What copies move.
    pub transfers: Transfers,
}

impl State {
    /// Enters an event into what `modes` need; returns the copy if it is one.
    pub fn apply(&mut self, event: &Event, modes: Modes, world: &impl World) -> Option<Transfer> {
        if modes.memleak {
            self.ledger.apply(event, |task| world.identity(task));
        }
        if modes.cudatrace {
            self.launches
                .apply(event, |pid, address| world.kernel_at(pid, address));
        }
        if !modes.bandwidth_util {
            return None;
        }
        self.transfers
            .apply(event, |pid, address| world.place(pid, address))
    }

    /// Notes that a report has shown everything.
    pub fn mark_reported(&mut self) {
        self.ledger.mark_reported();
        self.launches.mark_reported();
        self.transfers.mark_reported();
    }
}
