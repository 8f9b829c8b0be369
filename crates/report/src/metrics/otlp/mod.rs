//! Metrics as OTLP has them: the names of the text format, cumulative sums with their starts.

pub mod proto;

use std::collections::HashMap;

use prost::Message;

use super::{Family, Labels, Metric, MetricType, MetricUnit, MetricValue};
use proto::{
    AnyValue, CUMULATIVE, DataPoint, ExportRequest, GaugeData, KeyValue, MetricData, MetricMessage,
    PointValue, ResourceMessage, ResourceMetrics, Scope, ScopeMetrics, SumData,
};

/// Makes requests, one after another.
#[derive(Debug)]
pub struct OtlpMetrics {
    resource: ResourceMessage,
    /// Since when each sum counts, nanoseconds since 1970.
    starts: HashMap<(Metric, Labels), u64>,
    /// Time of the last request; of the start before the first.
    last_ns: u64,
}

impl OtlpMetrics {
    /// Requests about this host, on which counting began at `start_ns`, nanoseconds since 1970.
    pub fn new(host: &str, start_ns: u64) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let attributes = [
            ("service.name", "gpuprobe"),
            ("service.version", version),
            // Hosts have one gpuprobe each.
            ("service.instance.id", host),
            ("host.name", host),
        ];
        let attributes = attributes.into_iter();
        Self {
            resource: ResourceMessage {
                attributes: attributes
                    .map(|(key, value)| attribute(key, value))
                    .collect(),
            },
            starts: HashMap::new(),
            last_ns: start_ns,
        }
    }

    /// The request with `families`, as of `now_ns`, nanoseconds since 1970.
    pub fn request(&mut self, families: &[Family], now_ns: u64) -> Vec<u8> {
        let with_series = families.iter().filter(|family| !family.series.is_empty());
        let metrics = with_series.map(|family| self.metric(family, now_ns));
        let metrics = metrics.collect();
        let is_there = |key: &(Metric, Labels)| {
            let family = families.get(key.0 as usize);
            family.is_some_and(|family| family.series.contains_key(&key.1))
        };
        self.starts.retain(|key, _| is_there(key));
        self.last_ns = now_ns;
        let scope = Scope {
            name: "gpuprobe".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let request = ExportRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope),
                    metrics,
                }],
            }],
        };
        request.encode_to_vec()
    }

    fn metric(&mut self, family: &Family, now_ns: u64) -> MetricMessage {
        let described = family.metric.description();
        let is_sum = described.kind == MetricType::Counter;
        let points = family.series.iter().map(|(labels, value)| DataPoint {
            start_time_unix_nano: match is_sum {
                true => self.start_of(family.metric, labels),
                false => 0,
            },
            time_unix_nano: now_ns,
            attributes: labels
                .iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(key, value)| attribute(key, value))
                .collect(),
            value: Some(match *value {
                MetricValue::Integer(value) => {
                    PointValue::AsInt(i64::try_from(value).unwrap_or(i64::MAX))
                }
                MetricValue::Float(value) => PointValue::AsDouble(value),
            }),
        });
        let data_points = points.collect();
        MetricMessage {
            name: described.name.to_owned(),
            description: described.help.to_owned(),
            unit: described
                .unit
                .map_or_else(String::new, |unit| MetricUnit::ucum(unit).to_owned()),
            data: Some(match is_sum {
                true => MetricData::Sum(SumData {
                    data_points,
                    aggregation_temporality: CUMULATIVE,
                    is_monotonic: true,
                }),
                false => MetricData::Gauge(GaugeData { data_points }),
            }),
        }
    }

    /// Since when a sum counts: it was 0 in the last request if that did not have it.
    fn start_of(&mut self, metric: Metric, labels: &Labels) -> u64 {
        let last_ns = self.last_ns;
        let start = self.starts.entry((metric, labels.clone()));
        *start.or_insert(last_ns)
    }
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            string_value: Some(value.to_owned()),
        }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn families(launches: &[(&str, u64)]) -> Vec<Family> {
        let family = |metric: Metric| {
            let series: BTreeMap<_, _> = match metric {
                Metric::Launches => launches
                    .iter()
                    .map(|(pid, value)| {
                        let labels =
                            vec![("pid", (*pid).to_owned()), ("container_id", String::new())];
                        (labels, MetricValue::Integer(*value))
                    })
                    .collect(),
                Metric::GpuUsed => [(Labels::new(), MetricValue::Float(0.5))].into(),
                _ => BTreeMap::new(),
            };
            Family { metric, series }
        };
        Metric::ALL.into_iter().map(family).collect()
    }

    fn starts(request: &[u8]) -> Vec<u64> {
        let request = ExportRequest::decode(request).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let sums = metrics.iter().filter_map(|metric| match &metric.data {
            Some(MetricData::Sum(sum)) => Some(sum),
            _ => None,
        });
        let points = sums.flat_map(|sum| &sum.data_points);
        points.map(|point| point.start_time_unix_nano).collect()
    }

    #[test]
    fn sums_have_starts_that_stay() {
        let mut metrics = OtlpMetrics::new("node", 100);
        assert_eq!(starts(&metrics.request(&families(&[("1", 5)]), 200)), [100]);
        let two = families(&[("1", 6), ("2", 1)]);
        assert_eq!(starts(&metrics.request(&two, 300)), [100, 200]);
        assert_eq!(starts(&metrics.request(&families(&[("2", 2)]), 400)), [200]);
        // Another process with the id of one that was gone.
        let again = families(&[("1", 1), ("2", 2)]);
        assert_eq!(starts(&metrics.request(&again, 500)), [400, 200]);
    }

    #[test]
    fn the_request_has_names_units_and_labels() {
        let request = OtlpMetrics::new("node", 0).request(&families(&[("1", 5)]), 7);
        let request = ExportRequest::decode(&request[..]).unwrap();
        let resource = &request.resource_metrics[0];
        let attributes = &resource.resource.as_ref().unwrap().attributes;
        assert!(attributes.contains(&attribute("host.name", "node")));
        let [used, launches] = &resource.scope_metrics[0].metrics[..] else {
            unreachable!("{resource:?}");
        };
        assert_eq!(
            (&*used.name, &*used.unit),
            ("gpuprobe_gpu_used_bytes", "By")
        );
        let Some(MetricData::Gauge(gauge)) = &used.data else {
            unreachable!("{used:?}");
        };
        assert_eq!(gauge.data_points[0].value, Some(PointValue::AsDouble(0.5)));
        assert_eq!(launches.name, "gpuprobe_kernel_launches_total");
        let Some(MetricData::Sum(sum)) = &launches.data else {
            unreachable!("{launches:?}");
        };
        assert!(sum.is_monotonic && sum.aggregation_temporality == CUMULATIVE);
        let point = &sum.data_points[0];
        assert_eq!(point.attributes, [attribute("pid", "1")], "no empty ones");
        assert_eq!(
            (point.value, point.time_unix_nano),
            (Some(PointValue::AsInt(5)), 7)
        );
    }
}
