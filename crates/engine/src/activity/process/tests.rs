//! Each kind of record, and the limits on what is listed.

use super::*;
use ActivityRecord as Record;

/// A process with these records, each with a name and a domain.
fn process(records: impl IntoIterator<Item = (Record, &'static str)>) -> ProcessActivity {
    let mut process = ProcessActivity::new(7);
    let mut activities = Vec::new();
    for (record, name) in records {
        activities.push(Activity {
            pid: 7,
            record,
            name: Some(name.into()),
            qualifier: Some("".into()),
        });
    }
    process.batch(&ActivityBatch {
        pid: 7,
        process: 7,
        cupti_version: 26,
        is_last: false,
        activities,
    });
    process
}

fn unnamed(records: impl IntoIterator<Item = Record>) -> ProcessActivity {
    process(records.into_iter().map(|record| (record, "name")))
}

fn times(tally: &Tally) -> (u64, u64) {
    (tally.count, tally.total_ns)
}

fn overhead(overhead_kind: u32) -> Record {
    Record::Overhead(wire::Overhead {
        overhead_kind,
        start_ns: 10,
        end_ns: 15,
        ..wire::Overhead::default()
    })
}

fn api(cbid: u32, result: u32) -> Record {
    Record::Api(wire::Api {
        domain: 1,
        cbid,
        result,
        start_ns: 10,
        end_ns: 13,
        ..wire::Api::default()
    })
}

fn kernel(device: u32, stream: u32, start_ns: u64) -> Record {
    Record::Kernel(wire::Kernel {
        device,
        stream,
        start_ns,
        end_ns: start_ns + 10,
        grid: [4, 5, 6],
        block: [7, 8, 9],
        registers_per_thread: 32,
        static_shared_memory: 100,
        dynamic_shared_memory: 24,
        ..wire::Kernel::default()
    })
}

fn marker(flags: u32, id: u32, time_ns: u64) -> Record {
    Record::Marker(wire::Marker {
        flags,
        id,
        time_ns,
        ..wire::Marker::default()
    })
}

#[test]
fn work_is_summed_up_by_device_stream_and_kind() {
    let range = |start_ns, end_ns| (start_ns, end_ns);
    let (copy, set, graph) = (range(200, 230), range(300, 305), range(400, 401));
    let found = unnamed([
        kernel(0, 1, 100),
        kernel(0, 2, 105),
        kernel(1, 1, 500),
        Record::Memcpy(wire::Memcpy {
            stream: 1,
            start_ns: copy.0,
            end_ns: copy.1,
            ..wire::Memcpy::default()
        }),
        Record::Memset(wire::Memset {
            stream: 1,
            start_ns: set.0,
            end_ns: set.1,
            ..wire::Memset::default()
        }),
        Record::GraphTrace(wire::GraphTrace {
            stream: 1,
            start_ns: graph.0,
            end_ns: graph.1,
            ..wire::GraphTrace::default()
        }),
    ]);
    assert_eq!((found.records, found.cupti_version), (6, 26));
    assert_eq!((found.first_ns, found.last_ns), (100, 510));
    let device = &found.devices[&0];
    let expected = Spent {
        any_ns: 15 + 30 + 5 + 1,
        kernel_ns: 15,
        copy_ns: 30,
        set_ns: 5,
        graph_ns: 1,
    };
    assert_eq!(device.busy.spent(), expected);
    assert_eq!(times(&device.kernels), (2, 20));
    assert_eq!(
        (times(&device.copies), times(&device.sets)),
        ((1, 30), (1, 5))
    );
    assert_eq!(times(&found.graphs), (1, 1));
    assert_eq!(found.devices[&1].busy.spent().any_ns, 10);
    let streams: Vec<_> = found
        .streams
        .iter()
        .map(|(key, t)| (key.1, times(t)))
        .collect();
    assert_eq!(streams, [(1, (5, 10 + 30 + 5 + 1 + 10)), (2, (1, 10))]);
    let kernel = found.kernels.iter().next();
    let kernel = kernel.map(|k| {
        (
            k.runs.count,
            k.grid,
            k.block,
            k.registers_per_thread,
            k.shared_memory,
        )
    });
    assert_eq!(kernel, Some((3, [4, 5, 6], [7, 8, 9], 32, 124)));
}

#[test]
fn copies_are_told_apart_by_what_they_go_between() {
    let copy = |source_kind, destination_kind, flags| {
        Record::Memcpy(wire::Memcpy {
            copy_kind: 1,
            source_kind,
            destination_kind,
            flags,
            size_bytes: 1 << 20,
            start_ns: 10,
            end_ns: 20,
            ..wire::Memcpy::default()
        })
    };
    let found = unnamed([
        copy(1, 7, 0),
        copy(1, 8, 0),
        copy(1, 7, 1),
        copy(1, 7, MODE_NOT_TOLD),
        copy(1, 7, MODE_NOT_TOLD | 1),
        copy(1, 7, 2),
    ]);
    let classes = found.copies.iter().map(|(which, moved)| {
        (
            which.mode,
            which.source,
            which.destination,
            moved.tally.count,
        )
    });
    let expected = [
        (None, 1, 7, 2),
        (Some(Mode::Sync), 1, 0, 1),
        (Some(Mode::Sync), 1, 7, 2),
        (Some(Mode::Async), 1, 7, 1),
    ];
    assert_eq!(classes.collect::<Vec<_>>(), expected);
}

#[test]
fn calls_and_waits_are_counted_by_function_and_kind() {
    let wait = |sync_type, end_ns| {
        Record::Sync(wire::Sync {
            sync_type,
            start_ns: 10,
            end_ns,
            ..wire::Sync::default()
        })
    };
    let found = process([
        (api(5, 0), "first"),
        (api(5, 700), "second"),
        (api(6, 0), "other"),
        (wait(4, 30), ""),
        (wait(5, 40), ""),
    ]);
    let function = &found.functions[&(1, 5)];
    assert_eq!((times(&function.calls), function.failed), ((2, 6), 1));
    assert_eq!(function.name.as_deref(), Some("first"));
    assert_eq!(found.functions[&(1, 6)].failed, 0);
    assert_eq!(
        (times(&found.waits[&4]), times(&found.waits[&0])),
        ((1, 20), (1, 30))
    );
}

#[test]
fn operations_on_memory_are_counted_by_kind() {
    let memory = |memory_kind, operation| {
        Record::Memory(wire::Memory {
            memory_kind,
            operation,
            size_bytes: 100,
            time_ns: 50,
            ..wire::Memory::default()
        })
    };
    let pool = |operation| {
        Record::MemoryPool(wire::MemoryPool {
            operation,
            size_bytes: 9,
            time_ns: 60,
            ..wire::MemoryPool::default()
        })
    };
    let found = unnamed([memory(7, 2), memory(7, 2), memory(8, 3), pool(3), pool(4)]);
    let memory: Vec<_> = found
        .memory
        .iter()
        .map(|(key, of)| (*key, of.allocations, of.bytes))
        .collect();
    assert_eq!(memory, [((0, 0), 1, 100), ((7, 2), 2, 200)]);
    let pools: Vec<_> = found
        .pools
        .iter()
        .map(|(key, of)| (*key, of.allocations, of.bytes))
        .collect();
    assert_eq!(pools, [(0, 1, 9), (3, 1, 9)]);
    assert_eq!((found.first_ns, found.last_ns), (50, 60));
}

#[test]
fn ranges_begin_and_end_with_their_markers() {
    use wire::marker::{END, INSTANTANEOUS, START};
    let found = unnamed([
        marker(START, 1, 100),
        marker(INSTANTANEOUS, 2, 110),
        marker(START, 3, 120),
        marker(END, 1, 150),
        marker(END | START, 3, 0),
    ]);
    assert_eq!((found.markers, found.ranges.open()), (5, 0));
    let ranges: Vec<_> = found
        .ranges
        .iter()
        .map(|range| (range.domain.clone(), times(&range.times)))
        .collect();
    assert_eq!(ranges, [(None, (2, 50))]);
    // A time that is not known is none.
    assert_eq!((found.first_ns, found.last_ns), (100, 150));
}

#[test]
fn descriptions_of_devices_contexts_and_streams_are_kept() {
    let device = wire::Device {
        device: 1,
        clock_khz: 1000,
        ..wire::Device::default()
    };
    let context = |context| wire::Context {
        context,
        ..wire::Context::default()
    };
    let found = process([
        (Record::Device(device), "H100"),
        (Record::Context(context(3)), ""),
        (
            Record::Stream(wire::Stream {
                context: 3,
                stream: 9,
                ..wire::Stream::default()
            }),
            "",
        ),
    ]);
    assert_eq!(found.devices[&1].described, Some(("H100".into(), device)));
    assert_eq!(found.contexts[&3], context(3));
    assert_eq!(times(&found.streams[&(3, 9)]), (0, 0));
}

#[test]
fn devices_out_of_range_are_one() {
    let last = u32::from(MAX_DEVICES) - 1;
    let found = unnamed([
        kernel(last, 0, 10),
        kernel(last + 1, 0, 10),
        kernel(u32::MAX, 0, 30),
    ]);
    let devices: Vec<_> = found
        .devices
        .iter()
        .map(|(number, d)| (*number, d.kernels.count))
        .collect();
    assert_eq!(devices, [(last, 1), (wire::UNKNOWN_ID, 2)]);
}

#[test]
fn lists_are_bounded_and_what_is_beyond_is_counted_together() {
    let most = |limit: usize| u32::try_from(limit).unwrap_or(0);
    let overheads = most(MAX_OVERHEADS);
    let found = unnamed((1..=overheads + 2).chain([1]).map(overhead));
    assert_eq!(found.overheads.len(), MAX_OVERHEADS + 1);
    assert_eq!(
        (times(&found.overheads[&1]), times(&found.overheads[&0])),
        ((2, 10), (2, 10))
    );
    let calls = most(MAX_CALLS);
    let found = unnamed((1..=calls + 2).chain([1]).map(|cbid| api(cbid, 0)));
    assert_eq!(found.functions.len(), MAX_CALLS);
    assert_eq!(times(&found.other_calls), (2, 6));
    assert_eq!(times(&found.functions[&(1, 1)].calls), (2, 6));
    let listed = most(MAX_LISTED);
    let found = unnamed((0..=listed).chain([0]).map(|stream| kernel(0, stream, 10)));
    assert_eq!(
        (found.streams.len(), found.streams[&(0, 0)].count),
        (MAX_LISTED, 2)
    );
    assert_eq!(found.devices[&0].kernels.count, u64::from(listed) + 2);
    let created = |stream| {
        Record::Stream(wire::Stream {
            stream,
            ..wire::Stream::default()
        })
    };
    assert_eq!(unnamed((0..=listed).map(created)).streams.len(), MAX_LISTED);
    let context = |context| {
        Record::Context(wire::Context {
            context,
            ..wire::Context::default()
        })
    };
    assert_eq!(
        unnamed((0..=listed).map(context)).contexts.len(),
        MAX_LISTED
    );
}

#[test]
fn after_the_report_of_the_end_everything_is_settled() {
    let mut found = unnamed([kernel(0, 0, 100), kernel(0, 0, 200)]);
    found.mark_reported();
    assert_eq!(found.devices[&0].reported.kernel_ns, 20);
    assert_eq!(found.kernels.iter().next().map(|k| k.reported), Some(2));
    // Neither of these is late.
    for (ends, late) in [(true, 0), (true, 0), (false, 1)] {
        found.ended_ns = found.ended_ns.or(ends.then_some(400));
        found.kernel(
            &wire::Kernel {
                start_ns: 150,
                end_ns: 151,
                ..wire::Kernel::default()
            },
            None,
        );
        found.mark_reported();
        assert_eq!(found.devices[&0].busy.any.late, late);
    }
    let before = Spent {
        any_ns: 5,
        kernel_ns: 4,
        copy_ns: 3,
        set_ns: 2,
        graph_ns: 1,
    };
    let now = Spent {
        any_ns: 50,
        kernel_ns: 40,
        copy_ns: 30,
        set_ns: 20,
        graph_ns: 10,
    };
    let since = Spent {
        any_ns: 45,
        kernel_ns: 36,
        copy_ns: 27,
        set_ns: 18,
        graph_ns: 9,
    };
    assert_eq!(now.since(before), since);
}
