//! The reports that are shown, and tables of them.

use gpuprobe_report::memleak::ProcessReport;

use super::grid::Grid;
use super::pages::OpenPage;
use super::{process, processes};
use crate::feed::Update;
use crate::series::FigureSeries;

/// Reports, and figures of earlier ones.
#[derive(Default)]
pub(crate) struct ShownReports {
    /// The report that is shown; while the view is paused, not the latest.
    pub(crate) shown: Option<Update>,
    pub(crate) latest: Option<Update>,
    /// The last report that had the process looked at, which may have ended since.
    pub(crate) had_process: Option<Update>,
    pub(crate) series: FigureSeries,
}

impl ShownReports {
    /// A new report.
    pub(crate) fn add(&mut self, update: Update) {
        let detail = update.detail.map(|detail| detail.pid);
        self.series.note(&update.report, update.now_ns, detail);
        self.latest = Some(update);
    }

    /// Shows the latest report, in which the process `looked_at` may be.
    pub(crate) fn show_latest(&mut self, looked_at: Option<u32>) {
        self.shown.clone_from(&self.latest);
        if let (Some(pid), Some(update)) = (looked_at, &self.shown)
            && find(update, pid).is_some()
        {
            self.had_process = Some(update.clone());
        }
    }

    /// Whether the report that is shown has process `pid`.
    pub(crate) fn has(&self, pid: u32) -> bool {
        let shown = self.shown.as_ref();
        shown.is_some_and(|update| find(update, pid).is_some())
    }

    /// The report with process `pid`: the one that is shown, or the last that had it.
    pub(crate) fn with_process(&self, pid: u32) -> Option<(&Update, &ProcessReport)> {
        let updates = self.shown.iter().chain(&self.had_process);
        let mut found = updates.filter_map(|update| Some((update, find(update, pid)?)));
        found.next()
    }

    /// The table of `page`; `None` if it has text, or there is no report.
    pub(crate) fn grid(&self, page: Option<&OpenPage>) -> Option<Grid<'_>> {
        let shown = self.shown.as_ref()?;
        match page {
            None => Some(processes::grid(shown)),
            Some(OpenPage::Process(pid, tab, _)) => {
                let (update, process) = self.with_process(*pid)?;
                Some(process::grid(*tab, &update.report, process))
            }
            Some(_) => None,
        }
    }

    /// Id of the row of the parent of the process in row `id`.
    pub(crate) fn parent(&self, id: u64) -> Option<u64> {
        let child = u32::try_from(id).ok()?;
        let parents = &self.shown.as_ref()?.parents;
        parents.get(&child).copied().map(u64::from)
    }
}

fn find(update: &Update, pid: u32) -> Option<&ProcessReport> {
    let memleak = update.report.memleak.as_ref()?;
    memleak.processes.iter().find(|process| process.pid == pid)
}
