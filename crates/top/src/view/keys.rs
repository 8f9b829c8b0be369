//! Effects of keys on the view.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

use super::TopView;
use super::pages::Page;
use super::process::TABS;
use super::table::Row;
use crate::feed::Request;

/// What other letters ask for while a recording is played.
fn of_replay(letter: char) -> Option<Request> {
    Some(match letter {
        ' ' => Request::Stop,
        '[' => Request::Seek(-10.0),
        ']' => Request::Seek(10.0),
        '{' => Request::Seek(-60.0),
        '}' => Request::Seek(60.0),
        '+' | '=' => Request::Faster(2.0),
        '-' => Request::Faster(0.5),
        _ => return None,
    })
}

impl TopView {
    /// Handles what was typed; returns what the source is to do.
    pub(crate) fn event(&mut self, event: &Event) -> Vec<Request> {
        let before = self.pages.detail();
        let mut requests = Vec::new();
        if let Event::Key(key) = event {
            self.message = None;
            requests.extend(self.key(*key));
        }
        let detail = self.pages.detail();
        if detail != before {
            requests.push(Request::Detail(detail));
        }
        requests
    }

    fn key(&mut self, key: KeyEvent) -> Option<Request> {
        let is_ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        let code = match key.code {
            // What some terminals send for backspace.
            KeyCode::Char('h') if is_ctrl => KeyCode::Backspace,
            KeyCode::Char('b') if is_ctrl => KeyCode::PageUp,
            KeyCode::Char('f') if is_ctrl => KeyCode::PageDown,
            KeyCode::Char(_) if is_ctrl => return None,
            code => code,
        };
        let is_replay = self.config.is_replay;
        let page = &self.pages.top().page;
        let (is_first, is_help) = (matches!(page, Page::Processes), matches!(page, Page::Help));
        let is_table = is_first || matches!(page, Page::Process(_));
        let look = self.pages.top_mut().look();
        if look.is_typing {
            match code {
                KeyCode::Char(c) => look.filter.push(c),
                KeyCode::Backspace => drop(look.filter.pop()),
                KeyCode::Enter => look.is_typing = false,
                KeyCode::Esc => (look.filter, look.is_typing) = (String::new(), false),
                _ => {}
            }
            return None;
        }
        match code {
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.turn_page(-1),
            KeyCode::PageDown => self.turn_page(1),
            KeyCode::Home | KeyCode::Char('g') => self.step(-isize::MAX),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => self.open(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace | KeyCode::Char('h') => {
                self.back(code);
            }
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(TABS.len() - 1),
            KeyCode::Char('q') => return Some(Request::Quit),
            KeyCode::Char('?') if !is_help => self.pages.open(Page::Help),
            KeyCode::Char('/') => look.is_typing = is_table,
            KeyCode::Char('<') => self.sort(-1),
            KeyCode::Char('>') => self.sort(1),
            KeyCode::Char('i') => look.is_reversed ^= true,
            KeyCode::Char('t') => look.is_tree ^= is_first,
            KeyCode::Char('e') => return self.selected_pid().map(Request::Explain),
            KeyCode::Char('f') => return self.selected_pid().map(Request::Flamegraph),
            KeyCode::Char(letter) if is_replay => return of_replay(letter),
            KeyCode::Char('r') => return self.selected_pid().map(Request::Record),
            KeyCode::Char(' ') => {
                self.is_paused = !self.is_paused;
                self.show_latest();
            }
            _ => {}
        }
        None
    }

    /// The selected row.
    fn selected(&mut self) -> Option<Row> {
        let table = self.table()?;
        let look = self.pages.top_mut().look();
        look.select(&table, 0);
        table.rows.into_iter().nth(look.state.selected()?)
    }

    /// The process that is looked at or selected.
    pub(super) fn selected_pid(&mut self) -> Option<u32> {
        self.pages.pid().or_else(|| match self.selected()?.opens {
            Some(Page::Process(pid)) => Some(pid),
            _ => None,
        })
    }

    /// Moves the selection, or the text, by as many rows as the screen has.
    fn turn_page(&mut self, direction: isize) {
        let rows = self.body.height.saturating_sub(1).max(1);
        self.step(direction * rows as isize);
    }

    /// Moves the selection, or the text.
    fn step(&mut self, by: isize) {
        let table = self.table();
        let top = self.pages.top_mut();
        match table {
            Some(table) => top.look().select(&table, by),
            None => top.line = top.line.saturating_add_signed(by),
        }
    }

    /// Sorts by the column to the left or right, among those shown.
    fn sort(&mut self, by: isize) {
        let Some(table) = self.table() else { return };
        let shown = table.shown(self.body.width);
        let look = self.pages.top_mut().look();
        let now = look.sort.unwrap_or(table.sort);
        let place = shown.iter().position(|(column, _)| *column == now);
        let place = place.unwrap_or(0).saturating_add_signed(by);
        let found = shown.get(place).or(shown.last());
        (look.sort, look.is_reversed) = (found.map(|(column, _)| *column), false);
    }

    /// Opens the selected row.
    fn open(&mut self) {
        if let Some(page) = self.selected().and_then(|row| row.opens) {
            self.pages.open(page);
            self.keep_process();
        }
    }

    /// Clears the filter, or goes back.
    fn back(&mut self, code: KeyCode) {
        let look = self.pages.top_mut().look();
        match code == KeyCode::Esc && !look.filter.is_empty() {
            true => look.filter.clear(),
            false => self.pages.close(),
        }
    }

    /// Opens the tab so many places to the right.
    fn turn(&mut self, by: usize) {
        let top = self.pages.top_mut();
        if matches!(top.page, Page::Process(_)) {
            top.tab = (top.tab + by) % TABS.len();
        }
    }
}
