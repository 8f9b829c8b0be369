//! From a chart to a picture.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Once;

use anyhow::{Result, anyhow, bail};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

use super::Chart;
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::{files, terminal};

/// The name of the embedded font; in SVG, of whichever the reader has.
const FONT: &str = "sans-serif";
static FONT_DATA: &[u8] = include_bytes!("DejaVuSans-latin.ttf");

/// Colours that people with any colour vision tell apart (Okabe and Ito).
const AREAS: [RGBColor; 8] = [
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(240, 228, 66),
    RGBColor(204, 121, 167),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(160, 160, 160),
];
const LINES: [RGBColor; 4] = [
    RGBColor(60, 60, 60),
    RGBColor(140, 60, 20),
    RGBColor(20, 90, 60),
    RGBColor(90, 40, 120),
];
const PEAK: RGBColor = RGBColor(180, 0, 0);
const LEAK: RGBColor = RGBColor(120, 0, 120);
const INK: RGBColor = RGBColor(30, 30, 30);
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
        terminal::stdout()
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

type Area<DB> = DrawingArea<DB, Shift>;
type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

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
        area = area.titled(
            &printable(title),
            (FONT, text * 1.25).into_font().color(&INK),
        )?;
    }
    let rows = legend(chart, &area, text, false)?;
    let (strip, plot) = area.split_vertically((f64::from(rows) * text * 1.7) as i32 + 4);
    legend(chart, &strip, text, true)?;
    plot_area(chart, &plot, text)
}

/// Draws the legend in as many rows as it needs, or only counts them.
fn legend<DB: DrawingBackend>(
    chart: &Chart,
    area: &Area<DB>,
    text: f64,
    visible: bool,
) -> Result<u32, DrawingAreaErrorKind<DB::ErrorType>> {
    let style = TextStyle::from((FONT, text).into_font()).color(&INK);
    let style = style.pos(Pos::new(HPos::Left, VPos::Center));
    let bands = chart.bands.iter().enumerate();
    let bands = bands.map(|(index, band)| (&band.label, AREAS[index % AREAS.len()], true));
    let lines = chart.lines.iter().enumerate();
    let lines = lines.map(|(index, line)| (&line.label, LINES[index % LINES.len()], false));
    let never = "never freed".to_owned();
    let leak = chart.leaked.map(|_| (&never, LEAK, false));
    let (box_size, row) = ((text * 0.9) as i32, (text * 1.7) as i32);
    let width = i32::try_from(area.dim_in_pixel().0).unwrap_or(i32::MAX);
    let (mut x, mut rows) = (box_size, 1);
    for (label, colour, is_area) in bands.chain(lines).chain(leak) {
        let label = gpuprobe_stacks::symbols::shorten(&printable(label), 60);
        let (label_width, _) = area.estimate_text_size(&label, &style)?;
        let needed = i32::try_from(label_width).unwrap_or(0) + box_size * 3;
        if x + needed > width && x > box_size {
            x = box_size;
            rows += 1;
        }
        if visible {
            let y = (rows - 1) * row + row / 2;
            let half = if is_area { box_size / 2 } else { 1 };
            let mark = [(x, y - half), (x + box_size, y + half)];
            area.draw(&Rectangle::new(mark, colour.filled()))?;
            area.draw(&Text::new(label, (x + box_size * 3 / 2, y), style.clone()))?;
        }
        x += needed;
    }
    Ok(u32::try_from(rows).unwrap_or(1))
}

type Plot<'a, DB> = ChartContext<
    'a,
    DB,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

/// From seconds and bytes to the axes' units.
struct Scale {
    per_second: f64,
    second_name: &'static str,
    per_byte: f64,
    byte_name: &'static str,
    /// Ends of the axes in their units.
    left: f64,
    right: f64,
    top: f64,
}

impl Scale {
    fn of(chart: &Chart) -> Self {
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
            top: chart.highest() * 1.15 / per_byte,
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

    fn point(&self, (seconds, bytes): (f64, f64)) -> (f64, f64) {
        (self.x(seconds), self.y(bytes))
    }
}

fn plot_area<DB: DrawingBackend>(chart: &Chart, area: &Area<DB>, text: f64) -> Drawn<DB> {
    let scale = Scale::of(chart);
    let (first, _) = chart.span();
    let mut plot = ChartBuilder::on(area)
        .x_label_area_size(text * 3.0)
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
    leak(chart, &scale, &mut plot, text)?;
    peak(chart, &scale, &mut plot, text)?;
    area.present()
}

/// Draws stacked areas, the highest first: the lower ones cover their own parts.
fn bands<DB: DrawingBackend>(chart: &Chart, scale: &Scale, plot: &mut Plot<'_, DB>) -> Drawn<DB> {
    let (_, last) = chart.span();
    for index in (0..chart.bands.len()).rev() {
        let sums = (0..chart.times.len()).map(|at| {
            chart.bands[..=index]
                .iter()
                .filter_map(|band| band.values.get(at))
                .sum::<f64>()
        });
        let points = chart.times.iter().copied().zip(sums);
        let steps = staircase(points, last);
        let steps = steps.into_iter().map(|step| scale.point(step));
        let colour = AREAS[index % AREAS.len()];
        plot.draw_series(AreaSeries::new(steps, 0.0, colour).border_style(colour.stroke_width(1)))?;
    }
    Ok(())
}

fn lines<DB: DrawingBackend>(chart: &Chart, scale: &Scale, plot: &mut Plot<'_, DB>) -> Drawn<DB> {
    let (first, last) = chart.span();
    for (index, line) in chart.lines.iter().enumerate() {
        let style = LINES[index % LINES.len()].stroke_width(2);
        let inside = line
            .points
            .iter()
            .filter(|(time, _)| (first..=last).contains(time));
        let points = staircase(inside.copied(), last);
        let points = points.into_iter().map(|point| scale.point(point));
        plot.draw_series(LineSeries::new(points, style))?;
    }
    Ok(())
}

/// Draws a dashed line at the memory that was never freed, with its label.
fn leak<DB: DrawingBackend>(
    chart: &Chart,
    scale: &Scale,
    plot: &mut Plot<'_, DB>,
    text: f64,
) -> Drawn<DB> {
    let Some(leaked) = chart.leaked else {
        return Ok(());
    };
    let (first, last) = chart.span();
    let (left, right, y) = (scale.x(first), scale.right, scale.y(leaked));
    let ends = [(left, y), (right, y)];
    plot.draw_series(DashedLineSeries::new(ends, 8, 5, LEAK.stroke_width(2)))?;
    // Away from the peak's label.
    let peak_is_left = chart
        .peak
        .is_some_and(|(time, _)| time <= (first + last) / 2.0);
    let (side, share) = if peak_is_left {
        (HPos::Right, 0.99)
    } else {
        (HPos::Left, 0.01)
    };
    let at = (left + (right - left) * share, y);
    let label = format!("never freed: {}", size(leaked as u64));
    label_at(plot, at, &label, LEAK, side, text)
}

/// Draws a dot at the highest point, with its label.
fn peak<DB: DrawingBackend>(
    chart: &Chart,
    scale: &Scale,
    plot: &mut Plot<'_, DB>,
    text: f64,
) -> Drawn<DB> {
    let Some((time, bytes)) = chart.peak.filter(|(_, bytes)| *bytes > 0.0) else {
        return Ok(());
    };
    let at = scale.point((time, bytes));
    plot.draw_series([Circle::new(at, (text / 3.0) as i32, PEAK.filled())])?;
    let (when, unit) = (at.0, scale.second_name);
    let label = format!("peak {} at {when:.3} {unit}", size(bytes as u64));
    // On whichever side there is room.
    let (first, last) = chart.span();
    let side = if time > (first + last) / 2.0 {
        HPos::Right
    } else {
        HPos::Left
    };
    label_at(plot, at, &label, PEAK, side, text)
}

/// Writes `label` just above `at`.
fn label_at<DB: DrawingBackend>(
    plot: &mut Plot<'_, DB>,
    at: (f64, f64),
    label: &str,
    colour: RGBColor,
    side: HPos,
    text: f64,
) -> Drawn<DB> {
    let style = TextStyle::from((FONT, text).into_font()).color(&colour);
    let style = style.pos(Pos::new(side, VPos::Bottom));
    let above = (0, -(text / 2.0) as i32);
    // Lines may pass behind it.
    let (width, height) = plot.plotting_area().estimate_text_size(label, &style)?;
    let (width, height) = (width.cast_signed(), height.cast_signed());
    let left = match side {
        HPos::Left => 0,
        HPos::Center => -width / 2,
        HPos::Right => -width,
    };
    let corners = [
        (left - 2, above.1 - height),
        (left + width + 2, above.1 + 2),
    ];
    let ground = Rectangle::new(corners, WHITE.mix(0.8).filled());
    let label = EmptyElement::at(at) + ground + Text::new(label.to_owned(), above, style);
    plot.draw_series(std::iter::once(label)).map(|_| ())
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
