//! The pages that are open, one above the other.

use gpuprobe_report::ProcessDetail;
use gpuprobe_report::explain::Explain;

use super::grid::Look;
use super::process::Tab;

/// Call sites, kernels, and allocations of a thread, of the process that is looked at.
const DETAILED: usize = 500;

/// A page above the table of processes.
pub(crate) enum OpenPage {
    Process(u32, Tab, Box<[Look; 6]>),
    /// Process, device of tensors, number of the site, first line.
    Site(u32, Option<u16>, u32, usize),
    /// Explanation, first line.
    Explained(Box<Explain>, usize),
    /// First line.
    Help(usize),
}

/// The table of processes, and the pages above it.
#[derive(Default)]
pub(crate) struct PageStack {
    processes: Look,
    pages: Vec<OpenPage>,
}

impl PageStack {
    /// The page on top; `None` for the table of processes.
    pub(crate) fn last(&self) -> Option<&OpenPage> {
        self.pages.last()
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut OpenPage> {
        self.pages.last_mut()
    }

    pub(crate) fn push(&mut self, page: OpenPage) {
        self.pages.push(page);
    }

    /// Closes the page on top.
    pub(crate) fn pop(&mut self) {
        self.pages.pop();
    }

    /// How the table of the page on top is looked at; `None` if it has text.
    pub(crate) fn look(&mut self) -> Option<&mut Look> {
        match self.pages.last_mut() {
            None => Some(&mut self.processes),
            Some(OpenPage::Process(_, tab, looks)) => looks.get_mut(tab.place()),
            Some(_) => None,
        }
    }

    /// The first line of the text of the page on top.
    pub(crate) fn first_line(&mut self) -> Option<&mut usize> {
        match self.pages.last_mut()? {
            OpenPage::Site(_, _, _, line) | OpenPage::Explained(_, line) | OpenPage::Help(line) => {
                Some(line)
            }
            OpenPage::Process(..) => None,
        }
    }

    /// The process that is looked at.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pages.iter().rev().find_map(|page| match page {
            OpenPage::Process(pid, ..) | OpenPage::Site(pid, ..) => Some(*pid),
            OpenPage::Explained(..) | OpenPage::Help(_) => None,
        })
    }

    /// The detail that the pages need.
    pub(crate) fn detail(&self) -> Option<ProcessDetail> {
        let is_site = |page: &OpenPage| matches!(page, OpenPage::Site(..));
        Some(ProcessDetail {
            pid: self.pid()?,
            top: DETAILED,
            allocations: self.pages.iter().any(is_site),
        })
    }
}
