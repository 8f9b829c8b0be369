//! State of the screen, which keys and reports change, and its drawing.
//!
//! Nothing here reads or writes anything; figures are those of the report.

mod header;
mod help;
mod keys;
mod pages;
mod process;
mod processes;
mod series;
mod style;
mod table;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Tabs};

use gpuprobe_model::TracingCost;
use gpuprobe_model::text::printable;
use gpuprobe_os::color::Tone;
use gpuprobe_report::explain::Explain;
use gpuprobe_report::memleak::ProcessReport;
use gpuprobe_views::text::{explain, sites};

use crate::feed::Update;
use pages::{Page, PageStack};
use process::TABS;
use series::UsedSeries;
use style::style;
use table::Table;

/// How long a message is shown, nanoseconds of the clock of reports.
const MESSAGE_FOR_NS: u64 = 10_000_000_000;

/// Settings of the screen.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScreenConfig {
    /// Whether it has colours.
    pub colored: bool,
    /// Whether a recording is played.
    pub is_replay: bool,
}

/// State of the screen.
#[derive(Debug, Default)]
pub(crate) struct TopView {
    config: ScreenConfig,
    /// The report that is shown; while the view is paused, not the latest.
    shown: Option<Update>,
    latest: Option<Update>,
    /// The last report that had the process looked at, which may have ended since.
    had_process: Option<Update>,
    series: UsedSeries,
    /// When losses were first seen, and when the last were, on the clock of reports.
    lost_ns: Option<(u64, u64)>,
    is_paused: bool,
    pages: PageStack,
    /// A message, and the time of the report after it.
    message: Option<(String, Option<u64>)>,
    /// Place of the table or text at the last draw.
    body: Rect,
}

impl TopView {
    pub(crate) fn new(config: ScreenConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// A new report.
    pub(crate) fn update(&mut self, update: Update) {
        let now_ns = update.now_ns;
        self.series.note(&update.report, now_ns);
        self.note_losses(&update);
        self.latest = Some(update);
        if let Some((_, since_ns)) = &mut self.message {
            let since_ns = *since_ns.get_or_insert(now_ns);
            if now_ns.saturating_sub(since_ns) >= MESSAGE_FOR_NS {
                self.message = None;
            }
        }
        if !self.is_paused {
            self.show_latest();
        }
    }

    fn note_losses(&mut self, update: &Update) {
        let (lost, now_ns) = (&update.report.lost, update.now_ns);
        let latest = self.latest.as_ref();
        let is_same = latest.is_some_and(|latest| latest.report.lost == *lost);
        let (first_ns, last_ns) = self.lost_ns.unwrap_or((now_ns, now_ns));
        let last_ns = if is_same { last_ns } else { now_ns };
        self.lost_ns = lost.any().then_some((first_ns, last_ns));
    }

    fn show_latest(&mut self) {
        self.shown.clone_from(&self.latest);
        self.keep_process();
    }

    /// Keeps the report that is shown for when the process looked at has ended.
    fn keep_process(&mut self) {
        if let (Some(pid), Some(update)) = (self.pages.pid(), &self.shown)
            && find(update, pid).is_some()
        {
            self.had_process = Some(update.clone());
        }
    }

    /// A message for the last line.
    pub(crate) fn tell(&mut self, message: String) {
        self.message = Some((message, None));
    }

    /// The explanation that was asked for.
    pub(crate) fn explained(&mut self, pid: u32, explain: &Explain) {
        self.message = None;
        match explain.clone().only(pid) {
            Some(explain) => self.pages.open(Page::Explained(Box::new(explain))),
            None => self.tell(format!("nothing to explain: process {pid} holds no memory")),
        }
    }

    /// Process `pid` in the report that is shown, or in the last that had it.
    fn process(&self, pid: u32) -> Option<(&Update, &ProcessReport)> {
        let mut updates = self.shown.iter().chain(&self.had_process);
        updates.find_map(|update| Some((update, find(update, pid)?)))
    }

    /// The table on the screen, as it is looked at; `None` if there is text.
    fn table(&self) -> Option<Table> {
        let shown = self.shown.as_ref()?;
        let top = self.pages.top();
        let mut table = match top.page {
            Page::Processes => processes::table(shown),
            Page::Process(pid) => {
                let (update, process) = self.process(pid)?;
                (TABS[top.tab].1)(&update.report, process)
            }
            _ => return None,
        };
        table.arrange(&top.looks[top.tab], |id| {
            let parent = shown.parents.get(&u32::try_from(id).ok()?);
            parent.copied().map(u64::from)
        });
        Some(table)
    }

    /// Draws the screen.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let header = self.header(area);
        let has_tabs = matches!(self.pages.top().page, Page::Process(_));
        let parts = Layout::vertical([
            Constraint::Length(header.len() as u16),
            Constraint::Length(u16::from(has_tabs)),
            Constraint::Min(0),
            Constraint::Length(1),
        ]);
        let [above, tabs, body, last] = parts.areas(area);
        self.body = body;
        frame.render_widget(Paragraph::new(header), above);
        let names = TABS.map(|(name, _)| format!(" {name} "));
        let names = Tabs::new(names).select(self.pages.top().tab);
        let names = names.style(style(Tone::Dim)).padding("", "").divider(" ");
        let selected = Style::new().not_dim().reversed();
        frame.render_widget(names.highlight_style(selected), tabs);
        match self.table() {
            Some(table) => table.draw(self.pages.top_mut().look(), body, frame),
            None => self.draw_text(frame),
        }
        frame.render_widget(self.status(), last);
        if !self.config.colored {
            let plain = Style::new().fg(Color::Reset).bg(Color::Reset);
            frame.buffer_mut().set_style(area, plain);
        }
    }

    /// The lines above the tabs, and the table or text.
    fn header(&self, area: Rect) -> Vec<Line<'static>> {
        let Some(update) = &self.shown else {
            return vec![Line::from("gpuprobe top: waiting for the first report")];
        };
        let mut lines = vec![header::title(update, self.is_paused)];
        let gpus = header::gpus(update, &self.series, area.width);
        let most = usize::from(area.height / 4).max(1);
        lines.extend(gpus.into_iter().take(most));
        if let Page::Process(pid) | Page::Site(pid, ..) = self.pages.top().page {
            let is_shown = find(update, pid).is_some();
            let title = match self.process(pid) {
                Some((_, one)) if one.exited || is_shown => process::title(one),
                Some((_, one)) => process::title(one) + "  (ended)",
                None => format!("process {pid} has ended; esc goes back"),
            };
            lines.push(Line::styled(title, style(Tone::Heading)));
            let costs = update.report.tracing_costs.iter();
            let said = costs.filter(|cost| cost.pid == pid);
            lines.extend(said.filter_map(TracingCost::line).map(Line::from));
        }
        lines
    }

    fn draw_text(&mut self, frame: &mut Frame<'_>) {
        let columns = usize::from(self.body.width);
        let painted = match &self.pages.top().page {
            Page::Site(pid, device, number) => {
                self.process(*pid).map_or(String::new(), |(_, it)| {
                    sites::to_text(it, *device, *number, columns)
                })
            }
            Page::Explained(explain) => explain::to_text(explain, columns),
            Page::Help => {
                let update = self.latest.as_ref();
                help::text(self.config.is_replay, update, self.lost_ns, columns)
            }
            Page::Processes | Page::Process(_) => String::new(),
        };
        let lines = style::lines(&painted);
        let last = lines.len().saturating_sub(usize::from(self.body.height));
        let first = &mut self.pages.top_mut().line;
        *first = (*first).min(last);
        let shown: Vec<_> = lines.into_iter().skip(*first).collect();
        frame.render_widget(Paragraph::new(shown), self.body);
    }

    /// The last line: the filter, a message, or the most important keys.
    fn status(&mut self) -> Line<'static> {
        let look = self.pages.top_mut().look();
        if look.is_typing || !look.filter.is_empty() {
            let cursor = match look.is_typing {
                true => "_",
                false => "  (esc clears it)",
            };
            return Line::from(format!("/{}{cursor}", printable(&look.filter)));
        }
        if let Some((message, _)) = &self.message {
            return Line::styled(printable(message), style(Tone::Warning));
        }
        let own = match self.config.is_replay {
            true => "space stop  [ ] seek  + - speed",
            false => "< > sort  t tree  space pause",
        };
        let keys = match &self.pages.top().page {
            Page::Processes => format!("? help  enter open  / filter  {own}  q quit"),
            Page::Process(_) => {
                "? help  enter open  tab next  / filter  e explain  f flame graph  esc back".into()
            }
            _ => "esc back  up down scroll  q quit".into(),
        };
        Line::styled(keys, style(Tone::Dim))
    }
}

fn find(update: &Update, pid: u32) -> Option<&ProcessReport> {
    let mut processes = update.report.memleak.as_ref()?.processes.iter();
    processes.find(|process| process.who.pid == pid)
}
