//! Counts of what is not part of other figures.

use super::build;
use crate::Options;
use gpuprobe_engine::GpuActivity;
use gpuprobe_model::activity::{Activity, ActivityBatch, ActivityRecord};
use gpuprobe_model::event::Event;
use gpuprobe_wire as wire;

/// Intervals that are kept, and those collected before they are merged.
const KEPT: u64 = (1 << 18) + 4096;

/// A memset of 3 ns, ten times as late as its number.
fn set(number: u64) -> Activity {
    let record = ActivityRecord::Memset(wire::Memset {
        start_ns: 10 * number,
        end_ns: 10 * number + 3,
        ..wire::Memset::default()
    });
    Activity {
        pid: 7,
        record,
        name: None,
        qualifier: None,
    }
}

#[test]
fn records_that_come_too_late_are_counted() {
    let mut activity = GpuActivity::default();
    let mut apply = |activities: Vec<Activity>| {
        activity.apply(&Event::Activity(ActivityBatch {
            pid: 7,
            process: 7,
            cupti_version: 0,
            is_last: false,
            activities,
        }));
    };
    apply((100..KEPT + 100).map(set).collect());
    // Before the half that is summed up already.
    apply((1..4).map(set).collect());
    apply((KEPT + 100..KEPT + 5000).map(set).collect());
    let report = serde_json::to_value(build(&activity, &Options::default())).unwrap();
    let device = &report["processes"][0]["devices"][0];
    assert_eq!(device["late_records"], 3, "{device}");
    assert_eq!(device["busy_ns"], 3 * (KEPT + 4900), "the others' only");
    assert_eq!(device["sets"]["count"], KEPT + 4903);
}
