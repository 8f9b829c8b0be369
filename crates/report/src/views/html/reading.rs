//! What the page reads of a file: everything that knows how a file is read.

use std::collections::HashMap;

use anyhow::Result;

use super::bins::Bins;
use super::document::OverlayData;
use super::held::{Effect, HeldByBin};
use super::work::WorkByBin;
use crate::analysis::range::{TIMED, TimeRange};
use crate::analysis::replayed::Replayed;
use crate::analysis::work::{CALLED_COPIES, CopyOutcome, each_copy};
use crate::analysis::{
    AllocationAt, Analysis, File, Filter, Lists, MemoryChange, Played, first_ns, launches,
};
use crate::memleak::SiteGroups;
use crate::owners::Owners;
use crate::{Report, function_name, memleak, views::plot};
use gpuprobe_cuda::{Belongs, MemoryKind, Op};
use gpuprobe_engine::Ledger;
use gpuprobe_model::event::Event;
use gpuprobe_model::stack::Frame;
use gpuprobe_recording::gpu_rows::{self, RowFilter};
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::{Database, Session};

/// A file that is read for the page.
pub(super) struct Reading<'a> {
    pub(super) database: &'a Database,
    pub(super) session: Session,
    filter: Filter,
    /// All that a report has of the file.
    pub(super) report: Report,
    /// Session time of the first memory event, from which the page counts.
    pub(super) first_ns: i64,
    /// From the first to the last event of any kind.
    pub(super) bins: Bins,
}

/// Key of a call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PathKey {
    pub(super) pid: u32,
    /// Number of earlier processes with this id.
    incarnation: u32,
    /// Number of the call site in its process.
    number: u32,
    pub(super) kind: MemoryKind,
    pub(super) is_host: bool,
}

/// What a call path is called.
pub(super) struct PathName {
    /// Number of its call site in reports.
    pub(super) site: Option<u32>,
    pub(super) function: String,
    pub(super) owner: String,
    pub(super) frames: Vec<Frame>,
}

/// The memory of a file.
pub(super) struct ReadMemory {
    played: Played,
}

impl<'a> Reading<'a> {
    pub(super) fn begin(file: &'a File) -> Result<Self> {
        let (database, session) = (&file.database, file.session.clone());
        let report = file.report(Analysis::Page, Lists::default())?;
        let mut span: Option<(i64, i64)> = None;
        for (table, begin, end) in TIMED {
            let first = database.limit(table, begin, "ASC")?;
            let last = database.limit(table, end, "DESC")?;
            if let Some((first, last)) = first.zip(last) {
                let (begin, end) = span.unwrap_or((first, last));
                span = Some((begin.min(first), end.max(last)));
            }
        }
        let (begin, end) = span.unwrap_or_default();
        // A recording goes on without a row; an export ends with its last one.
        let stop_ns = session.stop_ns.filter(|_| database.is_ours());
        let end = stop_ns.map_or(end, |stop| stop.max(end));
        let first_ns = first_ns(database)?.unwrap_or(begin);
        Ok(Self {
            bins: Bins::between(begin.saturating_sub(first_ns), end.saturating_sub(first_ns)),
            database,
            session,
            filter: file.filter,
            report,
            first_ns,
        })
    }

    /// The memory from CUDA by call path; `None` if it was not recorded.
    pub(super) fn memory(&self) -> Result<Option<(HeldByBin<PathKey>, ReadMemory)>> {
        if !self.database.has_rows(MEMORY)? {
            return Ok(None);
        }
        let mut held = HeldByBin::new(&self.bins);
        let played = Played::read(self.database, &self.session, &self.filter, &mut |change| {
            enter(&mut held, change);
            Ok(())
        })?;
        held.finish();
        Ok(Some((held, ReadMemory { played })))
    }

    /// Passes the events of the log to `take`, each with its time and the accounts after it, and the state at the end;
    /// `None` if there are no tensors.
    pub(super) fn tensors(
        &self,
        mut take: impl FnMut(&Event, i64, &Ledger),
    ) -> Result<Option<Replayed>> {
        let zero = self.session.notes.get("monotonic_ns");
        let zero: u64 = zero.and_then(|ns| ns.parse().ok()).unwrap_or(0);
        Replayed::play(self.database, None, |event, player| {
            let time_ns = match event {
                Event::Tensor(tensor) => tensor.time_ns,
                Event::Call(call) => call.end_ns,
                Event::Exit(task) | Event::Exec(task) => task.time_ns,
                _ => return,
            };
            let session_ns = time_ns.wrapping_sub(zero).cast_signed();
            take(event, self.since_first(session_ns), &player.state.ledger);
        })
    }

    /// Whether the process is selected.
    pub(super) fn includes(&self, pid: u32) -> bool {
        self.filter.pid.is_none_or(|wanted| wanted == pid)
    }

    /// Passes the work of GPUs to `work`.
    pub(super) fn work(&self, work: &mut WorkByBin<'_>) -> Result<()> {
        let row_filter = RowFilter {
            pid: self.filter.pid,
            device: self.filter.device,
        };
        // Copies as called, or as run if calls were not recorded.
        let is_called = self.database.has_rows(CALLED_COPIES)?;
        gpu_rows::each(self.database, row_filter, |batch| {
            let since_first = |ns: u64| {
                self.since_first(ns.cast_signed().wrapping_sub_unsigned(gpu_rows::ZERO_NS))
            };
            work.batch(batch, since_first, !is_called);
        })?;
        each_copy(self.database, row_filter, |copy| {
            if copy.outcome == CopyOutcome::Ran {
                let key = (copy.pid, copy.direction, copy.mode.name());
                work.copied(key, self.since_first(copy.start_ns), copy.bytes, copy.ns);
            }
        })?;
        if !work.has_runs() && launches::has_times(self.database)? {
            let whole = TimeRange::default();
            launches::each_single(self.database, row_filter, whole, |one| {
                if one.kernel.op == Op::Launch && !one.is_captured {
                    let time_ns = self.since_first(one.start_ns);
                    work.launched(one.kernel.pid, one.kernel.name(), time_ns);
                }
            })?;
            work.check_launches(launches::count_of_kernels(self.database, row_filter)?);
        }
        Ok(())
    }

    /// The samples of nvidia-smi.
    pub(super) fn overlay(&self) -> Result<Vec<OverlayData>> {
        let lines = plot::recorded_smi(self.database, self.first_ns)?.into_iter();
        let overlay = lines.map(|line| OverlayData {
            label: line.label,
            points: line.points,
        });
        Ok(overlay.collect())
    }

    fn since_first(&self, session_ns: i64) -> i64 {
        session_ns.saturating_sub(self.first_ns)
    }
}

fn enter(held: &mut HeldByBin<PathKey>, change: &MemoryChange<'_>) {
    held.advance(change.time_ns);
    let mut enter = |part: AllocationAt<'_>, effect: Effect| {
        let key = PathKey {
            pid: change.process.pid,
            incarnation: change.incarnation,
            number: part.allocation.site,
            kind: part.allocation.kind(),
            is_host: part.is_host(),
        };
        let is_gpu = part.allocation.belongs() == Belongs::Gpu;
        held.change(key, effect, [part.allocation.size_bytes, 1], is_gpu);
    };
    let gone = match change.is_end {
        true => Effect::Held,
        false => Effect::Freed,
    };
    let freed = change.freed.iter();
    freed.for_each(|one| enter(change.at(one), gone));
    let allocated = change.allocated.iter();
    allocated.for_each(|one| enter(change.at(one), Effect::Allocated));
    held.mark(change.event_ns);
}

impl ReadMemory {
    /// Names call paths, in order.
    pub(super) fn names(&self, keys: impl Iterator<Item = PathKey>) -> Vec<PathName> {
        let symbols = self.played.symbols();
        let mut owners = Owners::new(symbols);
        let mut groups = HashMap::new();
        let mut name = |key: PathKey| {
            let process = self.played.process(key.pid, key.incarnation)?;
            let groups = groups
                .entry((key.pid, key.incarnation))
                .or_insert_with(|| SiteGroups::of(process, true, symbols));
            let site = process.sites.get(key.number)?;
            let owner = owners.of_site(site).owner;
            Some(PathName {
                site: Some(groups.id(key.number)),
                function: function_name(site.row, symbols).into_owned(),
                owner: owners.name(owner).to_owned(),
                frames: memleak::stack_of(key.pid, site, symbols).0,
            })
        };
        let unknown = || PathName {
            site: None,
            function: "?".to_owned(),
            owner: String::new(),
            frames: Vec::new(),
        };
        keys.map(|key| name(key).unwrap_or_else(unknown)).collect()
    }
}
