//! Metrics as OTLP has them: the names of the text format, cumulative sums with their starts.

pub mod proto;

use std::collections::{BTreeMap, HashMap};

use prost::Message;

use super::{Family, Labels, Metric, MetricType, MetricUnit, MetricValue};
use proto::{
    AnyValue, CUMULATIVE, DataPoint, ExportRequest, GaugeData, KeyValue, MetricData, MetricMessage,
    NO_RECORDED_VALUE, PointValue, ResourceMessage, ResourceMetrics, Scope, ScopeMetrics, SumData,
};

/// Makes requests, one after another.
#[derive(Debug)]
pub struct OtlpMetrics {
    resource: ResourceMessage,
    /// The series of the last request, and since when each sum counts, nanoseconds since 1970.
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
        let is_there = |key: &(Metric, Labels)| {
            let family = families.get(key.0 as usize);
            family.is_some_and(|family| family.series.contains_key(&key.1))
        };
        let mut ended: BTreeMap<Metric, Vec<Labels>> = BTreeMap::new();
        for ((metric, labels), _) in self.starts.extract_if(|key, _| !is_there(key)) {
            ended.entry(metric).or_default().push(labels);
        }
        let metrics = families.iter().filter_map(|family| {
            let ended = ended.remove(&family.metric).unwrap_or_default();
            let has_points = !(family.series.is_empty() && ended.is_empty());
            has_points.then(|| self.metric(family, &ended, now_ns))
        });
        let metrics = metrics.collect();
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

    /// A metric with the values of `family`, and marks at the end of series that it does not have any more.
    fn metric(&mut self, family: &Family, ended: &[Labels], now_ns: u64) -> MetricMessage {
        let described = family.metric.description();
        let is_sum = described.kind == MetricType::Counter;
        let point = |labels: &Labels| DataPoint {
            time_unix_nano: now_ns,
            attributes: labels
                .iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(key, value)| attribute(key, value))
                .collect(),
            ..DataPoint::default()
        };
        let points = family.series.iter().map(|(labels, value)| {
            let start_ns = self.start_of(family.metric, labels);
            DataPoint {
                start_time_unix_nano: if is_sum { start_ns } else { 0 },
                value: Some(match *value {
                    MetricValue::Integer(value) => {
                        PointValue::AsInt(i64::try_from(value).unwrap_or(i64::MAX))
                    }
                    MetricValue::Float(value) => PointValue::AsDouble(value),
                }),
                ..point(labels)
            }
        });
        let ends = ended.iter().map(|labels| DataPoint {
            flags: NO_RECORDED_VALUE,
            ..point(labels)
        });
        let points = points.chain(ends);
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
        let recorded = points.filter(|point| point.flags == 0);
        recorded.map(|point| point.start_time_unix_nano).collect()
    }

    /// Metrics and PIDs of the series that a request ends.
    fn ends(request: &[u8]) -> Vec<(String, usize)> {
        let request = ExportRequest::decode(request).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let points = metrics.iter().flat_map(|metric| match &metric.data {
            Some(
                MetricData::Sum(SumData { data_points, .. })
                | MetricData::Gauge(GaugeData { data_points }),
            ) => data_points
                .iter()
                .map(|point| (metric.name.clone(), point))
                .collect(),
            None => Vec::new(),
        });
        let ended = points.filter(|(_, point)| point.flags == NO_RECORDED_VALUE);
        let ended = ended.inspect(|(_, point)| assert_eq!(point.value, None));
        ended
            .map(|(name, point)| (name, point.attributes.len()))
            .collect()
    }

    #[test]
    fn the_end_of_a_series_is_sent_once() {
        let mut metrics = OtlpMetrics::new("node", 100);
        let launches = "gpuprobe_kernel_launches_total".to_owned();
        let used = "gpuprobe_gpu_used_bytes".to_owned();
        assert_eq!(
            ends(&metrics.request(&families(&[("1", 5), ("2", 5)]), 200)),
            []
        );
        let one = ends(&metrics.request(&families(&[("1", 5)]), 300));
        assert_eq!(one, [(launches.clone(), 1)]);
        assert_eq!(ends(&metrics.request(&families(&[("1", 5)]), 400)), []);
        let none: Vec<_> = Metric::ALL
            .into_iter()
            .map(|metric| Family {
                metric,
                series: BTreeMap::new(),
            })
            .collect();
        let all = ends(&metrics.request(&none, 500));
        assert_eq!(all, [(used, 0), (launches, 1)]);
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
