//! Labels in the picture: at what they name, and where they hide nothing.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Chart;
use super::draw::{Drawn, FONT, LEAK, LINES, PEAK, Plot, Scale, course, outline};
use gpuprobe_model::text::{printable, size};

type Point = (i32, i32);

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rect {
    left: i32,
    top: i32,
    right: i32,
    bottom: i32,
}

impl Rect {
    fn at(left: i32, top: i32, (width, height): Point) -> Self {
        Self {
            left,
            top,
            right: left + width,
            bottom: top + height,
        }
    }

    fn meets(&self, other: &Self) -> bool {
        self.left <= other.right
            && other.left <= self.right
            && self.top <= other.bottom
            && other.top <= self.bottom
    }
}

/// The part of the height that is left free above everything, for the label of the peak.
pub(super) fn headroom(height: f64, text: f64) -> f64 {
    (text * 2.2 / height.max(1.0)).clamp(0.1, 0.5)
}

/// Where there is room.
struct LabelSpace {
    width: i32,
    height: i32,
    /// Between a label and what it names.
    gap: i32,
    /// Lines that are seen, and labels.
    taken: Vec<Rect>,
}

impl LabelSpace {
    /// Keeps labels away from the line through `points`, whose parts are level or upright.
    fn keep_free(&mut self, points: &[Point]) {
        let parts = points.windows(2).map(|pair| Rect {
            left: pair[0].0.min(pair[1].0),
            right: pair[0].0.max(pair[1].0),
            top: pair[0].1.min(pair[1].1),
            bottom: pair[0].1.max(pair[1].1),
        });
        self.taken.extend(parts);
    }

    fn is_inside(&self, rect: &Rect) -> bool {
        rect.left >= 0 && rect.top >= 0 && rect.right <= self.width && rect.bottom <= self.height
    }

    /// The first of the places that is free, or else the first that is inside.
    fn place(&mut self, places: &[Rect]) -> Option<Rect> {
        let is_free = |rect: &&Rect| !self.taken.iter().any(|taken| rect.meets(taken));
        let mut inside = places.iter().filter(|rect| self.is_inside(rect));
        let first = inside.clone().next();
        let place = inside.find(is_free).or(first).copied()?;
        self.taken.push(place);
        Some(place)
    }

    /// Places above a point, the nearest first.
    fn above(&self, (x, y): Point, size: Point) -> Vec<Rect> {
        let (width, height) = size;
        let mut sides = [x, x - width, x - width / 2];
        if x > self.width / 2 {
            sides.swap(0, 1);
        }
        let most = (y - self.gap - height).max(0);
        let tops = (0..=most).rev().step_by(2);
        let tops = tops.chain(std::iter::once(0));
        tops.flat_map(|top| sides.map(|left| Rect::at(left, top, size)))
            .collect()
    }

    /// Places just above and below a line, the end of it first.
    fn along(&self, points: &[Point], size: Point) -> Vec<Rect> {
        const PLACES: i32 = 24;
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return Vec::new();
        };
        let (width, height) = size;
        let room = last.0 - first.0 - width;
        let lefts = (0..=PLACES).map(|n| first.0 + self.gap.min(room) + room * n / PLACES);
        let mut places = Vec::new();
        for left in lefts.rev() {
            let right = left + width;
            let over = points.windows(2).filter(|pair| {
                pair[0].0.min(pair[1].0) <= right && left <= pair[0].0.max(pair[1].0)
            });
            let heights: Vec<_> = over.flatten().map(|point| point.1).collect();
            let (Some(top), Some(bottom)) = (heights.iter().min(), heights.iter().max()) else {
                continue;
            };
            let left = left.min(self.width - width - 1);
            places.push(Rect::at(left, top - self.gap - height, size));
            places.push(Rect::at(left, bottom + self.gap, size));
        }
        places
    }
}

/// A label and where it is.
struct PlotLabel {
    text: String,
    colour: RGBColor,
    rect: Rect,
    /// A point that it is joined with by a line.
    joined: Option<Point>,
}

/// Lines in pixels: edges of areas, lines, the line of what was never freed.
struct PixelLines {
    edges: Vec<Vec<Point>>,
    lines: Vec<Vec<Point>>,
    leak: Option<Vec<Point>>,
    peak: Option<Point>,
}

impl PixelLines {
    /// `pixel` says where a point of the axes is.
    fn of(chart: &Chart, scale: &Scale, pixel: impl Fn(&(f64, f64)) -> Point) -> Self {
        let pixels = |points: Vec<(f64, f64)>| -> Vec<Point> {
            let points = points.into_iter().map(|point| scale.point(point));
            points.map(|point| pixel(&point)).collect()
        };
        let edges = (0..chart.bands.len()).map(|index| pixels(outline(chart, index)));
        let lines = chart.lines.iter().map(|line| pixels(course(chart, line)));
        Self {
            edges: edges.collect(),
            lines: lines.collect(),
            leak: scale
                .leak(chart)
                .map(|ends| ends.iter().map(&pixel).collect()),
            peak: chart.highest_point().map(|peak| pixel(&scale.point(peak))),
        }
    }
}

/// Draws all labels.
pub(super) fn draw<DB: DrawingBackend>(
    chart: &Chart,
    scale: &Scale,
    plot: &Plot<'_, DB>,
    text: f64,
) -> Drawn<DB> {
    let area = plot.plotting_area();
    let (across, down) = area.get_pixel_range();
    let pixel = |point: &(f64, f64)| {
        let (x, y) = area.map_coordinate(point);
        (x - across.start, y - down.start)
    };
    let lines = PixelLines::of(chart, scale, pixel);
    let style = TextStyle::from((FONT, text).into_font());
    let measure = |label: &str| {
        let (width, height) = area.estimate_text_size(label, &style).unwrap_or_default();
        // The font's own lines are higher than its letters.
        let height = height.max(text as u32);
        (width.cast_signed() + 4, height.cast_signed())
    };
    let room = LabelSpace {
        width: across.end - across.start,
        height: down.end - down.start,
        gap: (text / 2.0) as i32,
        taken: Vec::new(),
    };
    let area = area.strip_coord_spec();
    for label in placed(chart, scale, &lines, room, measure) {
        if let Some((x, y)) = label.joined {
            let way = vec![(x, y), (x, label.rect.bottom)];
            area.draw(&PathElement::new(way, label.colour.stroke_width(1)))?;
        }
        let Rect {
            left,
            top,
            right,
            bottom,
        } = label.rect;
        // Edges of areas may pass behind it where there is no other place.
        let ground = Rectangle::new([(left, top), (right, bottom)], WHITE.mix(0.8).filled());
        area.draw(&ground)?;
        let style = style
            .color(&label.colour)
            .pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(
            label.text,
            (left + 2, (top + bottom) / 2),
            style,
        ))?;
    }
    Ok(())
}

/// Finds a place for each label, the most telling first.
fn placed(
    chart: &Chart,
    scale: &Scale,
    lines: &PixelLines,
    mut room: LabelSpace,
    measure: impl Fn(&str) -> Point,
) -> Vec<PlotLabel> {
    let all = lines.edges.iter().chain(&lines.lines).chain(&lines.leak);
    all.for_each(|points| room.keep_free(points));
    let mut labels = Vec::new();
    if let (Some((x, y)), Some((time, bytes))) = (lines.peak, chart.highest_point()) {
        let (when, unit) = (scale.point((time, bytes)).0, scale.second_name);
        let text = format!("peak {} at {when:.3} {unit}", size(bytes as u64));
        let gap = room.gap;
        let places = room.above((x, y), measure(&text));
        let found = room.place(&places);
        // The dot is no place for other labels.
        room.taken
            .push(Rect::at(x - gap, y - gap, (2 * gap, 2 * gap)));
        labels.extend(found.map(|rect| PlotLabel {
            text,
            colour: PEAK,
            rect,
            joined: (y - rect.bottom > 2 * gap).then_some((x, y)),
        }));
    }
    let mut along = |text: String, colour, points: &[Point]| {
        let places = room.along(points, measure(&text));
        labels.extend(room.place(&places).map(|rect| PlotLabel {
            text,
            colour,
            rect,
            joined: None,
        }));
    };
    for (index, (line, points)) in chart.lines.iter().zip(&lines.lines).enumerate() {
        along(printable(&line.label), LINES[index % LINES.len()], points);
    }
    if let (Some(leaked), Some(points)) = (chart.leaked, &lines.leak) {
        along(
            format!("never freed: {}", size(leaked as u64)),
            LEAK,
            points,
        );
    }
    labels
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WIDTH: i32 = 800;
    const HEIGHT: i32 = 400;
    const GAP: i32 = 6;

    /// A line of level and upright parts, below the room that is left free.
    fn line() -> impl Strategy<Value = Vec<Point>> {
        let top = (f64::from(HEIGHT) * headroom(f64::from(HEIGHT), 12.0)) as i32;
        proptest::collection::vec(top..HEIGHT, 1..60).prop_map(|heights| {
            let count = i32::try_from(heights.len()).unwrap_or(1);
            let steps = heights.iter().zip(0..);
            let steps =
                steps.flat_map(|(&y, n)| [(WIDTH * n / count, y), (WIDTH * (n + 1) / count, y)]);
            steps.collect()
        })
    }

    proptest! {
        #[test]
        fn the_label_of_the_peak_covers_no_line(
            lines in proptest::collection::vec(line(), 1..6),
            at in 0..60usize,
            width in 20..300i32,
        ) {
            let mut room = LabelSpace { width: WIDTH, height: HEIGHT, gap: GAP, taken: Vec::new() };
            lines.iter().for_each(|points| room.keep_free(points));
            let lines_taken = room.taken.clone();
            let peak = lines[0][at % lines[0].len()];
            let places = room.above(peak, (width, 14));
            let label = room.place(&places);
            let label = label.ok_or_else(|| TestCaseError::fail("no place"))?;
            prop_assert!(!lines_taken.iter().any(|line| line.meets(&label)), "{label:?}");
            prop_assert!(room.is_inside(&label));
            // Another label does not cover the first.
            let places = room.along(&lines[0], (60, 14));
            let is_free = |rect: &Rect| !room.taken.iter().any(|taken| taken.meets(rect));
            let has_place = places.iter().any(|rect| room.is_inside(rect) && is_free(rect));
            let other = room.place(&places);
            prop_assert!(!has_place || other.is_some_and(|other| !other.meets(&label)));
        }
    }
}
