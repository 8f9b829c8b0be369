//! Tables: columns, rows that can be sorted and filtered, and how they are drawn.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::Line;

use gpuprobe_os::color::Tone;
use gpuprobe_report::names::cut;

use super::cell::GridCell;
use super::look::Theme;
use crate::series::FigureSeries;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GridColumn {
    pub(crate) title: &'static str,
    /// Columns of the terminal; 0 for the rest of the line.
    pub(crate) width: u16,
    /// Least columns of the line with which it is shown.
    pub(crate) needs: u16,
    /// Numbers end, names begin, at the same place.
    pub(crate) is_number: bool,
}

impl GridColumn {
    pub(crate) const fn number(title: &'static str, width: u16, needs: u16) -> Self {
        Self {
            title,
            width,
            needs,
            is_number: true,
        }
    }

    pub(crate) const fn name(title: &'static str, width: u16, needs: u16) -> Self {
        Self {
            is_number: false,
            ..Self::number(title, width, needs)
        }
    }
}

/// A row, with an id that it keeps in later reports.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) id: u64,
    pub(crate) cells: Vec<GridCell<'a>>,
    /// Drawn dim.
    pub(crate) is_dim: bool,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid<'a> {
    pub(crate) columns: &'static [GridColumn],
    pub(crate) rows: Vec<Row<'a>>,
    /// Shown where there are no rows.
    pub(crate) nothing: &'static str,
    /// Shown below the rows: what is not in them.
    pub(crate) rest: Option<String>,
    /// The column by which rows are sorted at first.
    pub(crate) sort: usize,
}

/// How and where a table is drawn.
#[derive(Clone, Copy)]
pub(crate) struct Canvas<'a> {
    pub(crate) series: &'a FigureSeries,
    pub(crate) theme: Theme,
    pub(crate) area: Rect,
}

/// How a table is looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// Id of the selected row.
    pub(crate) selected: Option<u64>,
    /// Its place.
    pub(crate) place: usize,
    /// The first row on the screen.
    pub(crate) first: usize,
    /// Rows that the screen has.
    pub(crate) height: usize,
    /// The column sorted by, if one was chosen, and whether backwards.
    pub(crate) sort: Option<usize>,
    pub(crate) is_reversed: bool,
    /// Text that shown rows contain.
    pub(crate) filter: String,
    /// Keys are added to the filter.
    pub(crate) is_typing: bool,
    /// Rows are below the rows of their parents.
    pub(crate) is_tree: bool,
}

impl Look {
    /// Moves the selection by so many rows.
    pub(crate) fn step(&mut self, ordered: &[usize], grid: &Grid<'_>, by: isize) {
        self.place = self.place.saturating_add_signed(by);
        self.place = self.place.min(ordered.len().saturating_sub(1));
        self.selected = ordered.get(self.place).map(|&row| grid.rows[row].id);
    }

    /// Finds the selected row again, after rows have changed places.
    pub(crate) fn settle(&mut self, ordered: &[usize], grid: &Grid) {
        let found = |id| ordered.iter().position(|&row| grid.rows[row].id == id);
        match self.selected.and_then(found) {
            Some(place) => self.place = place,
            None => self.step(ordered, grid, 0),
        }
    }

    /// Chooses the column to the left or right of the one sorted by, among those shown.
    pub(crate) fn sort_by(&mut self, grid: &Grid<'_>, shown: &[usize], by: isize) {
        let now = self.sort.unwrap_or(grid.sort);
        let place = shown.iter().position(|&column| column == now).unwrap_or(0);
        let place = place.saturating_add_signed(by);
        self.sort = shown.get(place.min(shown.len().saturating_sub(1))).copied();
        self.is_reversed = false;
    }
}

impl Grid<'_> {
    /// The rows that are shown, in order.
    pub(crate) fn ordered(
        &self,
        look: &Look,
        parent_of: impl Fn(u64) -> Option<u64>,
    ) -> Vec<usize> {
        let wanted = look.filter.to_lowercase();
        let is_wanted = |row: &Row<'_>| {
            let has = |cell: &GridCell<'_>| cell.text().to_lowercase().contains(&wanted);
            wanted.is_empty() || row.cells.iter().any(has)
        };
        let mut ordered: Vec<_> = (0..self.rows.len())
            .filter(|&row| is_wanted(&self.rows[row]))
            .collect();
        let column = look.sort.unwrap_or(self.sort);
        let key = |row: &Row<'_>| row.cells.get(column).map(GridCell::key);
        let keys: Vec<_> = self.rows.iter().map(key).collect();
        ordered.sort_by(|&a, &b| {
            let (a, b) = (keys[a].as_ref(), keys[b].as_ref());
            let order = a
                .zip(b)
                .map_or(std::cmp::Ordering::Equal, |(a, b)| a.order(b));
            match look.is_reversed {
                true => order.reverse(),
                false => order,
            }
        });
        match look.is_tree {
            true => self.below_parents(&ordered, parent_of),
            false => ordered,
        }
    }

    /// The same rows, each below its parent.
    fn below_parents(
        &self,
        ordered: &[usize],
        parent_of: impl Fn(u64) -> Option<u64>,
    ) -> Vec<usize> {
        let ids: Vec<_> = ordered.iter().map(|&row| self.rows[row].id).collect();
        let parent = |id| parent_of(id).filter(|parent| ids.contains(parent) && *parent != id);
        let mut waiting: Vec<_> = ordered
            .iter()
            .rev()
            .copied()
            .filter(|&row| parent(self.rows[row].id).is_none())
            .collect();
        let mut found = Vec::new();
        while let Some(row) = waiting.pop() {
            found.push(row);
            let id = self.rows[row].id;
            let children = ordered.iter().rev();
            waiting.extend(children.filter(|&&child| parent(self.rows[child].id) == Some(id)));
        }
        found
    }

    /// The columns that a line of `width` has, and the width of each.
    pub(crate) fn shown(&self, width: u16) -> Vec<(usize, u16)> {
        let fits = |column: &&(usize, &GridColumn)| column.1.needs <= width;
        let columns: Vec<_> = self.columns.iter().enumerate().collect();
        let columns: Vec<_> = columns.iter().filter(fits).copied().collect();
        let gaps = u16::try_from(columns.len().saturating_sub(1)).unwrap_or(u16::MAX);
        let fixed: u16 = columns.iter().map(|(_, column)| column.width).sum();
        let rest = width.saturating_sub(fixed.saturating_add(gaps));
        let of = |(place, column): &(usize, &GridColumn)| match column.width {
            0 => (*place, rest),
            width => (*place, width),
        };
        columns.iter().map(of).collect()
    }

    /// Draws the table into `area`.
    pub(crate) fn draw(
        &self,
        ordered: &[usize],
        look: &mut Look,
        canvas: Canvas<'_>,
        buffer: &mut Buffer,
    ) {
        let Canvas { theme, area, .. } = canvas;
        if area.height == 0 {
            return;
        }
        let shown = self.shown(area.width);
        self.draw_titles(&shown, look, theme, area, buffer);
        let has_rest = u16::from(self.rest.is_some() && area.height > 3);
        let height = area.height - 1 - has_rest;
        look.height = usize::from(height);
        look.settle(ordered, self);
        look.first = look.first.min(look.place);
        look.first = look.first.max((look.place + 1).saturating_sub(look.height));
        if ordered.is_empty() && height > 0 {
            let nothing = match look.filter.is_empty() {
                true => self.nothing,
                false => "no row contains the filter's text",
            };
            let width = usize::from(area.width);
            let style = theme.tone(Tone::Dim);
            buffer.set_stringn(area.x, area.y + 1, nothing, width, style);
        }
        let visible = ordered.iter().enumerate().skip(look.first);
        for ((place, &row), y) in visible.take(look.height).zip(area.y + 1..) {
            let line = Rect::new(area.x, y, area.width, 1);
            self.draw_row(
                &self.rows[row],
                &shown,
                Canvas {
                    area: line,
                    ..canvas
                },
                buffer,
            );
            if place == look.place {
                buffer.set_style(line, theme.selected());
            }
        }
        if let Some(rest) = self.rest.as_ref().filter(|_| has_rest > 0) {
            let (y, width) = (area.bottom() - 1, usize::from(area.width));
            buffer.set_stringn(area.x, y, rest, width, theme.tone(Tone::Dim));
        }
    }

    fn draw_titles(
        &self,
        shown: &[(usize, u16)],
        look: &Look,
        theme: Theme,
        area: Rect,
        buffer: &mut Buffer,
    ) {
        let sort = look.sort.unwrap_or(self.sort);
        let mut x = area.x;
        for &(place, width) in shown {
            let column = &self.columns[place];
            let arrow = match (place == sort, look.is_reversed) {
                (false, _) => "",
                (true, false) => "▼",
                (true, true) => "▲",
            };
            let title = format!("{}{arrow}", column.title);
            let line = Line::styled(title, theme.tone(Tone::Heading));
            set(
                &line,
                column.is_number,
                Rect::new(x, area.y, width, 1),
                buffer,
            );
            x = x.saturating_add(width + 1);
        }
    }

    fn draw_row(
        &self,
        row: &Row<'_>,
        shown: &[(usize, u16)],
        canvas: Canvas<'_>,
        buffer: &mut Buffer,
    ) {
        let Canvas {
            series,
            theme,
            area,
        } = canvas;
        let mut x = area.x;
        for &(place, width) in shown {
            if let (Some(cell), Some(column)) = (row.cells.get(place), self.columns.get(place)) {
                let at = Rect::new(x, area.y, width, 1);
                set(&cell.line(series, theme), column.is_number, at, buffer);
            }
            x = x.saturating_add(width + 1);
        }
        if row.is_dim {
            buffer.set_style(area, theme.tone(Tone::Dim));
        }
    }
}

/// Writes `line` into `place`, cut in its middle if it is a name that is too long.
fn set(line: &Line<'static>, is_number: bool, place: Rect, buffer: &mut Buffer) {
    if place.right() > buffer.area.right() {
        return;
    }
    let width = usize::from(place.width);
    let taken = line.width();
    if taken <= width {
        let indent = if is_number {
            place.width - taken as u16
        } else {
            0
        };
        buffer.set_line(place.x + indent, place.y, line, place.width);
        return;
    }
    let text = line.to_string();
    let cut = cut(&text, width);
    buffer.set_stringn(place.x, place.y, cut, width, line.style);
}
