//! Metrics in the text formats of `OpenMetrics` and Prometheus.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::registry::Registry;

use super::rows::ProcessSeries;
use super::{Labels, Metric};

/// Content type of `OpenMetrics` 1.0.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of [`prometheus`].
pub const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MetricValue {
    /// A number of something.
    Integer(u64),
    /// A quantity.
    Float(f64),
}

/// A series: labels of its process, if it is of one, further labels, and the value.
pub(super) type Series = (Arc<Labels>, Arc<Labels>, MetricValue);

/// The series of each metric that has some.
#[derive(Debug, Default)]
pub(super) struct Families(pub(super) BTreeMap<Metric, Vec<Series>>);

impl Families {
    /// Adds the series of a process, or of the host.
    pub(super) fn add(&mut self, all: ProcessSeries) {
        for ((metric, labels), value) in all.values {
            let process = Arc::clone(&all.labels);
            let one = (process, labels, MetricValue::Integer(value));
            self.0.entry(metric).or_default().push(one);
        }
    }

    /// Adds a series of the host.
    pub(super) fn add_float(&mut self, metric: Metric, value: f64) {
        let none = Arc::<Labels>::default();
        let one = (Arc::clone(&none), none, MetricValue::Float(value));
        self.0.entry(metric).or_default().push(one);
    }

    /// All series in the text format of `OpenMetrics` 1.0.
    pub(super) fn text(self: &Arc<Self>) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Arc::clone(self)));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (metric, series) in &self.0 {
            let described = metric.description();
            let mut family = encoder.encode_descriptor(
                described.name,
                described.help,
                described.unit.as_ref(),
                described.kind,
            )?;
            for (process, labels, value) in series {
                let all = (process.as_slice(), labels.as_slice());
                match process.is_empty() && labels.is_empty() {
                    true => sample(&mut family, *metric, *value)?,
                    false => sample(&mut family.encode_family(&all)?, *metric, *value)?,
                }
            }
        }
        Ok(())
    }
}

fn sample(encoder: &mut MetricEncoder<'_>, metric: Metric, value: MetricValue) -> fmt::Result {
    match (metric.is_counter(), value) {
        (true, MetricValue::Integer(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (true, MetricValue::Float(value)) => {
            encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)
        }
        (false, MetricValue::Integer(value)) => encoder.encode_gauge(&value),
        (false, MetricValue::Float(value)) => encoder.encode_gauge(&value),
    }
}

/// A text of [`Metrics::text`](super::Metrics::text) in the older text format of Prometheus, 0.0.4, in which the name of a counter's
/// family has the suffix, too, and there are neither units nor an end.
pub fn prometheus(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.split_inclusive('\n') {
        if line.starts_with("# HELP ") {
            help = line;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.trim_end().split_once(' ').unwrap_or((rest, ""));
            let suffix = if kind == "counter" { "_total" } else { "" };
            let meaning = help.splitn(4, ' ').nth(3).unwrap_or("\n");
            text += &format!("# HELP {name}{suffix} {meaning}# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            text += line;
        }
    }
    text
}
