//! Metrics in the text formats of `OpenMetrics` and Prometheus.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType as EncodedType;
use prometheus_client::registry::{Registry, Unit};

use super::{Family, Labels, Metric, MetricType, MetricUnit, MetricValue};

/// Content type of `OpenMetrics` 1.0.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of [`prometheus`].
pub const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The suffix of counters, which the encoder adds.
const TOTAL: &str = "_total";

/// `families` in the text format of `OpenMetrics` 1.0, each with further samples, which [`samples`] has made.
///
/// # Errors
/// Returns the encoder's error; none is expected, as it writes to memory.
pub(super) fn document(families: Vec<Family>, further: &[Vec<&str>]) -> Result<String, fmt::Error> {
    let length: usize = further.iter().flatten().map(|samples| samples.len()).sum();
    let mut text = String::with_capacity(length + (length >> 3) + (64 << 10));
    for (family, further) in families.into_iter().zip(further) {
        if !family.series.is_empty() || !further.is_empty() {
            encode_registry(&mut text, &registry(family))?;
            text.extend(further.iter().copied());
        }
    }
    encode_eof(&mut text)?;
    Ok(text)
}

/// The samples of `series`, without a description of the metric.
///
/// # Errors
/// Returns the encoder's error; none is expected, as it writes to memory.
pub(super) fn samples(
    metric: Metric,
    series: BTreeMap<Labels, MetricValue>,
) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode_registry(&mut text, &registry(Family { metric, series }))?;
    let lines = text.split_inclusive('\n');
    Ok(lines.filter(|line| !line.starts_with('#')).collect())
}

fn registry(family: Family) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(OneFamily(family)));
    registry
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
            let suffix = if kind == "counter" { TOTAL } else { "" };
            let meaning = help.splitn(4, ' ').nth(3).unwrap_or("\n");
            text += &format!("# HELP {name}{suffix} {meaning}# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            text += line;
        }
    }
    text
}

#[derive(Debug)]
struct OneFamily(Family);

impl Collector for OneFamily {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let family = &self.0;
        let described = family.metric.description();
        let (name, unit) = parts(described.name, described.unit);
        let kind = match described.kind {
            MetricType::Counter => EncodedType::Counter,
            MetricType::Gauge => EncodedType::Gauge,
        };
        let metric = encoder.encode_descriptor(name, described.help, unit.as_ref(), kind)?;
        series(metric, family, described.kind)
    }
}

/// The name without the parts that the encoder adds.
fn parts(name: &str, unit: Option<MetricUnit>) -> (&str, Option<Unit>) {
    let name = name.strip_suffix(TOTAL).unwrap_or(name);
    let Some(unit) = unit else {
        return (name, None);
    };
    let name = name.strip_suffix(unit.name()).unwrap_or(name);
    let unit = match unit {
        MetricUnit::Bytes => Unit::Bytes,
        MetricUnit::Seconds => Unit::Seconds,
    };
    (name.trim_end_matches('_'), Some(unit))
}

fn series(mut metric: MetricEncoder<'_>, family: &Family, kind: MetricType) -> fmt::Result {
    for (labels, value) in &family.series {
        let labels: &Labels = labels;
        match labels.is_empty() {
            true => sample(&mut metric, kind, *value)?,
            false => sample(&mut metric.encode_family(labels)?, kind, *value)?,
        }
    }
    Ok(())
}

fn sample(metric: &mut MetricEncoder<'_>, kind: MetricType, value: MetricValue) -> fmt::Result {
    match (kind, value) {
        (MetricType::Counter, MetricValue::Integer(value)) => {
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (MetricType::Counter, MetricValue::Float(value)) => {
            metric.encode_counter::<NoLabelSet, _, f64>(&value, None)
        }
        (MetricType::Gauge, MetricValue::Integer(value)) => metric.encode_gauge(&value),
        (MetricType::Gauge, MetricValue::Float(value)) => metric.encode_gauge(&value),
    }
}
