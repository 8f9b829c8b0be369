//! A real Prometheus that metrics are pushed to by OTLP has what another one scrapes.

#![allow(clippy::print_stdout)] // scripts/check-otlp.sh shows the figures

use std::collections::BTreeMap;

use serde_json::Value;

use super::prometheus::work;
use crate::harness::prometheus::Prometheus;
use crate::harness::served::Served;
use crate::harness::{Backend, Truth, Workload, wait_for};

/// The series of gpuprobe, without the labels that servers add.
fn series(prometheus: &Prometheus) -> BTreeMap<String, String> {
    let all = prometheus.query("{__name__=~\"(gpuprobe|process)_.+\"}");
    let one = |series: &Value| {
        let mut labels = series["metric"].as_object().unwrap().clone();
        labels.remove("job").expect("a job");
        labels.remove("instance").expect("an instance");
        let name = labels["__name__"].as_str().unwrap();
        // Those of gpuprobe itself change with every request.
        let value = match name.starts_with("process_") {
            true => "changes",
            false => series["value"][1].as_str().unwrap(),
        };
        let value = value.to_owned();
        (serde_json::to_string(&labels).unwrap(), value)
    };
    all.iter().map(one).collect()
}

/// Waits until both servers have the same series with the same values.
fn assert_same(scraped: &Prometheus, pushed: &Prometheus) {
    let mut last = None;
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wait_for("the same series", || {
            let both = (series(scraped), series(pushed));
            let is_same = both.0 == both.1;
            last = Some(both);
            is_same.then_some(())
        });
    }));
    let (scraped, pushed) = last.expect("series");
    let only = |these: &BTreeMap<String, String>, those: &BTreeMap<String, String>| {
        let mut these = these.clone();
        these.retain(|labels, value| those.get(labels) != Some(value));
        these
    };
    let (by_scrape, by_otlp) = (only(&scraped, &pushed), only(&pushed, &scraped));
    assert!(
        found.is_ok(),
        "scraped: {by_scrape:#?}\npushed: {by_otlp:#?}"
    );
    println!("the same series: {}", pushed.len());
}

/// Waits until both servers have these sums, and everything else alike.
fn assert_sums(scraped: &Prometheus, pushed: &Prometheus, truth: &Truth) {
    scraped.assert_truth(truth);
    pushed.assert_truth(truth);
    println!("bytes: {}, launches: {}", truth.bytes, truth.launches);
    assert_same(scraped, pushed);
}

#[test]
#[ignore = "needs a Prometheus with an OTLP receiver: scripts/check-otlp.sh"]
fn root_pushed_sums_of_a_prometheus_are_those_of_a_scrape() {
    let program = std::env::var("GPUPROBE_OTLP_PROMETHEUS").expect("set by scripts/check-otlp.sh");
    let mut pushed = Prometheus::with(&program, "", &["--web.enable-otlp-receiver"]);
    let mut workloads: Vec<_> = (0..4).map(|_| Workload::start(Backend::Driver)).collect();
    let pids: Vec<_> = workloads.iter().map(|one| one.pid.to_string()).collect();
    let url = format!("http://{}/api/v1/otlp", pushed.address);
    let options = ["--otlp", &url, "--push-interval=1s", "--push-host=node-1"];
    let of_pids = pids.iter().flat_map(|pid| ["--pid", pid]);
    let arguments: Vec<_> = options.into_iter().chain(of_pids).collect();
    let served = Served::start(&arguments);
    let scraped = Prometheus::scraping(&program, served.address());
    let mut all = Truth::default();
    let mut before: Option<(Workload, Truth)> = None;
    for round in 1..=4 {
        if round == 4 {
            pushed.restart();
        }
        let mut workload = workloads.remove(0);
        work(&mut workload, round);
        let truth = workload.status();
        all = all + truth;
        // The one of the round before goes on so long.
        let of_both = before.as_ref().map_or(truth, |(_, other)| truth + *other);
        assert_sums(&scraped, &pushed, &of_both);
        if let Some((mut ended, _)) = before.take() {
            ended.done();
            assert_sums(&scraped, &pushed, &truth);
        }
        before = Some((workload, truth));
    }
    for (expression, value) in [
        ("sum(gpuprobe_alloc_calls_total)", all.allocs),
        ("sum(gpuprobe_free_calls_total)", all.frees),
        ("sum(gpuprobe_failed_calls_total)", all.failed),
        ("sum(gpuprobe_node_kernel_launches_total)", all.launches),
        ("sum(gpuprobe_node_copies_total)", all.copies + all.sets),
        ("sum(gpuprobe_lost_events_total)", 0),
        ("sum(resets(gpuprobe_node_kernel_launches_total[1h]))", 0),
        (
            "sum(max_over_time(gpuprobe_kernel_launches_total[1h]))",
            all.launches,
        ),
        ("count(up)", 1),
    ] {
        scraped.wait_for_value(expression, Some(value));
        // Nothing is scraped there.
        let value = Some(value).filter(|_| expression != "count(up)");
        pushed.wait_for_value(expression, value);
        println!("{expression}: {value:?}");
    }
    let source = "count by (job, instance) ({__name__=~\"(gpuprobe|process)_.+\"})";
    let sources = pushed.query(source);
    assert_eq!(sources.len(), 1, "{sources:?}");
    assert_eq!(sources[0]["metric"]["job"], "gpuprobe");
    assert_eq!(sources[0]["metric"]["instance"], "node-1");
}
