//! JSON reports.

use chrono::DateTime;
use serde_json::Value;

use super::{ONCE, reports_of};
use crate::harness::Report;
use crate::harness::report::list;

fn assert_keys(value: &Value, keys: &str) {
    let object = value.as_object().expect("an object");
    for key in keys.split(' ') {
        assert!(object.contains_key(key), "no {key} in {value}");
    }
}

#[test]
fn root_json_has_the_documented_keys() {
    let (pid, replies, text) = reports_of("json", "50ms", &[], &["alloc 4096", "sleep 1"]);
    assert!(text.ends_with('\n'));
    let reports: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert!(reports.len() >= 3, "{} reports", reports.len());
    for (number, report) in reports.iter().enumerate() {
        assert_keys(report, "schema time final lost memleak");
        assert_eq!(report["schema"], 2);
        DateTime::parse_from_rfc3339(report["time"].as_str().unwrap()).unwrap();
        assert_eq!(report["final"], number == reports.len() - 1);
        assert!(report["lost"]["memory"].is_u64());
        assert_keys(
            &report["memleak"],
            "alloc_calls free_calls failed_calls unknown_frees live_bytes live_allocations \
             peak_bytes calls processes",
        );
    }
    let last = reports.last().unwrap();
    let process = &last["memleak"]["processes"][0];
    assert_keys(
        process,
        "pid uid comm exited live_bytes live_allocations peak_bytes threads",
    );
    assert_eq!(process["pid"], pid);
    let thread = &process["threads"][0];
    assert_keys(thread, "tid comm live_bytes live_allocations allocations");
    let allocation = &list(thread, "allocations")[0];
    assert_keys(allocation, "address bytes device kind api time");
    assert_eq!(allocation["address"], *replies[0]);
    assert_eq!(allocation["device"], 0);
    let made = DateTime::parse_from_rfc3339(allocation["time"].as_str().unwrap()).unwrap();
    let age = chrono::Local::now()
        .signed_duration_since(made)
        .num_seconds();
    assert!((0..60).contains(&age), "made {age} s ago");
}

#[test]
fn root_top_limits_json() {
    let (_, _, text) = reports_of(
        "json",
        ONCE,
        &["--top", "2"],
        &["alloc 512 5", "alloc 8192", "alloc 4096"],
    );
    let report = Report::parse(text.trim_end());
    let thread = &report["memleak"]["processes"][0]["threads"][0];
    let sizes: Vec<_> = list(thread, "allocations")
        .iter()
        .map(|a| &a["bytes"])
        .collect();
    assert_eq!(sizes, [8192, 4096]);
    assert_eq!(report.totals().live_bytes, 5 * 512 + 8192 + 4096);
}
