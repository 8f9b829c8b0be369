//! Lists as text: which columns a line has room for, and what of their cells.

use gpuprobe_os::color::Tone;
use gpuprobe_os::terminal::Layout;

use crate::tables::{Cell, Column};
use gpuprobe_report::verdict::tone_of;
use gpuprobe_report::words::columns_of;
use gpuprobe_report::{label, names};

/// Between two columns.
const GAP: usize = 2;
/// The least that is shown of a cell, however narrow the line is.
const LEAST: usize = 4;

/// A column as it is shown.
struct Shown {
    title: &'static str,
    priority: u8,
    /// Its least width, where its cells may be shortened.
    least: Option<usize>,
    is_left: bool,
    width: usize,
    /// Cells with their tones. They are printable.
    cells: Vec<(String, Option<Tone>)>,
    /// Whether the cells are names of kernels.
    is_kernel: bool,
    /// Whether they are call paths.
    is_path: bool,
}

impl Shown {
    fn new<T>(column: &Column<T>, rows: &[T]) -> Option<Self> {
        let title = column.title?;
        let (mut is_left, mut is_kernel, mut is_path) = (false, false, false);
        let text = |row: &T| {
            let cell = (column.cell)(row);
            is_left |= cell.is_words();
            is_kernel |= matches!(cell, Cell::Kernel(_));
            is_path |= matches!(cell, Cell::Path(_));
            let tone = match cell {
                Cell::Verdict(verdict) => Some(tone_of(verdict)),
                _ => None,
            };
            (cell.shown(), tone)
        };
        let cells: Vec<_> = rows.iter().map(text).collect();
        let widths = cells.iter().map(|(cell, _)| columns_of(cell));
        let width = widths.max().filter(|width| *width > 0)?;
        Some(Self {
            title,
            priority: column.priority,
            least: Some(column.min_width).filter(|width| *width > 0),
            is_left,
            width: width.max(columns_of(title)),
            cells,
            is_kernel,
            is_path,
        })
    }

    fn least(&self) -> usize {
        self.least.map_or(self.width, |least| self.width.min(least))
    }

    fn padded(&self, cell: &str, tone: Option<Tone>) -> String {
        let padding = " ".repeat(self.width.saturating_sub(columns_of(cell)));
        let cell = tone.map_or_else(|| cell.to_owned(), |tone| tone.paint(cell));
        match self.is_left {
            true => cell + &padding,
            false => padding + &cell,
        }
    }
}

/// The lines of a table: the headings, if it has any, then one for each row. Columns that are empty throughout are left
/// out; names come last. What does not fit is left out by priority, then names are shortened, and stay different.
pub(super) fn lines<T>(
    columns: &[Column<T>],
    rows: &[T],
    indent: usize,
    layout: Layout,
) -> Vec<String> {
    let shown = columns.iter();
    let shown = shown.filter_map(|column| Shown::new(column, rows));
    let mut shown: Vec<_> = shown.collect();
    shown.sort_by_key(|column| column.least.is_some());
    let room = layout.columns.unwrap_or(usize::MAX).saturating_sub(indent);
    fit(&mut shown, room, layout.full_names);
    let line = |cells: Vec<String>| {
        let line = format!("{:indent$}{}", "", cells.join(&" ".repeat(GAP)));
        line.trim_end().to_owned()
    };
    let mut lines = Vec::new();
    if shown.iter().any(|column| !column.title.is_empty()) {
        let titles = shown.iter();
        let titles = titles.map(|column| column.padded(column.title, Some(Tone::Heading)));
        lines.push(line(titles.collect()));
    }
    for row in 0..shown.first().map_or(0, |column| column.cells.len()) {
        let cells = shown.iter().map(|column| {
            let (cell, tone) = &column.cells[row];
            column.padded(cell, *tone)
        });
        lines.push(line(cells.collect()));
    }
    lines
}

fn fit(shown: &mut Vec<Shown>, room: usize, full_names: bool) {
    let needed = |shown: &[Shown]| shown.iter().map(|one| one.least() + GAP).sum::<usize>();
    let room = room.saturating_add(GAP);
    while needed(shown) > room {
        let last = (0..shown.len()).max_by_key(|&index| (shown[index].priority, index));
        match last.filter(|&last| shown[last].priority > 0) {
            Some(last) => shown.remove(last),
            None => break,
        };
    }
    for index in 0..shown.len() {
        let over = needed(shown).saturating_sub(room);
        let spare = room.saturating_sub(needed(shown));
        let column = &mut shown[index];
        if column.least.is_none() || column.is_kernel && full_names {
            continue;
        }
        let width = (column.least() + spare).min(column.width);
        let width = width.saturating_sub(over).max(LEAST);
        let cells: Vec<_> = column.cells.iter().map(|(cell, _)| &**cell).collect();
        let simplify = |cell: &str| match column.is_kernel {
            true => names::simplify(cell),
            false if column.is_path && columns_of(cell) > width => label::shortened(cell),
            false => cell.to_owned(),
        };
        let short = names::fit(&cells, width, simplify);
        let longest = short.iter().map(|cell| columns_of(cell)).max();
        column.width = longest.unwrap_or(0).max(columns_of(column.title));
        column.least = Some(column.width);
        for (cell, short) in column.cells.iter_mut().zip(short) {
            cell.0 = short;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::tables::work::KERNELS;
    use gpuprobe_report::cudatrace::KernelReport;
    use gpuprobe_report::work::Work;

    fn kernel(name: &str) -> KernelReport {
        KernelReport {
            pid: 574,
            uid: None,
            comm: None,
            exited: false,
            name: name.into(),
            mangled: None,
            handle: 1,
            launches: 1000,
            captured_launches: 0,
            per_second: 499.8,
            grid: [1024, 1, 1],
            block: [128, 2, 1],
            api: "cuLaunchKernel",
            process: 1,
        }
    }

    fn plain(kernels: &[KernelReport], columns: Option<usize>) -> Vec<String> {
        let rows = kernels.iter().map(|kernel| Work::launched(kernel, 1000));
        let layout = Layout {
            columns,
            ..Layout::default()
        };
        let lines = lines(KERNELS, &rows.collect::<Vec<_>>(), 2, layout);
        let lines = lines.iter();
        lines
            .map(|line| gpuprobe_os::color::unpainted(line))
            .collect()
    }

    #[test]
    fn empty_columns_are_left_out_and_those_that_do_not_fit() {
        let kernels = [kernel("void k2<float>(T1 *, int)")];
        assert_eq!(
            plain(&kernels, None),
            [
                "  LAUNCHES      %  PER SEC  GRID  BLOCK              KERNEL",
                "      1000  100.0    499.8  1024  128x2  ██████████  k2<float>",
            ]
        );
        let narrow = plain(&[kernel(&"k".repeat(80))], Some(60));
        assert_eq!(narrow[0], "  LAUNCHES      %  PER SEC  KERNEL");
        assert_eq!(plain(&[], None), [""; 0]);
    }

    #[test]
    fn no_two_kernels_print_alike() {
        let kernels = include_str!("../../../report/src/names/kernels.txt")
            .lines()
            .step_by(2);
        let kernels: Vec<_> = kernels.map(kernel).collect();
        for width in [Some(80), Some(120), Some(200), None] {
            let lines = plain(&kernels, width);
            let different: HashSet<_> = lines.iter().collect();
            assert_eq!(different.len(), kernels.len() + 1, "{lines:#?}");
            let is_wide = |row: &String| width.is_some_and(|width| columns_of(row) > width);
            assert!(!lines.iter().any(is_wide), "{lines:#?}");
        }
    }
}
