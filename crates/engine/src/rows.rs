//! Accounts from the rows of a file, which tell what happened to memory instead of what was called.

use super::allocation::{New, Place};
use super::process::{Process, Variable};
use super::{Allocation, Counts, Ledger};
use gpuprobe_cuda::{MemoryKind, Space};

/// An allocation as a file tells of it.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Process id.
    pub pid: u32,
    /// Thread id; 0 if the call is not known.
    pub tid: u32,
    /// Address, or handle.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// When, nanoseconds of whatever clock the rows have.
    pub time_ns: u64,
    /// Kind of memory.
    pub kind: MemoryKind,
    /// The kind of thing that the address belongs to.
    pub space: Space,
    /// Device, if that is known.
    pub device: Option<u16>,
    /// Row of the function table, or a number beyond it.
    pub function: u16,
    /// A number for the function and what called it.
    pub caller: u32,
    /// The name of the variable that it is.
    pub name: Option<&'a str>,
}

impl Ledger {
    /// A ledger that is fed with rows: it forgets nothing, and knows what was live at the highest point
    /// ([`Self::at_peak_of_rows`]).
    pub fn of_rows() -> Self {
        Self {
            is_of_rows: true,
            ..Self::default()
        }
    }

    /// The process `pid`, which may be new.
    fn of_row(&mut self, pid: u32) -> &mut Process {
        let process = self.living.enter(pid);
        process.keep_peak();
        process
    }

    /// Enters an allocation. Returns it, and what was at its address, whose free is not in the file.
    pub fn allocate(&mut self, row: &Row<'_>) -> (Allocation, Option<Allocation>) {
        self.of_row(row.pid);
        self.account(row.pid, row.time_ns, |process| {
            let new = New {
                address: row.address,
                size_bytes: row.bytes,
                end_ns: row.time_ns,
                thread: process.thread(row.tid),
                row: row.function,
                site: process.sites.of_row(row.caller, row.function),
                kind: row.kind,
                space: row.space,
                place: Place::from(row.device),
                slot: u8::MAX,
                context: 0,
            };
            if let Some(name) = row.name {
                let name = Some(name.to_owned());
                process
                    .variables
                    .insert(row.address, Variable { module: 0, name });
            }
            let allocation = Allocation::new(&new);
            (allocation, process.add(allocation))
        })
    }

    /// Takes away what is at `address`; none if nothing is.
    pub fn free(
        &mut self,
        pid: u32,
        space: Space,
        address: u64,
        time_ns: u64,
    ) -> Option<Allocation> {
        self.living.get(pid)?;
        self.account(pid, time_ns, |process| process.remove(space, address))
    }

    /// The process `pid` has ended: what it holds was never freed.
    pub fn end_process(&mut self, pid: u32, time_ns: u64) {
        self.end_at(pid, Some(time_ns));
    }

    /// All processes, for who knows what they are called.
    pub fn processes_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.living.iter_mut().chain(self.ended.iter_mut())
    }

    /// Sets the counts of calls, which rows do not tell.
    pub fn set_counts(&mut self, counts: Counts) {
        self.counts = counts;
    }

    /// Discounts all that was before: the memory that is live now is the highest point so far, and sites
    /// have allocated nothing yet.
    pub fn begin_again(&mut self, time_ns: u64) {
        self.note_peak(time_ns);
        for process in self.living.iter_mut() {
            process.peak_bytes = process.totals.sums.gpu.bytes;
            process.peak_ns = Some(time_ns);
            process.sites.begin_again();
        }
    }

    /// The ledger as it was at the highest point, with the calls of all time.
    pub fn at_peak_of_rows(&self) -> Self {
        let mut then = Self {
            counts: self.counts.clone(),
            live_bytes: self.peak_bytes,
            peak_bytes: self.peak_bytes,
            peak_ns: self.peak_ns,
            peaks: self.peaks,
            ..Self::of_rows()
        };
        for process in self.living().chain(self.ended(true)) {
            let then_of = process.at_peak(self.peaks);
            if let Some(process) = then_of.filter(|process| !process.holds_nothing()) {
                then.living.put(process);
            }
        }
        then
    }
}

/// Memory of a process that came or went since the highest point of some number.
#[derive(Debug, Default)]
pub(super) struct SincePeak {
    peak: u32,
    /// Keys of what was allocated since and is live.
    new: hashbrown::HashSet<u64>,
    /// Allocations that were live then and were freed since, with the names of the variables that they
    /// were.
    gone: Vec<(Allocation, Option<String>)>,
}

impl SincePeak {
    fn note(&mut self, peak: u32) {
        if self.peak != peak {
            *self = Self {
                peak,
                ..Self::default()
            };
        }
    }
}

impl Process {
    /// From now on, [`Self::at_peak`] knows.
    fn keep_peak(&mut self) {
        self.since_peak.get_or_insert_default();
    }

    /// `allocation` is live now. Noted before the peak that it may be.
    pub(super) fn note_new(&mut self, allocation: &Allocation) {
        let peak = self.sites.peak();
        if let Some(since) = &mut self.since_peak {
            since.note(peak);
            since.new.insert(allocation.key());
        }
    }

    /// `allocation` is not live any more.
    pub(super) fn note_gone(&mut self, allocation: &Allocation) {
        let peak = self.sites.peak();
        let Some(since) = &mut self.since_peak else {
            return;
        };
        since.note(peak);
        if !since.new.remove(&allocation.key()) {
            let name = match allocation.space() {
                Space::Variables => self.variables.get(&allocation.address),
                _ => None,
            };
            let name = name.and_then(|variable| variable.name.clone());
            since.gone.push((*allocation, name));
        }
    }

    /// The process as it was at the highest point of this number; none if it had ended by then.
    fn at_peak(&self, peak: u32) -> Option<Self> {
        let sites = self.sites.all_at_peak(peak)?;
        let nothing = SincePeak::default();
        let since = self.since_peak.as_ref();
        let since = since.filter(|since| since.peak == peak).unwrap_or(&nothing);
        let mut then = self.without_memory(sites);
        let live = self.live.iter().filter(|a| !since.new.contains(&a.key()));
        for allocation in live {
            then.restore(*allocation, self.name_of(allocation));
        }
        for (allocation, name) in &since.gone {
            then.restore(*allocation, name.as_deref());
        }
        Some(then)
    }

    /// Enters an allocation that its site knows of.
    fn restore(&mut self, allocation: Allocation, name: Option<&str>) {
        self.live.insert(allocation);
        self.count(&allocation);
        if let Some(name) = name {
            let name = Some(name.to_owned());
            let variable = Variable { module: 0, name };
            self.variables.insert(allocation.address, variable);
        }
    }

    /// The thread `tid`, if it has allocated anything, is called `comm`.
    pub fn name_thread(&mut self, tid: u32, comm: &str) {
        self.thread_mut(tid)
            .into_iter()
            .for_each(|thread| thread.comm = Some(comm.to_owned()));
    }
}
