//! `gpuprobe plot`: a chart of memory over time, as a picture.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

use gpuprobe_analysis::chart::Chart;
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::files;
use gpuprobe_report::label::shortened;
use gpuprobe_report::names;
use gpuprobe_report::words::columns_of;

use super::to_output;

/// The name of the embedded font; in SVG, of whichever the reader has.
const FONT: &str = "sans-serif";
static FONT_DATA: &[u8] = include_bytes!("DejaVuSans-latin.ttf");

/// Letters for which a line has room: they grow with the picture.
const LETTERS: usize = 80;
const LINES: usize = 8;
const PEAK: RGBColor = RGBColor(180, 0, 0);
const LEAK: RGBColor = RGBColor(120, 0, 120);
const INK: RGBColor = RGBColor(30, 30, 30);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// Colours of the HTML report (`web/src/theme.ts`).
const AREAS: [u32; LINES] = [
    0x44_77aa, 0x66_ccee, 0x22_8833, 0xcc_bb44, 0xee_6677, 0xaa_3377, 0xee_8866, 0xa3_abb5,
];

/// Colours of areas and, from [`LINES`] on, of lines, which people with any colour vision tell apart.
fn colour(number: usize) -> RGBAColor {
    let Some(rgb) = AREAS.get(number) else {
        return Palette99::pick(number).to_rgba();
    };
    let [_, r, g, b] = rgb.to_be_bytes();
    RGBColor(r, g, b).to_rgba()
}

/// Draws `chart` into the file `path`, in the format that its extension names; for `-`, as an SVG
/// on standard output.
///
/// # Errors
/// Returns an error if the extension is neither `svg` nor `png`, or the file cannot be written.
pub fn write(chart: &Chart, path: &Path, size: (u32, u32)) -> Result<()> {
    // A test draws with it.
    let _ = register_font(FONT, FontStyle::Normal, FONT_DATA);
    let is_svg = match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => true,
        Some("png") => false,
        _ if files::is_stdout(path) => true,
        _ => bail!("{}: pictures are .svg or .png", path.display()),
    };
    to_output(Some(path), false, |out| match is_svg {
        true => {
            let mut text = String::new();
            draw(chart, SVGBackend::with_string(&mut text, size))?;
            Ok(out.write_all(text.as_bytes())?)
        }
        false => {
            let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
            draw(chart, BitMapBackend::with_buffer(&mut pixels, size))?;
            let mut picture = Vec::new();
            let mut encoder = png::Encoder::new(&mut picture, size.0, size.1);
            encoder.set_color(png::ColorType::Rgb);
            let mut writer = encoder.write_header()?;
            writer.write_image_data(&pixels)?;
            writer.finish()?;
            Ok(out.write_all(&picture)?)
        }
    })
}

type Area<DB> = DrawingArea<DB, Shift>;
type Failed<DB> = DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>;

/// Draws into `backend`, and drops it, so that what it drew into is whole.
fn draw<DB: DrawingBackend>(chart: &Chart, backend: DB) -> Result<()> {
    drawn(chart, &backend.into_drawing_area()).map_err(|error| anyhow!("{error}"))
}

fn drawn<DB: DrawingBackend>(chart: &Chart, area: &Area<DB>) -> Result<(), Failed<DB>> {
    area.fill(&WHITE)?;
    let (width, height) = area.dim_in_pixel();
    // Everything grows with the picture.
    let unit = f64::from(width.min(height * 2)) / 100.0;
    let text = (unit * 1.7).max(9.0);
    let mut area = area.margin(unit as i32, unit as i32, unit as i32, unit as i32 * 2);
    if let Some(title) = &chart.title {
        let style = (FONT, text * 1.25).into_font().color(&INK);
        area = area.titled(&names::cut(&printable(title), LETTERS), style)?;
    }
    let scale = Scale::of(chart);
    let height = legend(chart, &scale, &area, text)?;
    let (_, area) = area.split_vertically(height);
    plot(chart, &scale, &area, text)
}

/// From seconds and bytes to the units of the axes.
struct Scale {
    time: (f64, &'static str),
    bytes: (f64, &'static str),
    /// Ends of the axes in their units.
    left: f64,
    right: f64,
    top: f64,
}

impl Scale {
    fn of(chart: &Chart) -> Self {
        let (first, last) = chart.span();
        let tops = chart.bands.last().into_iter().flat_map(|band| &band.tops);
        let lines = chart.lines.iter().flat_map(|line| &line.points);
        let all = tops.chain(lines.map(|(_, bytes)| bytes));
        let highest = all.chain(&chart.leaked).copied().fold(1.0, f64::max);
        let (time, bytes) = (unit(last - first, TIMES), unit(highest, SIZES));
        Self {
            time,
            bytes,
            left: first / time.0,
            // The last value must be seen, too.
            right: (last + (last - first) * 0.02) / time.0,
            top: highest * 1.05 / bytes.0,
        }
    }

    /// Values outside, as in a file that makes no sense, are moved to the edge: they are not for the
    /// drawing library.
    fn point(&self, (seconds, bytes): (f64, f64)) -> (f64, f64) {
        let x = (seconds / self.time.0).clamp(self.left, self.right);
        (x, (bytes / self.bytes.0).clamp(0.0, self.top))
    }
}

const TIMES: [(f64, &str); 3] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")];
const SIZES: [(f64, &str); 4] = [
    ((1 << 30) as f64, "GiB"),
    ((1 << 20) as f64, "MiB"),
    (1024.0, "KiB"),
    (1.0, "B"),
];

/// The first unit of which there is one or more, else the last.
fn unit<const N: usize>(most: f64, units: [(f64, &'static str); N]) -> (f64, &'static str) {
    let fitting = units.iter().find(|(one, _)| most >= *one);
    *fitting.unwrap_or(&units[N - 1])
}

/// Draws what stands for what above the chart, in as many rows as that takes; returns their height.
fn legend<DB: DrawingBackend>(
    chart: &Chart,
    scale: &Scale,
    area: &Area<DB>,
    text: f64,
) -> Result<i32, Failed<DB>> {
    let (width, height) = area.dim_in_pixel();
    // An area is named if it is a pixel high at some time.
    let least = scale.top * scale.bytes.0 / f64::from(height.max(1));
    let bands = chart.bands.iter().zip((0..).map(colour));
    let bands = bands.filter(|(band, _)| band.most >= least);
    let bands = bands.map(|(band, colour)| (band.label.clone(), colour, 2));
    let (first, last) = chart.span();
    let lines = chart.lines.iter().zip((LINES..).map(colour));
    let is_seen = |points: &[(f64, f64)]| points.iter().any(|(s, _)| (first..=last).contains(s));
    let lines = lines.filter(|(line, _)| is_seen(&line.points));
    let lines = lines.map(|(line, colour)| (line.label.clone(), colour, 6));
    let peak = chart.peak.filter(|(_, bytes)| *bytes > 0.0).map(|peak| {
        let (when, unit) = (scale.point(peak).0, scale.time.1);
        let label = format!("peak {} at {when:.3} {unit}", size(peak.1 as u64));
        (label, PEAK.to_rgba(), 3)
    });
    let leaked = chart.leaked.map(|bytes| {
        let label = format!("never freed: {}", size(bytes as u64));
        (label, LEAK.to_rgba(), 6)
    });
    let style = TextStyle::from((FONT, text).into_font()).color(&INK);
    let style = style.pos(Pos::new(HPos::Left, VPos::Center));
    let (mark, row) = ((text * 0.9) as i32, (text * 1.7) as i32);
    let (mut x, mut y) = (mark, row / 2);
    for (label, colour, flat) in bands.chain(lines).chain(peak).chain(leaked) {
        let label = printable(&label);
        let label = match columns_of(&label) > LETTERS {
            true => names::cut(&shortened(&label), LETTERS),
            false => label,
        };
        let wide = area.estimate_text_size(&label, &style)?.0.cast_signed() + 3 * mark;
        if x + wide > width.cast_signed() && x > mark {
            (x, y) = (mark, y + row);
        }
        let half = (mark / flat).max(1);
        let corners = [(x, y - half), (x + mark, y + half)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
        area.draw(&Text::new(label, (x + mark * 3 / 2, y), style.clone()))?;
        x += wide;
    }
    Ok(y + row / 2 + 4)
}

fn plot<DB: DrawingBackend>(
    chart: &Chart,
    scale: &Scale,
    area: &Area<DB>,
    text: f64,
) -> Result<(), Failed<DB>> {
    let mut plot: ChartContext<'_, DB, Cartesian2d<RangedCoordf64, RangedCoordf64>> =
        ChartBuilder::on(area)
            .x_label_area_size(text * 3.0)
            .y_label_area_size(text * 5.0)
            .build_cartesian_2d(scale.left..scale.right, 0.0..scale.top)?;
    let style = (FONT, text).into_font().color(&INK);
    plot.configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_desc(format!("time from the first event ({})", scale.time.1))
        .y_desc(format!("GPU memory ({})", scale.bytes.1))
        .label_style(style.clone())
        .axis_desc_style(style)
        .x_labels(10)
        .y_labels(8)
        .draw()?;
    let (first, last) = chart.span();
    // The highest areas first: the lower ones cover their own parts.
    let bands: Vec<_> = chart.bands.iter().zip((0..).map(colour)).collect();
    for (band, colour) in bands.into_iter().rev() {
        let points = chart.times.iter().copied().zip(band.tops.iter().copied());
        let points = staircase(points, last).into_iter();
        let points = points.map(|point| scale.point(point));
        let series = AreaSeries::new(points, 0.0, colour);
        plot.draw_series(series.border_style(colour.stroke_width(1)))?;
    }
    for (line, colour) in chart.lines.iter().zip((LINES..).map(colour)) {
        let points = line.points.iter().copied();
        let points = points.filter(|(time, _)| (first..=last).contains(time));
        let points = staircase(points, last).into_iter();
        let points = points.map(|point| scale.point(point));
        plot.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    if let Some(leaked) = chart.leaked {
        let (left, y) = scale.point((first, leaked));
        let ends = [(left, y), (scale.right, y)];
        plot.draw_series(DashedLineSeries::new(ends, 8, 5, LEAK.stroke_width(2)))?;
    }
    if let Some(peak) = chart.peak.filter(|(_, bytes)| *bytes > 0.0) {
        let dot = Circle::new(scale.point(peak), (text / 3.0) as i32, PEAK.filled());
        plot.draw_series([dot])?;
    }
    area.present()
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
        assert_eq!(unit(3e9, SIZES).1, "GiB");
        assert_eq!(unit(26_214_400.0, SIZES).1, "MiB");
        assert_eq!(unit(77.0, SIZES), (1.0, "B"));
        assert_eq!(unit(0.056, TIMES), (1e-3, "ms"));
    }

    #[test]
    fn values_stay_until_they_change() {
        let steps = staircase([(1.0, 5.0), (2.0, 7.0)].into_iter(), 3.0);
        assert_eq!(steps, [(1.0, 5.0), (2.0, 5.0), (2.0, 7.0), (3.0, 7.0)]);
    }
}
