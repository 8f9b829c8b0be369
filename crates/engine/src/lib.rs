//! Accounting: memory, launches, copies and GPU activity, computed from events.
//!
//! For: every figure that gpuprobe reports, live and from a file.
//! May use: `cuda`, `model` and names (`stacks`); no clock, file or thread ([`HostInfo`] answers for the live system).
//! Gives: [`State`], fed with events or rows of a file: [`Ledger`], [`Launches`], [`Transfers`], [`GpuActivity`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod activity;
mod addresses;
mod allocation;
pub mod arrays;
mod calls;
mod change;
mod contexts;
mod ended;
mod files;
mod graphs;
pub mod handles;
pub mod imports;
pub mod incidents;
pub mod launches;
pub mod ledger;
mod limits;
mod live;
pub mod outside;
pub mod physical;
pub mod pools;
mod process;
mod process_table;
pub mod sites;
mod superseded;
pub mod tensors;
pub mod totals;
pub mod transfers;
pub mod verdict;

pub use activity::GpuActivity;
pub use addresses::AddressKind;
pub use allocation::Allocation;
pub use change::{Change, KernelHandle, MemoryBlock, MemoryOrigin, TensorChange};
pub use ended::Forgotten;
pub use gpuprobe_model::identity::Identity;
pub use handles::{HandleSite, Handles};
pub use incidents::{Incident, IncidentRow, Incidents};
pub use launches::Launches;
pub use ledger::{Counts, Ledger};
pub use process::{Process, TracedThread};
pub use sites::{CallSite, Sites};
pub use tensors::{Allocator, TensorAllocators};
pub use transfers::Transfers;

use gpuprobe_cuda::{Modes, Op};
use gpuprobe_model::Lost;
use gpuprobe_model::event::{Call, Event, Task};
use transfers::{CopyFilter, Transfer};

/// Information that only the live system has; a replay has none of it.
pub trait HostInfo {
    /// Identity of a process; called when the process is first seen.
    fn identity(&self, task: &Task) -> Identity;

    /// Mangled name of the kernel with the host function at `address`.
    fn kernel_at(&self, pid: u32, address: u64) -> Option<String>;

    /// Bytes of the device variable with this mangled name.
    fn variable_size(&self, pid: u32, name: &str) -> Option<u64>;

    /// Location of `address` in process `pid`.
    fn place(&self, pid: u32, address: u64) -> Option<AddressKind>;
}

/// All accounts, updated by events.
#[derive(Debug, Default)]
pub struct State {
    /// Live memory by process.
    pub ledger: Ledger,
    /// Launches by process and kernel.
    pub launches: Launches,
    /// Copies by direction and mode.
    pub transfers: Transfers,
    /// GPU activity from CUPTI.
    pub activity: GpuActivity,
}

/// The same event with the size of its device variable, if the program did not query that and the host knows it.
fn with_size(event: &Event, host: &impl HostInfo) -> Option<Event> {
    let Event::Call(call) = event else {
        return None;
    };
    // On the host, a managed variable is a pointer.
    let is_pointer = call.function.symbol == "cuLibraryGetManaged";
    if call.function.op != Op::Symbol || call.size_bytes != 0 || is_pointer {
        return None;
    }
    let name = call.detail.as_deref()?.name.as_deref()?;
    let size_bytes = host.variable_size(call.pid, name)?;
    Some(Event::Call(Call {
        size_bytes,
        ..call.clone()
    }))
}

impl State {
    /// Applies an event to the accounts that `modes` need; returns the copy if it is one.
    pub fn apply(&mut self, event: &Event, modes: Modes, host: &impl HostInfo) -> Option<Transfer> {
        let sized = modes.memleak.then(|| with_size(event, host));
        let sized = sized.flatten();
        let event = sized.as_ref().unwrap_or(event);
        if modes.memleak {
            if modes.bandwidth_util {
                self.ledger.index_addresses();
            }
            self.ledger.apply(event, |task| host.identity(task));
        } else if let Event::Process(_) | Event::Exit(_) | Event::Exec(_) = event {
            // Every mode reports the identity of processes.
            self.ledger.apply(event, |task| host.identity(task));
        } else if modes.bandwidth_util {
            self.ledger.apply_unreported(event);
        }
        if modes.cudatrace {
            self.launches
                .apply(event, |pid, address| host.kernel_at(pid, address));
            if let Event::Kernel(kernel) = event {
                self.launches.record_names(kernel, &mut self.ledger.changes);
            }
        }
        if modes.activity {
            self.activity.apply(event);
        }
        if !modes.bandwidth_util {
            return None;
        }
        let place = |pid, address| host.place(pid, address);
        let transfer = self.transfers.apply(event, &self.ledger, place)?;
        let CopyFilter {
            direction, mode, ..
        } = transfer.which;
        self.ledger
            .changes
            .record(|| Change::Copied(direction, mode));
        Some(transfer)
    }

    /// Enables or disables the recording of [`Self::changes`].
    pub fn watch(&mut self, is_enabled: bool) {
        self.ledger.changes.is_enabled = is_enabled;
        self.ledger.changes.list.clear();
    }

    /// Enables the recording of [`Self::changes`] with those of tensors.
    pub fn watch_tensors(&mut self) {
        self.watch(true);
        self.ledger.changes.with_tensors = true;
    }

    /// The recorded changes in order; the caller removes them.
    pub fn changes(&mut self) -> &mut Vec<Change> {
        &mut self.ledger.changes.list
    }

    /// Adds what was dropped here for lack of room to `lost`.
    pub fn add_left_out(&self, lost: &mut Lost) {
        lost.merge(self.ledger.left_out());
        lost.names += self.launches.names_left_out;
    }

    /// Notes that a report has shown everything.
    pub fn mark_reported(&mut self) {
        self.ledger.mark_reported();
        self.launches.mark_reported();
        self.transfers.mark_reported();
        self.activity.mark_reported();
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
use tests::{call, task};
