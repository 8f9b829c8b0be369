//! State of the screen, which keys and reports change, and its drawing.
//!
//! Nothing here reads or writes anything; figures are those of the report.

mod cell;
mod grid;
mod header;
mod help;
mod keys;
mod look;
mod mouse;
mod pages;
mod process;
mod processes;
mod shown;
mod site;
mod sources;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
mod work;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::{Line, Span};

use gpuprobe_model::text::printable;
use gpuprobe_os::color::Tone;
use gpuprobe_report::explain::Explain;
use gpuprobe_stacks::symbols::SourcePlace;

use crate::feed::Update;
use grid::{Canvas, Grid, Look};
use look::Theme;
use mouse::MouseState;
use pages::{OpenPage, PageStack};
use process::Tab;
use shown::ShownReports;
use sources::SourceTexts;

/// How long a message is shown, nanoseconds of the clock of reports.
const MESSAGE_FOR_NS: u64 = 10_000_000_000;

/// Settings of the screen.
#[derive(Clone, Copy, Debug)]
pub struct ScreenConfig {
    /// Whether it has colours.
    pub colored: bool,
    /// Whether it is used with the mouse.
    pub mouse: bool,
    /// Whether a recording is played.
    pub is_replay: bool,
}

/// State of the screen.
pub(crate) struct TopView {
    config: ScreenConfig,
    theme: Theme,
    reports: ShownReports,
    is_paused: bool,
    pages: PageStack,
    mouse: MouseState,
    pub(crate) sources: SourceTexts,
    message: Option<String>,
    /// When it came, on the clock of reports.
    message_ns: u64,
    /// Rows for lines of text at the last draw.
    height: usize,
    /// Columns at the last draw.
    columns: u16,
}

impl TopView {
    pub(crate) fn new(config: ScreenConfig) -> Self {
        Self {
            config,
            theme: Theme {
                colored: config.colored,
            },
            reports: ShownReports::default(),
            is_paused: false,
            pages: PageStack::default(),
            mouse: MouseState::default(),
            sources: SourceTexts::default(),
            message: None,
            message_ns: 0,
            height: 1,
            columns: 80,
        }
    }

    /// A new report. Returns whether the screen changes with it.
    pub(crate) fn update(&mut self, update: Update) -> bool {
        let now_ns = update.now_ns;
        self.reports.add(update);
        if self.message_ns == 0 {
            self.message_ns = now_ns;
        }
        let is_old = now_ns.saturating_sub(self.message_ns) > MESSAGE_FOR_NS;
        let was_told = is_old && self.message.take().is_some();
        if !self.is_paused {
            self.show_latest();
        }
        was_told || !self.is_paused
    }

    fn show_latest(&mut self) {
        self.reports.show_latest(self.pages.pid());
    }

    /// A message for the last line.
    pub(crate) fn tell(&mut self, message: String) {
        self.message = Some(message);
        self.message_ns = self
            .reports
            .latest
            .as_ref()
            .map_or(0, |update| update.now_ns);
    }

    /// The explanation that was asked for.
    pub(crate) fn explained(&mut self, pid: u32, explain: &Explain) {
        self.message = None;
        match explain.clone().only(pid) {
            Some(explain) => self.pages.push(OpenPage::Explained(Box::new(explain), 0)),
            None => self.tell(format!("nothing to explain: process {pid} holds no memory")),
        }
    }

    /// Source lines that the page shows and that have not been asked for.
    pub(crate) fn wanted_sources(&mut self) -> Vec<SourcePlace> {
        let Some(OpenPage::Site(pid, device, number, _)) = self.pages.last() else {
            return Vec::new();
        };
        let found = self.reports.with_process(*pid);
        let site = found.and_then(|(_, process)| site::find(process, *device, *number));
        let places = site.map(|site| sources::places(*pid, site));
        self.sources.want(places.unwrap_or_default())
    }

    /// The table on the screen, its rows in order, and how it is looked at; `None` if there is text.
    fn table(&mut self) -> Option<(Grid<'_>, Vec<usize>, &mut Look)> {
        let grid = self.reports.grid(self.pages.last())?;
        let look = self.pages.look()?;
        let ordered = grid.ordered(look, |id| self.reports.parent(id));
        Some((grid, ordered, look))
    }

    /// Draws the screen.
    pub(crate) fn draw(&mut self, buffer: &mut Buffer) {
        let area = buffer.area;
        self.columns = area.width;
        let mut y = area.y;
        let bottom = area.bottom().saturating_sub(1);
        self.mouse.tabs = None;
        for (line, is_tabs) in self.header(area) {
            if y < bottom {
                if is_tabs {
                    self.mouse.tabs = Some(y);
                }
                buffer.set_line(area.x, y, &line, area.width);
                y += 1;
            }
        }
        let body = Rect::new(area.x, y, area.width, bottom.saturating_sub(y));
        self.height = usize::from(body.height).max(1);
        self.mouse.body = body;
        if !self.draw_table(body, buffer) {
            self.draw_text(body, buffer);
        }
        let status = self.status();
        buffer.set_line(area.x, area.bottom() - 1, &status, area.width);
    }

    /// Draws the table, if the page has one.
    fn draw_table(&mut self, area: Rect, buffer: &mut Buffer) -> bool {
        let Some(grid) = self.reports.grid(self.pages.last()) else {
            return false;
        };
        let Some(look) = self.pages.look() else {
            return false;
        };
        let ordered = grid.ordered(look, |id| self.reports.parent(id));
        let canvas = Canvas {
            series: &self.reports.series,
            theme: self.theme,
            area,
        };
        grid.draw(&ordered, look, canvas, buffer);
        true
    }

    /// The lines above the table or text, and which of them has the tabs.
    fn header(&self, area: Rect) -> Vec<(Line<'static>, bool)> {
        let Some(update) = &self.reports.shown else {
            let waiting = "gpuprobe top: waiting for the first report";
            return vec![(Line::from(waiting), false)];
        };
        let title = header::title(update, self.is_paused, area.width, self.theme);
        let gpus = header::gpus(update, &self.reports.series, area.width, self.theme);
        let most = usize::from(area.height / 4).max(1);
        let lines = std::iter::once(title).chain(gpus.into_iter().take(most));
        let mut lines: Vec<_> = lines.map(|line| (line, false)).collect();
        match self.pages.last() {
            Some(OpenPage::Process(pid, tab, _)) => {
                lines.push((self.process_title(*pid), false));
                lines.push((self.tabs(*tab), true));
            }
            Some(OpenPage::Site(pid, ..)) => lines.push((self.process_title(*pid), false)),
            _ => {}
        }
        lines
    }

    fn process_title(&self, pid: u32) -> Line<'static> {
        let Some((_, process)) = self.reports.with_process(pid) else {
            return Line::from(format!("process {pid} has ended; esc goes back"));
        };
        let mut title = process::title(process);
        if !self.reports.has(pid) && !process.exited {
            title += "  (ended)";
        }
        Line::styled(title, self.theme.tone(Tone::Heading))
    }

    fn tabs(&self, open: Tab) -> Line<'static> {
        let tabs = Tab::ALL.into_iter().flat_map(|tab| {
            let style = match tab == open {
                true => self.theme.selected(),
                false => self.theme.tone(Tone::Dim),
            };
            [Span::styled(tab.label(), style), Span::raw(" ")]
        });
        Line::from(tabs.collect::<Vec<_>>())
    }

    fn text(&self) -> Vec<Line<'static>> {
        let theme = self.theme;
        match self.pages.last() {
            Some(OpenPage::Site(pid, device, number, _)) => {
                let found = self.reports.with_process(*pid);
                let found = found.and_then(|(update, process)| {
                    let site = site::find(process, *device, *number)?;
                    let about = (process, *device, site);
                    Some(site::lines(about, &self.sources, update.now_ns, theme))
                });
                found.unwrap_or_else(|| vec![Line::from("no memory is held here any more")])
            }
            Some(OpenPage::Explained(explain, _)) => {
                theme.lines(&explain.to_text(usize::from(self.columns)))
            }
            Some(OpenPage::Help(_)) => help::lines(self.config, usize::from(self.columns)),
            Some(OpenPage::Process(..)) | None => Vec::new(),
        }
    }

    fn draw_text(&mut self, area: Rect, buffer: &mut Buffer) {
        let lines = self.text();
        let last = lines.len().saturating_sub(usize::from(area.height));
        let first = self.pages.first_line().map_or(0, |line| {
            *line = (*line).min(last);
            *line
        });
        for (line, y) in lines.iter().skip(first).zip(area.y..area.bottom()) {
            buffer.set_line(area.x, y, line, area.width);
        }
    }

    /// The last line: the filter, a message, or the most important keys.
    fn status(&mut self) -> Line<'static> {
        let theme = self.theme;
        if let Some(look) = self.pages.look()
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
        let keys = match (self.pages.last(), self.config.is_replay) {
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
