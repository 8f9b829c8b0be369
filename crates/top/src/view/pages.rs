//! The pages that are open, one above the other.

use gpuprobe_report::ProcessDetail;
use gpuprobe_report::explain::Explain;

use super::process::TABS;
use super::table::Look;

/// Call sites, kernels, and allocations of a thread, of the process that is looked at.
const DETAILED: usize = 500;

/// What a page shows.
#[derive(Clone, Debug, Default)]
pub(crate) enum Page {
    #[default]
    Processes,
    Process(u32),
    /// Process, device of tensors, number of the site.
    Site(u32, Option<u16>, u32),
    Explained(Box<Explain>),
    Help,
}

/// A page, and how it is looked at.
#[derive(Debug, Default)]
pub(crate) struct OpenPage {
    pub(crate) page: Page,
    /// The tab of a process.
    pub(crate) tab: usize,
    pub(crate) looks: [Look; TABS.len()],
    /// First line of a text.
    pub(crate) line: usize,
}

impl OpenPage {
    /// How its table is looked at.
    pub(crate) fn look(&mut self) -> &mut Look {
        &mut self.looks[self.tab]
    }
}

/// The table of processes, and the pages above it.
#[derive(Debug, Default)]
pub(crate) struct PageStack {
    processes: OpenPage,
    above: Vec<OpenPage>,
}

impl PageStack {
    /// The page on top.
    pub(crate) fn top(&self) -> &OpenPage {
        self.above.last().unwrap_or(&self.processes)
    }

    pub(crate) fn top_mut(&mut self) -> &mut OpenPage {
        self.above.last_mut().unwrap_or(&mut self.processes)
    }

    pub(crate) fn open(&mut self, page: Page) {
        self.above.push(OpenPage {
            page,
            ..OpenPage::default()
        });
    }

    /// Closes the page on top.
    pub(crate) fn close(&mut self) {
        self.above.pop();
    }

    /// The process that is looked at.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.above.iter().rev().find_map(|open| match open.page {
            Page::Process(pid) | Page::Site(pid, ..) => Some(pid),
            _ => None,
        })
    }

    /// The detail that the pages need.
    pub(crate) fn detail(&self) -> Option<ProcessDetail> {
        let is_site = |open: &OpenPage| matches!(open.page, Page::Site(..));
        Some(ProcessDetail {
            pid: self.pid()?,
            top: DETAILED,
            allocations: self.above.iter().any(is_site),
        })
    }
}
