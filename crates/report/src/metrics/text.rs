//! Metrics in the text formats of `OpenMetrics` and Prometheus.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType as EncodedType;
use prometheus_client::registry::{Registry, Unit};

use super::{Family, Labels, MetricType, MetricUnit, MetricValue};

/// Content type of [`openmetrics`].
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of [`prometheus`].
pub const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The suffix of counters, which the encoder adds.
const TOTAL: &str = "_total";

/// `families` in the text format of `OpenMetrics` 1.0.
///
/// # Errors
/// Returns the encoder's error; none is expected, as it writes to memory.
pub fn openmetrics(families: Vec<Family>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// A text of [`openmetrics`] in the older text format of Prometheus, 0.0.4, in which the name of a counter's
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
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in self.0.iter().filter(|family| !family.series.is_empty()) {
            let described = family.metric.description();
            let (name, unit) = parts(described.name, described.unit);
            let kind = match described.kind {
                MetricType::Counter => EncodedType::Counter,
                MetricType::Gauge => EncodedType::Gauge,
            };
            let metric = encoder.encode_descriptor(name, described.help, unit.as_ref(), kind)?;
            series(metric, family, described.kind)?;
        }
        Ok(())
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
