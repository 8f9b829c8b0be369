//! Effects of keys on the view.

use super::TopView;
use super::grid::Look;
use super::pages::OpenPage;
use super::process::{Tab, site_of};
use crate::feed::Request;
use crate::keys::Key;

/// Seconds of short and of long steps in a recording.
const STEPS: (f64, f64) = (10.0, 60.0);

impl TopView {
    /// Handles a key; returns what the source is to do.
    pub(crate) fn key(&mut self, key: Key) -> Vec<Request> {
        let before = self.pages.detail();
        self.message = None;
        let mut requests: Vec<_> = match key {
            Key::Wheel(rows) => {
                self.step(rows);
                None
            }
            Key::Click { x, y } => {
                self.click(x, y);
                None
            }
            key if self.is_typing() => {
                self.type_filter(key);
                None
            }
            key => self.command(key),
        }
        .into_iter()
        .collect();
        if !matches!(key, Key::Click { .. }) {
            self.mouse.clicked = None;
        }
        let detail = self.pages.detail();
        if detail != before {
            requests.push(Request::Detail(detail));
        }
        requests
    }

    fn is_typing(&mut self) -> bool {
        self.pages.look().is_some_and(|look| look.is_typing)
    }

    fn type_filter(&mut self, key: Key) {
        let Some(look) = self.pages.look() else {
            return;
        };
        match key {
            Key::Char(c) => look.filter.push(c),
            Key::Backspace => drop(look.filter.pop()),
            Key::Enter => look.is_typing = false,
            Key::Esc => {
                look.filter.clear();
                look.is_typing = false;
            }
            _ => {}
        }
    }

    fn command(&mut self, key: Key) -> Option<Request> {
        match key {
            Key::Char('q') | Key::Ctrl('c') => return Some(Request::Quit),
            Key::Char('?') if !matches!(self.pages.last(), Some(OpenPage::Help(_))) => {
                self.pages.push(OpenPage::Help(0));
            }
            Key::Up | Key::Char('k') => self.step(-1),
            Key::Down | Key::Char('j') => self.step(1),
            Key::PageUp | Key::Ctrl('b') => self.turn_page(-1),
            Key::PageDown | Key::Ctrl('f') => self.turn_page(1),
            Key::Home | Key::Char('g') => self.step(-isize::MAX),
            Key::End | Key::Char('G') => self.step(isize::MAX),
            Key::Enter | Key::Right | Key::Char('l') => self.open(),
            Key::Esc | Key::Left | Key::Backspace | Key::Char('h') => self.back(key),
            Key::Tab => self.turn(1),
            Key::BackTab => self.turn(-1),
            Key::Char(c) => return self.letter(c),
            _ => {}
        }
        None
    }

    fn letter(&mut self, letter: char) -> Option<Request> {
        match letter {
            '/' => self.change(|look| look.is_typing = true),
            '<' => self.sort(-1),
            '>' => self.sort(1),
            'i' => self.change(|look| look.is_reversed = !look.is_reversed),
            't' if self.pages.last().is_none() => self.change(|look| look.is_tree = !look.is_tree),
            'e' => return self.selected_pid().map(Request::Explain),
            'f' => return self.selected_pid().map(Request::Flamegraph),
            ' ' if self.config.is_replay => return Some(Request::Stop),
            ' ' => {
                self.is_paused = !self.is_paused;
                if !self.is_paused {
                    self.show_latest();
                }
            }
            'r' if !self.config.is_replay => return self.selected_pid().map(Request::Record),
            '[' if self.config.is_replay => return Some(Request::Seek(-STEPS.0)),
            ']' if self.config.is_replay => return Some(Request::Seek(STEPS.0)),
            '{' if self.config.is_replay => return Some(Request::Seek(-STEPS.1)),
            '}' if self.config.is_replay => return Some(Request::Seek(STEPS.1)),
            '+' | '=' if self.config.is_replay => return Some(Request::Faster(2.0)),
            '-' if self.config.is_replay => return Some(Request::Faster(0.5)),
            _ => {}
        }
        None
    }

    /// The process that is looked at or selected.
    pub(super) fn selected_pid(&mut self) -> Option<u32> {
        if self.pages.pid().is_some() {
            return self.pages.pid();
        }
        let (grid, ordered, look) = self.table()?;
        look.settle(&ordered, &grid);
        look.selected.and_then(|id| u32::try_from(id).ok())
    }

    fn change(&mut self, change: impl FnOnce(&mut Look)) {
        if let Some(look) = self.pages.look() {
            change(look);
        }
    }

    /// Moves the selection, or the text, by as many rows as the screen has.
    fn turn_page(&mut self, direction: isize) {
        let height = match self.pages.look() {
            Some(look) => look.height,
            None => self.height,
        };
        let height = isize::try_from(height).unwrap_or(1).max(1);
        self.step(direction * height);
    }

    /// Moves the selection, or the text.
    fn step(&mut self, by: isize) {
        if let Some(first) = self.pages.first_line() {
            *first = first.saturating_add_signed(by);
            return;
        }
        if let Some((grid, ordered, look)) = self.table() {
            look.settle(&ordered, &grid);
            look.step(&ordered, &grid, by);
        }
    }

    fn sort(&mut self, by: isize) {
        let columns = self.columns;
        if let Some((grid, _, look)) = self.table() {
            let shown = grid.shown(columns).into_iter();
            let shown: Vec<_> = shown.map(|(place, _)| place).collect();
            look.sort_by(&grid, &shown, by);
        }
    }

    /// Opens the selected row.
    pub(super) fn open(&mut self) {
        let Some((grid, ordered, look)) = self.table() else {
            return;
        };
        look.settle(&ordered, &grid);
        let Some(id) = look.selected.filter(|_| !ordered.is_empty()) else {
            return;
        };
        match self.pages.last() {
            None => {
                let Ok(pid) = u32::try_from(id) else { return };
                let page = OpenPage::Process(pid, Tab::Sites, Box::default());
                self.pages.push(page);
                self.reports.had_process.clone_from(&self.reports.shown);
            }
            Some(OpenPage::Process(pid, Tab::Sites | Tab::Tensors, _)) => {
                let (device, site) = site_of(id);
                let page = OpenPage::Site(*pid, device, site, 0);
                self.pages.push(page);
            }
            Some(_) => {}
        }
    }

    /// Clears the filter, or goes back.
    fn back(&mut self, key: Key) {
        if let Some(look) = self.pages.look()
            && key == Key::Esc
            && !look.filter.is_empty()
        {
            look.filter.clear();
            return;
        }
        self.pages.pop();
    }

    /// Opens the tab to the right or left.
    fn turn(&mut self, by: isize) {
        if let Some(OpenPage::Process(_, tab, _)) = self.pages.last_mut() {
            let count = Tab::ALL.len();
            let place = tab.place() as isize + by;
            *tab = Tab::ALL[place.rem_euclid(count as isize) as usize];
        }
    }
}
