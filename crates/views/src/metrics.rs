//! Metrics in the text formats of `OpenMetrics` and Prometheus.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use gpuprobe_report::metrics::{Families, METRICS};

/// Content type of `OpenMetrics` 1.0.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of [`prometheus`].
pub const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All series in the text format of `OpenMetrics` 1.0.
///
/// # Errors
/// Returns the encoder's error; none is expected, as it writes to memory.
pub fn openmetrics(families: &Arc<Families>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(SeriesCollector(Arc::clone(families))));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct SeriesCollector(Arc<Families>);

impl Collector for SeriesCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (metric, help) in METRICS.lines().filter_map(|line| line.split_once(' ')) {
            let Some(series) = self.0.get(metric) else {
                continue;
            };
            let (name, kind) = match metric.strip_suffix("_total") {
                Some(name) => (name, MetricType::Counter),
                None => (metric, MetricType::Gauge),
            };
            // The encoder adds unit and `_total`.
            let (name, unit) = match name.rsplit_once('_') {
                Some((name, "bytes")) => (name, Some(Unit::Bytes)),
                Some((name, "seconds")) => (name, Some(Unit::Seconds)),
                _ => (name, None),
            };
            let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            let milli = matches!(unit, Some(Unit::Seconds)) || name.ends_with("_ratio");
            for (process, labels, value) in series {
                match process.is_empty() && labels.is_empty() {
                    true => sample(&mut family, kind, *value, milli)?,
                    false => {
                        let all = (process.as_slice(), labels.as_slice());
                        sample(&mut family.encode_family(&all)?, kind, *value, milli)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn sample(out: &mut MetricEncoder<'_>, kind: MetricType, value: u64, milli: bool) -> fmt::Result {
    let scaled = value as f64 / 1e3;
    match kind {
        MetricType::Counter if milli => out.encode_counter::<NoLabelSet, _, u64>(&scaled, None),
        MetricType::Counter => out.encode_counter::<NoLabelSet, _, u64>(&value, None),
        _ if milli => out.encode_gauge(&scaled),
        _ => out.encode_gauge(&value),
    }
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
            let suffix = if kind == "counter" { "_total" } else { "" };
            let meaning = help.splitn(4, ' ').nth(3).unwrap_or("\n");
            text += &format!("# HELP {name}{suffix} {meaning}# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            text += line;
        }
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn text_has_the_formats_of_openmetrics_and_prometheus() {
        let process = Arc::new(vec![
            ("pid", "7".to_owned()),
            ("comm", "a\"b\\c\nd".to_owned()),
        ]);
        let series = |labels, value| vec![(Arc::clone(&process), labels, value)];
        let host = |value| vec![(Arc::default(), vec![], value)];
        let families = Families::from([
            (
                "gpuprobe_gpu_memory_bytes",
                series(vec![("gpu", "3".to_owned())], 100),
            ),
            ("gpuprobe_copy_bytes_total", series(vec![], 11)),
            ("gpuprobe_alloc_calls_total", host(1)),
            ("process_cpu_seconds_total", host(1500)),
        ]);
        let text = openmetrics(&Arc::new(families)).unwrap();
        for line in [
            "# TYPE gpuprobe_gpu_memory_bytes gauge",
            "# UNIT gpuprobe_gpu_memory_bytes bytes",
            r#"gpuprobe_gpu_memory_bytes{pid="7",comm="a\"b\\c\nd",gpu="3"} 100"#,
            "# TYPE gpuprobe_copy_bytes counter",
            r#"gpuprobe_copy_bytes_total{pid="7",comm="a\"b\\c\nd"} 11"#,
            "gpuprobe_alloc_calls_total 1",
            "process_cpu_seconds_total 1.5",
            "# EOF",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        }
        let older = prometheus(&text);
        for line in [
            "# TYPE gpuprobe_copy_bytes_total counter",
            "# HELP gpuprobe_alloc_calls_total Successful allocating calls of all processes.",
            "# TYPE gpuprobe_gpu_memory_bytes gauge",
        ] {
            assert!(older.lines().any(|one| one == line), "{line} in {older}");
        }
        assert!(!older.contains("# UNIT") && !older.contains("# EOF"));
        let samples = |text: &str| {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(samples(&older), samples(&text));
    }
}
