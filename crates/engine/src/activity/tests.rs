//! Processes with activity, and those that have ended.

use super::*;
use crate::task;
use gpuprobe_model::activity::{Activity, ActivityRecord};
use gpuprobe_wire as wire;

fn batch(process: u32, records: Vec<ActivityRecord>) -> ActivityBatch {
    let pid = process + 1000;
    let activity = |record| Activity {
        pid,
        record,
        name: None,
        qualifier: None,
    };
    ActivityBatch {
        pid,
        process,
        cupti_version: 0,
        is_last: false,
        activities: records.into_iter().map(activity).collect(),
    }
}

/// A copy to the device (1) or from it (2).
fn copied(copy_kind: u8, size_bytes: u64, flags: u8) -> ActivityRecord {
    ActivityRecord::Memcpy(wire::Memcpy {
        copy_kind,
        size_bytes,
        flags,
        start_ns: 100,
        end_ns: 200,
        ..wire::Memcpy::default()
    })
}

fn set(size_bytes: u64) -> ActivityRecord {
    ActivityRecord::Memset(wire::Memset {
        size_bytes,
        start_ns: 100,
        end_ns: 200,
        ..wire::Memset::default()
    })
}

#[test]
fn processes_have_the_names_of_their_events() {
    let mut activity = GpuActivity::default();
    let begun = Task {
        uid: 5,
        comm: "train".to_owned(),
        ..task(1007, 7, 0)
    };
    activity.apply(&Event::Process(begun));
    assert_eq!(activity.processes().count(), 0, "no activity yet");
    activity.apply(&Event::Activity(batch(7, vec![set(1)])));
    activity.apply(&Event::Activity(ActivityBatch {
        is_last: true,
        ..batch(8, vec![])
    }));
    let numbers: Vec<_> = activity.processes().map(|(number, _)| number).collect();
    assert_eq!(numbers, [7, 8]);
    let process = activity.get(7).unwrap();
    assert_eq!((process.pid, process.uid), (1007, Some(5)));
    assert_eq!(process.comm.as_deref(), Some("train"));
    activity.introduce(8, "other", Some(6));
    activity.introduce(9, "nobody", None);
    activity.end_process(8, 77);
    let process = activity.get(8).unwrap();
    assert_eq!((process.uid, process.ended_ns), (Some(6), Some(77)));
    assert_eq!(process.comm.as_deref(), Some("other"));
    assert!(activity.get(9).is_none());
}

#[test]
fn ended_processes_are_bounded_and_the_oldest_go_first() {
    let mut activity = GpuActivity::default();
    let end = |activity: &mut GpuActivity, process| {
        activity.batch(&batch(process, vec![set(1)]));
        activity.apply(&Event::Exit(task(process + 1000, process, 55)));
    };
    let most = u32::try_from(MAX_ENDED).unwrap();
    (1..=most).for_each(|process| end(&mut activity, process));
    assert_eq!(
        (activity.forgotten, activity.processes().count()),
        (0, MAX_ENDED)
    );
    assert_eq!(activity.get(1).unwrap().ended_ns, Some(55));
    (1..=2).for_each(|more| end(&mut activity, most + more));
    // One that is not known.
    activity.apply(&Event::Exec(task(1, 1 << 20, 55)));
    assert_eq!(
        (activity.forgotten, activity.processes().count()),
        (2, MAX_ENDED)
    );
    assert!(activity.get(2).is_none() && activity.get(3).is_some());
}

#[test]
fn bytes_are_those_of_a_process_direction_and_mode() {
    let mut activity = GpuActivity::default();
    let large = 1 << 20;
    // The lowest flag says that the call was asynchronous.
    activity.batch(&batch(
        7,
        vec![
            copied(1, large, 0),
            copied(1, large + 1, 1),
            copied(2, large + 2, 0),
            copied(1, large + 3, process::MODE_NOT_TOLD),
            set(5),
        ],
    ));
    activity.batch(&batch(8, vec![copied(1, 3 * large, 0), set(6)]));
    let moved = |pid, direction, mode| {
        let moved = activity.moved(pid, direction, mode);
        (moved.tally.count, moved.bytes)
    };
    use Direction::{DeviceToHost, HostToDevice, Set};
    assert_eq!(moved(1007, HostToDevice, Mode::Sync), (1, large));
    assert_eq!(moved(1007, HostToDevice, Mode::Async), (1, large + 1));
    assert_eq!(moved(1007, DeviceToHost, Mode::Sync), (1, large + 2));
    assert_eq!(moved(1007, DeviceToHost, Mode::Async), (0, 0));
    assert_eq!(moved(1007, Set, Mode::Async), (1, 5));
    assert_eq!(moved(1008, HostToDevice, Mode::Sync), (1, 3 * large));
    assert_eq!(moved(1009, Set, Mode::Async), (0, 0));
}

#[test]
fn reports_show_what_is_new_since_the_last() {
    let mut activity = GpuActivity::default();
    activity.batch(&batch(7, vec![set(1), copied(1, 1, 0)]));
    activity.mark_reported();
    let process = activity.get(7).unwrap();
    assert_eq!(process.devices[&0].reported.any_ns, 100);
    assert!(!process.end_reported);
    activity.end_process(7, 300);
    activity.mark_reported();
    assert!(activity.get(7).unwrap().end_reported);
}
