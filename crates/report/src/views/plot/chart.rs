//! The chart to draw, as plain values.

use super::steps::Steps;

/// An area of the stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Label in the legend.
    pub label: String,
    /// Bytes at each of [`Chart::times`].
    pub values: Vec<f64>,
}

/// A line above the areas.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartLine {
    /// Label in the legend.
    pub label: String,
    /// Points: seconds and bytes.
    pub points: Vec<(f64, f64)>,
}

/// A chart of memory over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// Title above the chart; `None` for no title.
    pub title: Option<String>,
    /// Seconds from the first event.
    pub times: Vec<f64>,
    /// Stacked areas, the lowest first.
    pub bands: Vec<Band>,
    /// Lines of other origin.
    pub lines: Vec<ChartLine>,
    /// Seconds and bytes of the highest point.
    pub peak: Option<(f64, f64)>,
    /// Bytes that were never freed.
    pub leaked: Option<f64>,
}

impl Chart {
    /// The chart of `steps`, without the areas in which nothing ever is.
    pub(super) fn of(steps: &Steps, labels: &[String]) -> Self {
        let times = steps
            .points()
            .map(|point| point.time_ns as f64 / 1e9)
            .collect();
        let band = |(index, label): (usize, &String)| {
            let value = |values: &Vec<u64>| values.get(index).map_or(0.0, |&bytes| bytes as f64);
            let values: Vec<f64> = steps.points().map(|point| value(&point.values)).collect();
            let is_used = values.iter().any(|&value| value > 0.0);
            is_used.then(|| Band {
                label: label.clone(),
                values,
            })
        };
        let mut bands: Vec<_> = labels.iter().enumerate().filter_map(band).collect();
        // What holds most lies at the bottom, where it is read best.
        let highest = |band: &Band| band.values.iter().copied().fold(0.0, f64::max);
        bands.sort_by(|a, b| highest(b).total_cmp(&highest(a)));
        Self {
            times,
            bands,
            ..Self::default()
        }
    }

    /// The first and last time of the areas.
    pub(super) fn span(&self) -> (f64, f64) {
        let first = self.times.first().copied().unwrap_or(0.0);
        let last = self.times.last().copied().unwrap_or(1.0);
        // Marks of the axis need room between them, also for numbers as large as this.
        let least = (first.abs() * 1e-9).max(1e-6);
        (first, last.max(first + least))
    }

    /// Whether the lines are, at least in part, of the time of the areas.
    pub(super) fn overlaps_lines(&self) -> bool {
        let (first, last) = self.span();
        let mut points = self.lines.iter().flat_map(|line| &line.points);
        points.any(|(time, _)| (first..=last).contains(time))
    }

    /// Where most was allocated, if anything was.
    pub(super) fn highest_point(&self) -> Option<(f64, f64)> {
        self.peak.filter(|(_, bytes)| *bytes > 0.0)
    }

    /// The highest value of anything that is drawn.
    pub(super) fn highest(&self) -> f64 {
        let totals = (0..self.times.len()).map(|index| {
            self.bands
                .iter()
                .filter_map(|band| band.values.get(index))
                .sum::<f64>()
        });
        let lines = self
            .lines
            .iter()
            .flat_map(|line| &line.points)
            .map(|(_, bytes)| *bytes);
        totals.chain(lines).chain(self.leaked).fold(1.0, f64::max)
    }
}
