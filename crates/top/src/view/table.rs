//! Tables: columns, rows that are sorted and filtered, and how they are drawn.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::iter::successors;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{self, TableState};

use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;
use gpuprobe_report::names::cut;
use gpuprobe_report::verdict::{Verdict, tone_of};
use gpuprobe_report::words::{short_age, signed_size, time};

use super::pages::Page;
use super::style::style;

/// A column: its title, its width, which is 0 for a share of the rest of the line, and the least width of a line that
/// has it.
pub(crate) type Column = (&'static str, u16, u16);

/// `line` in so many columns, cut in its middle if it is too long.
fn fit(line: Line<'static>, width: u16) -> Line<'static> {
    let width = usize::from(width);
    match line.width() > width {
        true => Line::styled(cut(&line.to_string(), width), line.style),
        false => line,
    }
}

/// A cell: larger numbers are first, then earlier names. Numbers end, names begin, at the same place.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) number: f64,
    pub(crate) line: Line<'static>,
}

impl Cell {
    fn new<T: Copy>(value: Option<T>, number: fn(T) -> f64, text: fn(T) -> String) -> Self {
        let shown = value.map(text).unwrap_or_default();
        Self {
            number: value.map_or(f64::NEG_INFINITY, number),
            line: Line::from(shown).right_aligned(),
        }
    }

    /// Names, or bars of letters.
    pub(crate) fn line(line: Line<'static>) -> Self {
        Self { number: 0.0, line }
    }

    /// A name, which a traced program may have chosen.
    pub(crate) fn name(name: &str) -> Self {
        Self::line(printable(name).into())
    }

    /// Number of a process, thread or device; smaller ones are first.
    pub(crate) fn id(id: Option<u32>) -> Self {
        Self::new(id, |id| -f64::from(id), |id| id.to_string())
    }

    pub(crate) fn count(number: impl Into<Option<u64>>) -> Self {
        Self::new(number.into(), |number| number as f64, |n| n.to_string())
    }

    pub(crate) fn bytes(bytes: Option<u64>) -> Self {
        Self::new(bytes, |bytes| bytes as f64, size)
    }

    pub(crate) fn change(change: Option<i64>) -> Self {
        Self::new(change, |change| change as f64, signed_size)
    }

    /// Age, nanoseconds.
    pub(crate) fn age(ns: u64) -> Self {
        Self::new(Some(ns), |ns| ns as f64, short_age)
    }

    /// Duration, nanoseconds.
    pub(crate) fn ns(ns: u64) -> Self {
        Self::new(Some(ns), |ns| ns as f64, |ns| time(ns as f64))
    }

    /// Share, 0 to 1.
    pub(crate) fn share(share: Option<f64>) -> Self {
        let text = |share| format!("{:.1}", share * 100.0);
        Self::new(share, |share| share, text)
    }

    /// Events per second.
    pub(crate) fn rate(rate: f64) -> Self {
        let text = |rate| format!("{rate:.*}", usize::from(rate < 10.0));
        Self::new(Some(rate).filter(|rate| *rate != 0.0), |rate| rate, text)
    }

    /// Bytes per second.
    pub(crate) fn throughput(rate: Option<f64>) -> Self {
        let text = |rate| format!("{:.3}", rate / 1e9);
        Self::new(rate.filter(|rate| *rate != 0.0), |rate| rate, text)
    }

    /// Size of a grid or block.
    pub(crate) fn volume(sizes: [u32; 3]) -> Self {
        let volume = |sizes: [u32; 3]| sizes.map(f64::from).iter().product();
        Self::new(Some(sizes), volume, |[x, y, z]| format!("{x}x{y}x{z}"))
    }

    pub(crate) fn verdict(verdict: Option<Verdict>) -> Self {
        let tone = verdict.map_or(Tone::Good, tone_of);
        Self {
            number: verdict.map_or(f64::NEG_INFINITY, |verdict| -f64::from(verdict as u8)),
            line: Line::styled(verdict.map_or("", Verdict::name), style(tone)),
        }
    }

    fn text(&self) -> String {
        self.line.to_string().to_lowercase()
    }

    fn order(&self, other: &Self) -> Ordering {
        let order = other.number.total_cmp(&self.number);
        order.then_with(|| self.text().cmp(&other.text()))
    }
}

/// A row, with an id that it keeps in later reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) id: u64,
    pub(crate) cells: Vec<Cell>,
    /// Drawn dim.
    pub(crate) is_dim: bool,
    /// What it opens.
    pub(crate) opens: Option<Page>,
}

impl Row {
    pub(crate) fn new(id: u64, cells: Vec<Cell>) -> Self {
        Self {
            id,
            cells,
            ..Self::default()
        }
    }
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) columns: &'static [Column],
    pub(crate) rows: Vec<Row>,
    /// Shown where there are no rows.
    pub(crate) nothing: &'static str,
    /// Shown below the rows: what is not in them.
    pub(crate) rest: Option<String>,
    /// The column by which rows are sorted at first.
    pub(crate) sort: usize,
}

/// How a table is looked at.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// Id of the selected row, which it is found again by.
    pub(crate) selected: Option<u64>,
    pub(crate) state: TableState,
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
    /// Finds the selected row again, after rows have changed places, and selects the one so many rows further.
    pub(crate) fn select(&mut self, table: &Table, by: isize) {
        let is_it = |row: &Row| Some(row.id) == self.selected;
        let place = table.rows.iter().position(is_it);
        let place = place.or(self.state.selected()).unwrap_or(0);
        let place = place.saturating_add_signed(by);
        let place = place.min(table.rows.len().saturating_sub(1));
        self.state.select(Some(place));
        self.selected = table.rows.get(place).map(|row| row.id);
    }
}

impl Table {
    /// Leaves the rows that are shown, in order.
    pub(crate) fn arrange(&mut self, look: &Look, parent_of: impl Fn(u64) -> Option<u64>) {
        let wanted = look.filter.to_lowercase();
        let has = |cell: &Cell| cell.text().contains(&wanted);
        self.rows
            .retain(|row| wanted.is_empty() || row.cells.iter().any(has));
        let column = look.sort.unwrap_or(self.sort);
        self.rows
            .sort_by(|a, b| a.cells[column].order(&b.cells[column]));
        if look.is_reversed {
            self.rows.reverse();
        }
        if look.is_tree {
            self.put_below_parents(parent_of);
        }
    }

    fn put_below_parents(&mut self, parent_of: impl Fn(u64) -> Option<u64>) {
        let ids = self.rows.iter().map(|row| row.id);
        let places: HashMap<u64, usize> = ids.zip(0..).collect();
        self.rows.sort_by_cached_key(|row| {
            let ancestors = successors(Some(row.id), |id| parent_of(*id));
            let ancestors = ancestors.take(places.len());
            let mut path: Vec<_> = ancestors.map_while(|id| places.get(&id)).collect();
            path.reverse();
            path
        });
    }

    /// The columns that a line of `width` has, and the width of each: not those that are empty in all rows.
    pub(crate) fn shown(&self, width: u16) -> Vec<(usize, u16)> {
        let widest = |place: usize| {
            let cells = self.rows.iter().map(|row| row.cells[place].line.width());
            cells.max().unwrap_or(1) as u16
        };
        let places = self.columns.iter().zip(0..);
        let columns = places.filter(|((_, _, needs), place)| *needs <= width && widest(*place) > 0);
        let columns: Vec<_> = columns.map(|((_, own, _), place)| (*own, place)).collect();
        let fixed: u16 = columns.iter().map(|(own, _)| own + 1).sum();
        let mut rest = (width + 1).saturating_sub(fixed);
        let mut sharing = columns.iter().filter(|(own, _)| *own == 0).count() as u16;
        let mut end = 0;
        // One that needs less than its share leaves more to those behind it.
        let widths = columns.iter().map(|&(own, place)| match own {
            0 => {
                let share = rest / sharing.max(1);
                sharing = sharing.saturating_sub(1);
                let own = match sharing {
                    0 => share,
                    _ => widest(place)
                        .max(self.columns[place].0.len() as u16 + 1)
                        .min(share),
                };
                rest -= own;
                (place, own)
            }
            own => (place, own),
        });
        let is_whole = |column: &(usize, u16)| {
            end += column.1 + 1;
            end <= width + 1
        };
        widths.take_while(is_whole).collect()
    }

    /// Draws the table into `area`.
    pub(crate) fn draw(&self, look: &mut Look, area: Rect, frame: &mut Frame<'_>) {
        let below = u16::from(self.rest.is_some() && area.height > 3);
        let parts = Layout::vertical([Constraint::Min(0), Constraint::Length(below)]);
        let [area, last] = parts.areas(area);
        look.select(self, 0);
        let shown = self.shown(area.width);
        let sort = look.sort.unwrap_or(self.sort);
        let titles = shown.iter().map(|&(place, width)| {
            let arrow = ["▼", "▲"][usize::from(look.is_reversed)];
            let arrow = if place == sort { arrow } else { "" };
            let cell = self.rows.first().map(|row| &row.cells[place].line);
            let mut title = Line::from(format!("{}{arrow}", self.columns[place].0));
            title.alignment = cell.and_then(|cell| cell.alignment);
            fit(title, width)
        });
        let rows = self.rows.iter().map(|row| {
            let cells = shown.iter();
            let cells = cells.map(|&(place, width)| fit(row.cells[place].line.clone(), width));
            let dim = row.is_dim.then(|| style(Tone::Dim));
            widgets::Row::new(cells).style(dim.unwrap_or_default())
        });
        let table = widgets::Table::new(rows, shown.iter().map(|(_, width)| *width))
            .header(widgets::Row::new(titles).style(style(Tone::Heading)))
            .row_highlight_style(Style::new().reversed());
        frame.render_stateful_widget(table, area, &mut look.state);
        if self.rows.is_empty() {
            let nothing = match look.filter.is_empty() {
                true => self.nothing,
                false => "no row contains the filter's text",
            };
            let row = area.rows().nth(1).unwrap_or_default();
            frame.render_widget(Line::styled(nothing, style(Tone::Dim)), row);
        }
        if let Some(rest) = &self.rest {
            frame.render_widget(Line::styled(rest.as_str(), style(Tone::Dim)), last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_are_unknown_or_nothing_are_empty_and_come_last() {
        for cell in [
            Cell::bytes(None),
            Cell::change(None),
            Cell::share(None),
            Cell::id(None),
            Cell::throughput(Some(0.0)),
        ] {
            assert_eq!((cell.text().as_str(), cell.number), ("", f64::NEG_INFINITY));
        }
        assert_eq!(Cell::rate(0.0).text(), "");
        assert_eq!(Cell::rate(9.96).text(), "10.0");
        assert_eq!(Cell::rate(590.4).text(), "590");
        assert_eq!(Cell::throughput(Some(84e6)).text(), "0.084");
        // The widest size, for which columns have room.
        let widest = Cell::bytes(Some((1 << 30) - 8192));
        assert_eq!(widest.line.to_string(), "1023.99 MiB");
    }

    #[test]
    fn rows_are_ordered_by_value() {
        let ids = Cell::id(Some(9)).order(&Cell::id(Some(10)));
        assert_eq!(ids, Ordering::Less);
        let bytes = Cell::bytes(Some(9)).order(&Cell::bytes(Some(10)));
        assert_eq!(bytes, Ordering::Greater);
        let names = Cell::name("b").order(&Cell::name("A"));
        assert_eq!(names, Ordering::Greater);
        let verdicts = [Verdict::Growing, Verdict::Plateau].map(|one| Cell::verdict(Some(one)));
        let verdicts = verdicts[0].order(&verdicts[1]);
        assert_eq!(verdicts, Ordering::Less);
    }
}
