//! From a chart to a picture.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Once;

use anyhow::{Result, anyhow, bail};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::legend::Legend;
use super::{Chart, ChartLine, labels};
use crate::names;
use gpuprobe_model::text::printable;
use gpuprobe_os::{files, terminal};

/// The name of the embedded font; in SVG, of whichever the reader has.
pub(super) const FONT: &str = "sans-serif";
static FONT_DATA: &[u8] = include_bytes!("DejaVuSans-latin.ttf");

/// Colours that people with any colour vision tell apart (Okabe and Ito).
pub(super) const AREAS: [RGBColor; 8] = [
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(240, 228, 66),
    RGBColor(204, 121, 167),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(160, 160, 160),
];
pub(super) const LINES: [RGBColor; 4] = [
    RGBColor(60, 60, 60),
    RGBColor(140, 60, 20),
    RGBColor(20, 90, 60),
    RGBColor(90, 40, 120),
];
pub(super) const PEAK: RGBColor = RGBColor(180, 0, 0);
pub(super) const LEAK: RGBColor = RGBColor(120, 0, 120);
pub(super) const INK: RGBColor = RGBColor(30, 30, 30);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// Draws `chart` into the file `path`, in the format that its extension names; for `-`, as an SVG
/// on standard output.
///
/// # Errors
/// Returns an error if the extension is neither `svg` nor `png`, or the file cannot be written.
pub fn write(chart: &Chart, path: &Path, size: (u32, u32)) -> Result<()> {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        if register_font(FONT, FontStyle::Normal, FONT_DATA).is_err() {
            tracing::debug!("the embedded font cannot be used");
        }
    });
    let shown = path.display();
    let why = |error: String| anyhow!("cannot write to {shown}: {error}");
    let extension = path.extension().and_then(|extension| extension.to_str());
    let is_svg = match extension {
        Some("svg") => true,
        Some("png") => false,
        _ if files::is_stdout(path) => true,
        _ => bail!("{shown}: pictures are .svg or .png"),
    };
    let file: Box<dyn Write> = if files::is_stdout(path) {
        terminal::stdout(false)
    } else {
        Box::new(files::create(path).map_err(|e| why(e.to_string()))?)
    };
    let mut file = BufWriter::new(file);
    if is_svg {
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(chart, &area).map_err(|e| why(e.to_string()))?;
        drop(area);
        file.write_all(text.as_bytes())
            .and_then(|()| file.flush())
            .map_err(|e| why(e.to_string()))
    } else {
        let (width, height) = size;
        let mut pixels = vec![0; width as usize * height as usize * 3];
        let area = BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area();
        draw(chart, &area).map_err(|e| why(e.to_string()))?;
        drop(area);
        write_png(file, &pixels, size).map_err(|e| why(e.to_string()))
    }
}

/// Writes red, green and blue of every pixel, row by row.
fn write_png(
    file: impl Write,
    pixels: &[u8],
    (width, height): (u32, u32),
) -> Result<(), png::EncodingError> {
    let mut encoder = png::Encoder::new(file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()
}

pub(super) type Area<DB> = DrawingArea<DB, Shift>;
pub(super) type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// A unit that gives numbers below a thousand or so.
fn bytes_unit(highest: f64) -> (f64, &'static str) {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let found = units
        .into_iter()
        .find(|(bits, _)| highest >= 2f64.powi(*bits));
    found.map_or((1.0, "B"), |(bits, name)| (2f64.powi(bits), name))
}

fn time_unit(span: f64) -> (f64, &'static str) {
    match span {
        s if s >= 1.0 => (1.0, "s"),
        s if s >= 1e-3 => (1e-3, "ms"),
        _ => (1e-6, "µs"),
    }
}

fn draw<DB: DrawingBackend>(chart: &Chart, area: &Area<DB>) -> Drawn<DB> {
    area.fill(&WHITE)?;
    let (width, height) = area.dim_in_pixel();
    // Everything grows with the picture.
    let unit = f64::from(width.min(height * 2)) / 100.0;
    let text = (unit * 1.7).max(9.0);
    let mut area = area.margin(unit as i32, unit as i32, unit as i32, unit as i32 * 2);
    if let Some(title) = &chart.title {
        let style = (FONT, text * 1.25).into_font().color(&INK);
        let title = fitted(&printable(title), &style, &area)?;
        area = area.titled(&title, style)?;
    }
    let legend = Legend::of(chart, &area, text)?;
    let height = f64::from(legend.rows()) * text * 1.7;
    let (strip, plot) = area.split_vertically(height as i32 + 4);
    legend.draw(&strip)?;
    plot_area(chart, &plot, text)
}

/// `text` as far as there is room for it in a line.
fn fitted<DB: DrawingBackend>(
    text: &str,
    style: &TextStyle<'_>,
    area: &Area<DB>,
) -> Result<String, DrawingAreaErrorKind<DB::ErrorType>> {
    let (width, _) = area.estimate_text_size(text, style)?;
    let room = area.dim_in_pixel().0;
    if width <= room {
        return Ok(text.to_owned());
    }
    let share = f64::from(room) / f64::from(width);
    let columns = (text.chars().count() as f64 * share * 0.95) as usize;
    Ok(names::cut(text, columns))
}

pub(super) type Plot<'a, DB> = ChartContext<
    'a,
    DB,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

/// From seconds and bytes to the axes' units.
pub(super) struct Scale {
    per_second: f64,
    pub(super) second_name: &'static str,
    per_byte: f64,
    byte_name: &'static str,
    /// Ends of the axes in their units.
    left: f64,
    right: f64,
    top: f64,
}

impl Scale {
    /// `headroom` is the part of the height above everything that is drawn.
    fn of(chart: &Chart, headroom: f64) -> Self {
        let (first, last) = chart.span();
        let (per_byte, byte_name) = bytes_unit(chart.highest());
        let (per_second, second_name) = time_unit(last - first);
        Self {
            per_second,
            second_name,
            per_byte,
            byte_name,
            left: first / per_second,
            // The last value must be seen, too; and above the peak there is its label.
            right: (last + (last - first) * 0.02) / per_second,
            top: chart.highest() / (1.0 - headroom) / per_byte,
        }
    }

    /// Values outside, as in a file that makes no sense, are moved to the edge: they are not for the
    /// drawing library.
    fn x(&self, seconds: f64) -> f64 {
        (seconds / self.per_second).clamp(self.left, self.right)
    }

    fn y(&self, bytes: f64) -> f64 {
        (bytes / self.per_byte).clamp(0.0, self.top)
    }

    pub(super) fn point(&self, (seconds, bytes): (f64, f64)) -> (f64, f64) {
        (self.x(seconds), self.y(bytes))
    }

    /// The ends of the line of what was never freed.
    pub(super) fn leak(&self, chart: &Chart) -> Option<[(f64, f64); 2]> {
        let y = self.y(chart.leaked?);
        Some([(self.x(chart.span().0), y), (self.right, y)])
    }
}

fn plot_area<DB: DrawingBackend>(chart: &Chart, area: &Area<DB>, text: f64) -> Drawn<DB> {
    let below = text * 3.0;
    let height = f64::from(area.dim_in_pixel().1) - below;
    let scale = Scale::of(chart, labels::headroom(height, text));
    let (first, _) = chart.span();
    let mut plot = ChartBuilder::on(area)
        .x_label_area_size(below)
        .y_label_area_size(text * 5.0)
        .build_cartesian_2d(scale.x(first)..scale.right, 0.0..scale.top)?;
    let style = (FONT, text).into_font().color(&INK);
    plot.configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_desc(format!("time from the first event ({})", scale.second_name))
        .y_desc(format!("GPU memory ({})", scale.byte_name))
        .label_style(style.clone())
        .axis_desc_style(style.clone())
        .x_labels(10)
        .y_labels(8)
        .draw()?;
    bands(chart, &scale, &mut plot)?;
    lines(chart, &scale, &mut plot)?;
    leak(chart, &scale, &mut plot)?;
    peak(chart, &scale, &mut plot, text)?;
    labels::draw(chart, &scale, &plot, text)?;
    area.present()
}

/// Draws stacked areas, the highest first: the lower ones cover their own parts.
fn bands<DB: DrawingBackend>(chart: &Chart, scale: &Scale, plot: &mut Plot<'_, DB>) -> Drawn<DB> {
    for index in (0..chart.bands.len()).rev() {
        let steps = outline(chart, index);
        let steps = steps.into_iter().map(|step| scale.point(step));
        let colour = AREAS[index % AREAS.len()];
        plot.draw_series(AreaSeries::new(steps, 0.0, colour).border_style(colour.stroke_width(1)))?;
    }
    Ok(())
}

fn lines<DB: DrawingBackend>(chart: &Chart, scale: &Scale, plot: &mut Plot<'_, DB>) -> Drawn<DB> {
    for (index, line) in chart.lines.iter().enumerate() {
        let style = LINES[index % LINES.len()].stroke_width(2);
        let points = course(chart, line).into_iter();
        let points = points.map(|point| scale.point(point));
        plot.draw_series(LineSeries::new(points, style))?;
    }
    Ok(())
}

/// Draws a dashed line at the memory that was never freed.
fn leak<DB: DrawingBackend>(chart: &Chart, scale: &Scale, plot: &mut Plot<'_, DB>) -> Drawn<DB> {
    let Some(ends) = scale.leak(chart) else {
        return Ok(());
    };
    plot.draw_series(DashedLineSeries::new(ends, 8, 5, LEAK.stroke_width(2)))
        .map(|_| ())
}

/// Draws a dot at the highest point.
fn peak<DB: DrawingBackend>(
    chart: &Chart,
    scale: &Scale,
    plot: &mut Plot<'_, DB>,
    text: f64,
) -> Drawn<DB> {
    let Some(peak) = chart.highest_point() else {
        return Ok(());
    };
    let radius = (text / 3.0) as i32;
    let dot = Circle::new(scale.point(peak), radius, PEAK.filled());
    plot.draw_series([dot]).map(|_| ())
}

/// The upper edge of an area, in seconds and bytes.
pub(super) fn outline(chart: &Chart, index: usize) -> Vec<(f64, f64)> {
    let (_, last) = chart.span();
    let sums = (0..chart.times.len()).map(|at| {
        let bands = chart.bands[..=index].iter();
        bands.filter_map(|band| band.values.get(at)).sum::<f64>()
    });
    staircase(chart.times.iter().copied().zip(sums), last)
}

/// Points of a line within the chart, in seconds and bytes.
pub(super) fn course(chart: &Chart, line: &ChartLine) -> Vec<(f64, f64)> {
    let (first, last) = chart.span();
    let points = line.points.iter().copied();
    let inside = points.filter(|(time, _)| (first..=last).contains(time));
    staircase(inside, last)
}

/// Steps of values that stay until they change.
fn staircase(points: impl Iterator<Item = (f64, f64)>, last: f64) -> Vec<(f64, f64)> {
    let mut steps: Vec<(f64, f64)> = Vec::new();
    for (time, bytes) in points {
        if let Some(&(_, before)) = steps.last() {
            steps.push((time, before));
        }
        steps.push((time, bytes));
    }
    if let Some(&(_, bytes)) = steps.last() {
        steps.push((last, bytes));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_numbers() {
        assert_eq!(bytes_unit(3e9).1, "GiB");
        assert_eq!(bytes_unit(26_214_400.0).1, "MiB");
        assert_eq!(bytes_unit(77.0), (1.0, "B"));
        assert_eq!(time_unit(0.056), (1e-3, "ms"));
    }

    #[test]
    fn values_stay_until_they_change() {
        let steps = staircase([(1.0, 5.0), (2.0, 7.0)].into_iter(), 3.0);
        assert_eq!(steps, [(1.0, 5.0), (2.0, 5.0), (2.0, 7.0), (3.0, 7.0)]);
    }
}
