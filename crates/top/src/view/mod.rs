//! State of the screen, which keys and reports change, and its drawing.
//!
//! Nothing here reads or writes anything; figures are those of the report.

mod grid;
mod header;
mod help;
mod keys;
mod look;
mod process;
mod processes;
mod site;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::{Line, Span};

use gpuprobe_model::text::printable;
use gpuprobe_os::color::Tone;
use gpuprobe_report::ProcessDetail;
use gpuprobe_report::explain::Explain;
use gpuprobe_report::memleak::ProcessReport;

use crate::feed::Update;
use crate::screen::ScreenConfig;
use crate::series::FigureSeries;
use grid::{Grid, Look};
use look::Theme;
use process::Tab;

/// How long a message is shown, nanoseconds of the clock of reports.
const TOLD_FOR_NS: u64 = 10_000_000_000;
/// Call sites, kernels, and allocations of a thread, of the process that is looked at.
const DETAILED: usize = 500;

/// A screen above the table of processes.
enum OpenPage {
    Process(u32, Tab, Box<[Look; 6]>),
    /// Process, device of tensors, number of the site, first line.
    Site(u32, Option<u16>, u32, usize),
    /// Explanation, first line.
    Explained(Box<Explain>, usize),
    /// First line.
    Help(usize),
}

/// State of the screen.
pub(crate) struct TopView {
    theme: Theme,
    is_replay: bool,
    /// The report that is shown; while the view is paused, not the latest.
    shown: Option<Update>,
    latest: Option<Update>,
    /// The last report that had the process looked at, which may have ended since.
    had_process: Option<Update>,
    is_paused: bool,
    series: FigureSeries,
    processes: Look,
    pages: Vec<OpenPage>,
    message: Option<String>,
    /// When it came, on the clock of reports.
    told_ns: u64,
    /// Rows for lines of text at the last draw.
    height: usize,
    /// Columns at the last draw.
    columns: u16,
}

impl TopView {
    pub(crate) fn new(config: ScreenConfig) -> Self {
        Self {
            theme: Theme {
                colored: config.colored,
            },
            is_replay: config.is_replay,
            shown: None,
            latest: None,
            had_process: None,
            is_paused: false,
            series: FigureSeries::default(),
            processes: Look::default(),
            pages: Vec::new(),
            message: None,
            told_ns: 0,
            height: 1,
            columns: 80,
        }
    }

    /// A new report.
    pub(crate) fn update(&mut self, update: Update) {
        let detail = update.detail.map(|detail| detail.pid);
        self.series.note(&update.report, update.now_ns, detail);
        if self.told_ns == 0 {
            self.told_ns = update.now_ns;
        }
        if update.now_ns.saturating_sub(self.told_ns) > TOLD_FOR_NS {
            self.message = None;
        }
        self.latest = Some(update);
        if !self.is_paused {
            self.show_latest();
        }
    }

    fn show_latest(&mut self) {
        self.shown.clone_from(&self.latest);
        let looked_at = self.pid();
        if let (Some(pid), Some(update)) = (looked_at, &self.shown)
            && find(update, pid).is_some()
        {
            self.had_process = Some(update.clone());
        }
    }

    /// A message for the last line.
    pub(crate) fn tell(&mut self, message: String) {
        self.message = Some(message);
        self.told_ns = self.latest.as_ref().map_or(0, |update| update.now_ns);
    }

    /// The explanation that was asked for.
    pub(crate) fn explained(&mut self, pid: u32, explain: &Explain) {
        self.message = None;
        match explain.clone().only(pid) {
            Some(explain) => self.pages.push(OpenPage::Explained(Box::new(explain), 0)),
            None => self.tell(format!("nothing to explain: process {pid} holds no memory")),
        }
    }

    /// The process that is looked at.
    fn pid(&self) -> Option<u32> {
        self.pages.iter().rev().find_map(|page| match page {
            OpenPage::Process(pid, ..) | OpenPage::Site(pid, ..) => Some(*pid),
            OpenPage::Explained(..) | OpenPage::Help(_) => None,
        })
    }

    /// The detail that the screen needs.
    fn detail(&self) -> Option<ProcessDetail> {
        let is_site = |page: &OpenPage| matches!(page, OpenPage::Site(..));
        Some(ProcessDetail {
            pid: self.pid()?,
            top: DETAILED,
            allocations: self.pages.iter().any(is_site),
        })
    }

    /// The report with process `pid`: the one that is shown, or the last that had it.
    fn with_process(&self, pid: u32) -> Option<(&Update, &ProcessReport)> {
        let updates = self.shown.iter().chain(&self.had_process);
        let mut found = updates.filter_map(|update| Some((update, find(update, pid)?)));
        found.next()
    }

    /// The table on the screen; `None` if there is text.
    fn grid(&self) -> Option<Grid> {
        let shown = self.shown.as_ref()?;
        match self.pages.last() {
            None => Some(processes::grid(&shown.report, self.theme)),
            Some(OpenPage::Process(pid, tab, _)) => {
                let (update, process) = self.with_process(*pid)?;
                let (series, theme) = (&self.series, self.theme);
                Some(process::grid(*tab, &update.report, process, series, theme))
            }
            Some(_) => None,
        }
    }

    fn look(&mut self) -> Option<&mut Look> {
        match self.pages.last_mut() {
            None => Some(&mut self.processes),
            Some(OpenPage::Process(_, tab, looks)) => looks.get_mut(tab.place()),
            Some(_) => None,
        }
    }

    /// The rows of `grid` that are shown, in order.
    fn ordered(&mut self, grid: &Grid) -> Vec<usize> {
        let parents = self.shown.as_ref().map(|update| update.parents.clone());
        let parent = |id: u64| {
            let child = u32::try_from(id).ok()?;
            parents.as_ref()?.get(&child).copied().map(u64::from)
        };
        match self.look() {
            Some(look) => grid.ordered(look, parent),
            None => Vec::new(),
        }
    }

    /// Draws the screen.
    pub(crate) fn draw(&mut self, buffer: &mut Buffer) {
        let area = buffer.area;
        self.columns = area.width;
        let mut y = area.y;
        let bottom = area.bottom().saturating_sub(1);
        for line in self.header(area) {
            if y < bottom {
                buffer.set_line(area.x, y, &line, area.width);
                y += 1;
            }
        }
        let body = Rect::new(area.x, y, area.width, bottom.saturating_sub(y));
        self.height = usize::from(body.height).max(1);
        match self.grid() {
            Some(grid) => {
                let (theme, ordered) = (self.theme, self.ordered(&grid));
                if let Some(look) = self.look() {
                    grid.draw(&ordered, look, theme, body, buffer);
                }
            }
            None => self.draw_text(body, buffer),
        }
        let status = self.status();
        buffer.set_line(area.x, area.bottom() - 1, &status, area.width);
    }

    /// The lines above the table or text.
    fn header(&self, area: Rect) -> Vec<Line<'static>> {
        let Some(update) = &self.shown else {
            let waiting = "gpuprobe top: waiting for the first report";
            return vec![Line::from(waiting)];
        };
        let mut lines = vec![header::title(
            update,
            self.is_paused,
            area.width,
            self.theme,
        )];
        let gpus = header::gpus(update, &self.series, area.width, self.theme);
        lines.extend(gpus.into_iter().take(usize::from(area.height / 4).max(1)));
        match self.pages.last() {
            Some(OpenPage::Process(pid, tab, _)) => lines.extend(self.process_header(*pid, *tab)),
            Some(OpenPage::Site(pid, ..)) => {
                lines.extend(self.process_header(*pid, Tab::Sites).take(1));
            }
            _ => {}
        }
        lines
    }

    fn process_header(&self, pid: u32, open: Tab) -> impl Iterator<Item = Line<'static>> + use<> {
        let Some((_, process)) = self.with_process(pid) else {
            let gone = format!("process {pid} has ended; esc goes back");
            return vec![Line::from(gone)].into_iter();
        };
        let is_there = self
            .shown
            .as_ref()
            .is_some_and(|update| find(update, pid).is_some());
        let mut title = process::title(process);
        if !is_there && !process.exited {
            title += "  (ended)";
        }
        let tabs = Tab::ALL.into_iter().flat_map(|tab| {
            let style = match tab == open {
                true => self.theme.selected(),
                false => self.theme.tone(Tone::Dim),
            };
            [
                Span::styled(format!(" {} ", tab.name()), style),
                Span::raw(" "),
            ]
        });
        let tabs = Line::from(tabs.collect::<Vec<_>>());
        vec![Line::styled(title, self.theme.tone(Tone::Heading)), tabs].into_iter()
    }

    fn text(&self) -> Vec<Line<'static>> {
        let theme = self.theme;
        match self.pages.last() {
            Some(OpenPage::Site(pid, device, number, _)) => {
                let found = self.with_process(*pid);
                let found = found.and_then(|(update, process)| {
                    let site = site::find(process, *device, *number)?;
                    Some(site::lines(process, *device, site, update.now_ns, theme))
                });
                found.unwrap_or_else(|| vec![Line::from("no memory is held here any more")])
            }
            Some(OpenPage::Explained(explain, _)) => {
                theme.lines(&explain.to_text(usize::from(self.columns)))
            }
            Some(OpenPage::Help(_)) => {
                help::lines(self.is_replay, usize::from(self.columns), theme)
            }
            Some(OpenPage::Process(..)) | None => Vec::new(),
        }
    }

    fn draw_text(&mut self, area: Rect, buffer: &mut Buffer) {
        let lines = self.text();
        let last = lines.len().saturating_sub(usize::from(area.height));
        let mut first = 0;
        if let Some(
            OpenPage::Site(_, _, _, line) | OpenPage::Explained(_, line) | OpenPage::Help(line),
        ) = self.pages.last_mut()
        {
            *line = (*line).min(last);
            first = *line;
        }
        for (line, y) in lines.iter().skip(first).zip(area.y..area.bottom()) {
            buffer.set_line(area.x, y, line, area.width);
        }
    }

    /// The last line: the filter, a message, or the most important keys.
    fn status(&mut self) -> Line<'static> {
        let theme = self.theme;
        if let Some(look) = self.look()
            && (look.is_typing || !look.filter.is_empty())
        {
            let cursor = if look.is_typing {
                "_"
            } else {
                "  (esc clears it)"
            };
            return Line::from(format!("/{}{cursor}", printable(&look.filter)));
        }
        if let Some(message) = &self.message {
            return Line::styled(printable(message), theme.tone(Tone::Warning));
        }
        let keys = match (self.pages.last(), self.is_replay) {
            (None, false) => "? help  enter open  / filter  < > sort  t tree  space pause  q quit",
            (None, true) => "? help  enter open  / filter  space stop  [ ] seek  + - speed  q quit",
            (Some(OpenPage::Process(..)), _) => {
                "? help  enter open  tab next  / filter  e explain  f flame graph  esc back"
            }
            (Some(_), _) => "esc back  up down scroll  q quit",
        };
        Line::styled(keys, theme.tone(Tone::Dim))
    }
}

fn find(update: &Update, pid: u32) -> Option<&ProcessReport> {
    let memleak = update.report.memleak.as_ref()?;
    memleak.processes.iter().find(|process| process.pid == pid)
}
