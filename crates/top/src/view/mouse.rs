//! Effects of clicks: rows, headings and tabs.

use ratatui_core::layout::Rect;

use super::TopView;
use super::pages::OpenPage;
use super::process::Tab;

/// Places on the screen, as they were drawn last.
#[derive(Debug, Default)]
pub(super) struct MouseState {
    /// Table or text.
    pub(super) body: Rect,
    /// Line of the tabs.
    pub(super) tabs: Option<u16>,
    /// Id of the row that was clicked last, if nothing was done since.
    pub(super) clicked: Option<u64>,
}

/// A part of a table that was clicked.
enum Clicked {
    /// A column.
    Heading(usize),
    /// A row, by its place and id.
    Row(usize, u64),
    Nothing,
}

impl TopView {
    /// Handles a click: a row is selected, and opened by a second click; a heading sorts, a tab is opened.
    pub(super) fn click(&mut self, x: u16, y: u16) {
        if self.mouse.tabs == Some(y) {
            self.click_tab(x);
            return;
        }
        match self.clicked(x, y) {
            Clicked::Heading(column) => {
                if let Some((grid, _, look)) = self.table() {
                    let is_sorted = look.sort.unwrap_or(grid.sort) == column;
                    look.is_reversed = is_sorted && !look.is_reversed;
                    look.sort = Some(column);
                }
                self.mouse.clicked = None;
            }
            Clicked::Row(place, id) => {
                if let Some(look) = self.pages.look() {
                    (look.place, look.selected, look.is_typing) = (place, Some(id), false);
                }
                match self.mouse.clicked == Some(id) {
                    true => {
                        self.mouse.clicked = None;
                        self.open();
                    }
                    false => self.mouse.clicked = Some(id),
                }
            }
            Clicked::Nothing => self.mouse.clicked = None,
        }
    }

    fn click_tab(&mut self, x: u16) {
        self.mouse.clicked = None;
        let mut end = 0;
        let found = Tab::ALL.into_iter().find(|tab| {
            end += tab.label().len() + 1;
            usize::from(x) < end
        });
        if let (Some(found), Some(OpenPage::Process(_, tab, _))) = (found, self.pages.last_mut()) {
            *tab = found;
        }
    }

    fn clicked(&mut self, x: u16, y: u16) -> Clicked {
        let body = self.mouse.body;
        let Some(below) = y.checked_sub(body.y).filter(|_| y < body.bottom()) else {
            return Clicked::Nothing;
        };
        let Some((grid, ordered, look)) = self.table() else {
            return Clicked::Nothing;
        };
        let Some(row) = below.checked_sub(1).map(usize::from) else {
            let mut end = body.x;
            let columns = grid.shown(body.width).into_iter();
            let mut ends = columns.map(|(column, width)| {
                end = end.saturating_add(width + 1);
                (column, end)
            });
            let found = ends.find(|(_, end)| x < *end);
            return found.map_or(Clicked::Nothing, |(column, _)| Clicked::Heading(column));
        };
        let place = look.first + row;
        match ordered.get(place).filter(|_| row < look.height) {
            Some(&row) => Clicked::Row(place, grid.rows[row].id),
            None => Clicked::Nothing,
        }
    }
}
