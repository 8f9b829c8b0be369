//! Metrics that are pushed by OTLP, as a server gets them, against the totals of the workload.

use std::collections::{HashMap, HashSet};
use std::io::Read;

use flate2::read::GzDecoder;
use gpuprobe_report::metrics::otlp::proto::{
    CUMULATIVE, DataPoint, ExportRequest, KeyValue, MetricData, NO_RECORDED_VALUE, PointValue,
};
use prost::Message;

use crate::harness::receiver::{Received, Receiver};
use crate::harness::served::Served;
use crate::harness::{Backend, Workload};

fn request(received: &Received) -> ExportRequest {
    let mut bytes = Vec::new();
    GzDecoder::new(&received.body[..])
        .read_to_end(&mut bytes)
        .unwrap();
    ExportRequest::decode(&bytes[..]).unwrap()
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|one| one.key == key)?;
    found.value.as_ref()?.string_value.as_deref()
}

/// Values of a request by metric.
fn points(request: &ExportRequest) -> HashMap<&str, &[DataPoint]> {
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let points = metrics.iter().map(|metric| match &metric.data {
        Some(MetricData::Sum(sum)) => {
            assert!(sum.is_monotonic && sum.aggregation_temporality == CUMULATIVE);
            (&*metric.name, &sum.data_points[..])
        }
        Some(MetricData::Gauge(gauge)) => (&*metric.name, &gauge.data_points[..]),
        None => (&*metric.name, &[][..]),
    });
    points.collect()
}

/// Sum of the values of a metric.
fn sum(request: &ExportRequest, metric: &str) -> u64 {
    let points = points(request).get(metric).copied().unwrap_or_default();
    // Marks at the end of series have none.
    let points = points.iter().filter(|point| point.flags == 0);
    let values = points.map(|point| match point.value {
        Some(PointValue::AsInt(value)) => u64::try_from(value).unwrap(),
        other => panic!("{metric}: {other:?}"),
    });
    values.sum()
}

#[test]
fn root_pushed_metrics_equal_the_totals() {
    let receiver = Receiver::start(200);
    let mut workload = Workload::start(Backend::Driver);
    // It goes on as long as one of its targets does.
    let lasting = Workload::start(Backend::Driver);
    let pid = workload.pid.to_string();
    let url = format!("http://{}", receiver.address);
    let _served = Served::start(&[
        "--pid",
        &pid,
        "--pid",
        &lasting.pid.to_string(),
        "--otlp",
        &url,
        "--push-interval=200ms",
        "--push-host=node-1",
    ]);
    workload.play("alloc 1048576 3; managed 65536; launch 0 100; copy h2d 1048576 5; free 0");
    let truth = workload.status();
    let all = receiver.wait_for("all of it", |all| {
        let last = request(all.last()?);
        let is_all = sum(&last, "gpuprobe_node_kernel_launches_total") == truth.launches
            && sum(&last, "gpuprobe_node_copies_total") == truth.copies
            && sum(&last, "gpuprobe_free_calls_total") == truth.frees
            && sum(&last, "gpuprobe_gpu_memory_bytes") == truth.bytes;
        is_all.then(|| all.to_vec())
    });
    let received = all.last().unwrap();
    assert!(received.line.starts_with("POST /v1/metrics "));
    for header in [
        "content-type: application/x-protobuf",
        "content-encoding: gzip",
    ] {
        assert!(received.headers.iter().any(|line| line == header));
    }
    let last = request(received);
    assert_eq!(sum(&last, "gpuprobe_alloc_calls_total"), truth.allocs);
    assert_eq!(sum(&last, "gpuprobe_free_calls_total"), truth.frees);
    assert_eq!(sum(&last, "gpuprobe_kernel_launches_total"), truth.launches);
    assert_eq!(sum(&last, "gpuprobe_copy_bytes_total"), 5 << 20);
    assert_eq!(sum(&last, "gpuprobe_lost_events_total"), 0);
    let resource = last.resource_metrics[0].resource.as_ref().unwrap();
    assert_eq!(value(&resource.attributes, "host.name"), Some("node-1"));
    let launches = points(&last)["gpuprobe_kernel_launches_total"];
    // A kernel whose name was not known yet has ended as one without a name.
    for point in launches.iter().filter(|point| point.value.is_some()) {
        assert_eq!(value(&point.attributes, "pid"), Some(&*pid));
        let start = point.start_time_unix_nano;
        assert!(start > 0 && start < point.time_unix_nano, "{point:?}");
    }
    // The process has ended: its counters go, those of the host stay.
    workload.done();
    let ended = receiver.wait_for("its end", |all| {
        let last = request(all.last()?);
        let is_gone = !points(&last).contains_key("gpuprobe_kernel_launches_total");
        let total = sum(&last, "gpuprobe_node_kernel_launches_total");
        (is_gone && total == truth.launches).then(|| all.to_vec())
    });
    // The server is told of the end of each series, and does not show the last values for minutes.
    let requests: Vec<_> = ended.iter().map(request).collect();
    for point in launches {
        let of_launches = requests.iter().filter_map(|request| {
            points(request)
                .get("gpuprobe_kernel_launches_total")
                .copied()
        });
        let same = of_launches
            .flatten()
            .filter(|one| one.attributes == point.attributes);
        let marks = same.filter(|one| one.flags == NO_RECORDED_VALUE && one.value.is_none());
        // Pushes in quick succession are of one document.
        let times: HashSet<_> = marks.map(|one| one.time_unix_nano).collect();
        assert_eq!(times.len(), 1, "{point:?}");
    }
}
