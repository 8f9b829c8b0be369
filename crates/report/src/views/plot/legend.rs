//! Which colour stands for which area.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Chart;
use super::draw::{AREAS, Area, Drawn, FONT, INK};
use crate::names;
use gpuprobe_model::text::printable;

/// Characters that a label may have, however many there are.
const COLUMNS: usize = 60;

/// Entries of the legend, and their positions.
pub(super) struct Legend {
    entries: Vec<LegendEntry>,
    text: f64,
}

impl Legend {
    /// The legend of a picture that takes `area`.
    pub(super) fn of<DB: DrawingBackend>(
        chart: &Chart,
        area: &Area<DB>,
        text: f64,
    ) -> Result<Self, DrawingAreaErrorKind<DB::ErrorType>> {
        let entries = entries(chart, area, text)?;
        Ok(Self { entries, text })
    }

    /// How many rows it takes.
    pub(super) fn rows(&self) -> i32 {
        self.entries.last().map_or(0, |entry| entry.row + 1)
    }

    /// Draws it into a strip of the picture.
    pub(super) fn draw<DB: DrawingBackend>(&self, strip: &Area<DB>) -> Drawn<DB> {
        let style = style(self.text);
        let (box_size, row) = ((self.text * 0.9) as i32, (self.text * 1.7) as i32);
        for entry in &self.entries {
            let (x, y) = (entry.x, entry.row * row + row / 2);
            let mark = [(x, y - box_size / 2), (x + box_size, y + box_size / 2)];
            strip.draw(&Rectangle::new(mark, entry.colour.filled()))?;
            let at = (x + box_size * 3 / 2, y);
            strip.draw(&Text::new(entry.label.as_str(), at, style.clone()))?;
        }
        Ok(())
    }
}

struct LegendEntry {
    label: String,
    colour: RGBColor,
    x: i32,
    row: i32,
}

fn style(text: f64) -> TextStyle<'static> {
    let style = TextStyle::from((FONT, text).into_font()).color(&INK);
    style.pos(Pos::new(HPos::Left, VPos::Center))
}

/// Lays out the entries of the legend.
fn entries<DB: DrawingBackend>(
    chart: &Chart,
    area: &Area<DB>,
    text: f64,
) -> Result<Vec<LegendEntry>, DrawingAreaErrorKind<DB::ErrorType>> {
    let (width, height) = area.dim_in_pixel();
    let width = i32::try_from(width).unwrap_or(i32::MAX);
    let box_size = (text * 0.9) as i32;
    let style = style(text);
    let visible = visible(chart, f64::from(height));
    // Long labels where there is room for them in a row.
    let row_columns = f64::from(width) / (text * 0.62);
    let columns = (row_columns as usize / visible.len().max(1)).saturating_sub(6);
    let (mut x, mut row) = (box_size, 0);
    let mut entries = Vec::new();
    for (label, colour) in visible {
        let label = names::cut(&printable(label), columns.max(COLUMNS));
        let (label_width, _) = area.estimate_text_size(&label, &style)?;
        let needed = i32::try_from(label_width).unwrap_or(0) + box_size * 3;
        if x + needed > width && x > box_size {
            x = box_size;
            row += 1;
        }
        entries.push(LegendEntry {
            label,
            colour,
            x,
            row,
        });
        x += needed;
    }
    Ok(entries)
}

/// The areas that are seen: at some time they are a pixel high.
pub(super) fn visible(chart: &Chart, height: f64) -> Vec<(&str, RGBColor)> {
    let highest = chart.highest();
    let is_seen = |values: &[f64]| {
        let most = values.iter().copied().fold(0.0, f64::max);
        most / highest * height >= 1.0
    };
    let bands = chart.bands.iter().enumerate();
    bands
        .filter(|(_, band)| is_seen(&band.values))
        .map(|(index, band)| (band.label.as_str(), AREAS[index % AREAS.len()]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Band;
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_not_named() {
        let band = |label: &str, bytes: f64| Band {
            label: label.to_owned(),
            values: vec![0.0, bytes],
        };
        let chart = Chart {
            times: vec![0.0, 1.0],
            bands: vec![band("device", 1e9), band("array", 1e4)],
            ..Chart::default()
        };
        let named: Vec<_> = visible(&chart, 500.0).into_iter().map(|(l, _)| l).collect();
        assert_eq!(named, ["device"]);
        assert_eq!(visible(&chart, 200_000.0).len(), 2);
    }
}
