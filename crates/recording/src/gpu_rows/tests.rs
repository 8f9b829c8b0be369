use super::*;
use crate::tests::database;

/// Processes 999 and 7, and their threads 1015 and 8.
const NAMES: &str = "
    INSERT INTO StringIds VALUES (1, 'cudaMalloc_v3020'), (2, 'kernel'), (3, 'CUPTI Buffer flush'),
        (4, 'other'), (5, 'range'), (6, 'domain'), (7, 'cudaMemcpyAsync_v3020'),
        (8, 'cuStreamSynchronize'), (9, 'cudaMemcpy_v3020');";

fn processes(sql: &str) -> String {
    let [one, other] = [(999, 1015), (7, 8)].map(|(pid, tid)| ids::global_tid(pid, tid));
    let [first, second] = [one, other].map(ids::process_of);
    sql.replace("T1", &one.to_string())
        .replace("T2", &other.to_string())
        .replace("P1", &first.to_string())
        .replace("P2", &second.to_string())
}

/// The activities of a database, those of a process together.
fn activities(sql: &str, filter: RowFilter) -> Vec<Activity> {
    let database = database(&processes(&format!("{NAMES}{sql}")));
    let mut found = Vec::new();
    each(&database, filter, |batch| {
        assert!(batch.is_last && batch.pid == batch.process);
        found.extend(batch.activities.iter().cloned());
    })
    .unwrap();
    found.sort_by_key(|activity| activity.pid);
    found
}

#[test]
fn a_filter_is_of_a_process_and_a_device() {
    let process = ids::global_pid(999);
    for (pid, device, of, on, is_included) in [
        (None, None, None, None, true),
        (Some(999), None, Some(process), None, true),
        (Some(998), None, Some(process), None, false),
        (Some(999), None, None, Some(1), false),
        (None, Some(1), None, Some(1), true),
        (None, Some(1), None, None, true),
        (None, Some(1), Some(process), Some(0), false),
        (Some(998), Some(1), Some(process), Some(1), false),
    ] {
        let filter = RowFilter {
            pid,
            device,
            ..RowFilter::default()
        };
        assert_eq!(
            filter.includes(of, on),
            is_included,
            "{filter:?} {of:?} {on:?}"
        );
    }
    assert_eq!(ZERO_NS, 1 << 60);
    assert_eq!([record_ns(5), record_ns(-5)], [ZERO_NS + 5, ZERO_NS - 5]);
    assert_eq!(record_ns(i64::MIN), 0);
    assert_eq!(times(5, 9), (ZERO_NS + 5, ZERO_NS + 9));
    assert_eq!(times(9, 5), (ZERO_NS + 9, ZERO_NS + 9));
}

const OVERHEAD_ROWS: &str = "
    CREATE TABLE PROFILER_OVERHEAD (start, end, globalTid, nameId);
    INSERT INTO PROFILER_OVERHEAD VALUES (10, 15, T1, 3), (20, 21, T1, 4), (30, 31, T1, NULL),
        (NULL, 9, T1, 3), (40, 45, NULL, 3), (50, 55, T2, 3);";

#[test]
fn overheads_have_their_kind_by_name() {
    let found = |pid| {
        let filter = RowFilter {
            pid,
            ..RowFilter::default()
        };
        let found = activities(OVERHEAD_ROWS, filter);
        let row = |activity: Activity| match activity.record {
            ActivityRecord::Overhead(r) => {
                let times = [r.start_ns, r.end_ns].map(|ns| ns - ZERO_NS);
                Some((activity.pid, times, r.overhead_kind))
            }
            _ => None,
        };
        found.into_iter().filter_map(row).collect::<Vec<_>>()
    };
    let flush = 0x1_0000;
    let of_one = [
        (999, [10, 15], flush),
        (999, [20, 21], 0),
        (999, [30, 31], 0),
    ];
    assert_eq!(found(Some(999)), of_one);
    let others = [(0, [40, 45], flush), (7, [50, 55], flush)];
    assert_eq!(found(None), [&others[..], &of_one].concat());
}

#[test]
fn calls_are_those_of_the_runtime_and_the_driver() {
    let sql = "
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME
            (start, end, globalTid, eventClass, nameId, returnValue);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 15, T1, 0, 1, 0), (11, 14, T1, 1, 4, 2),
            (12, 13, T1, 67, 1, 0), (20, 19, T2, 0, 1, NULL), (30, 31, NULL, 0, 1, 0),
            (30, 31, T1, 0, NULL, 0), (30, NULL, T1, 0, 1, 0), (40, 41, T2, NULL, 1, 0);";
    let found = activities(sql, RowFilter::default());
    let rows = found.iter().map(|activity| match activity.record {
        ActivityRecord::Api(r) => {
            let times = [r.start_ns, r.end_ns].map(|ns| ns - ZERO_NS);
            let name = activity.name.as_deref().unwrap();
            (activity.pid, times, r.domain, r.cbid, r.tid, r.result, name)
        }
        _ => panic!("not a call"),
    });
    let expected = [
        (7, [20, 20], domain::RUNTIME, 1, 8, 0, "cudaMalloc_v3020"),
        (7, [40, 41], domain::RUNTIME, 1, 8, 0, "cudaMalloc_v3020"),
        (
            999,
            [10, 15],
            domain::RUNTIME,
            1,
            1015,
            0,
            "cudaMalloc_v3020",
        ),
        (999, [11, 14], domain::DRIVER, 4, 1015, 1, "other"),
    ];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
    let filter = RowFilter {
        pid: Some(7),
        ..RowFilter::default()
    };
    assert_eq!(activities(sql, filter).len(), 2);
}

#[test]
fn ranges_have_a_start_and_an_end_of_one_number() {
    let sql = "
        CREATE TABLE NVTX_EVENTS (start, end, eventType, globalTid, text, textId, domainId);
        INSERT INTO NVTX_EVENTS VALUES (NULL, NULL, 75, T1, 'own', NULL, 1),
            (NULL, NULL, 75, T1, NULL, 6, 2), (NULL, NULL, 75, T2, 'another', NULL, 1),
            (10, 20, 59, T1, 'push', 5, 1), (11, NULL, 60, T1, NULL, 5, 2),
            (12, 5, 60, T1, 'push', NULL, 3), (13, 99, 34, T1, NULL, NULL, NULL),
            (14, 15, 61, T1, 'unknown', NULL, 1), (NULL, 15, 59, T1, 'none', NULL, 1),
            (14, 15, 59, NULL, 'none', NULL, 1), (30, 31, 59, T2, 'push', NULL, 1);";
    let found = |pid| {
        let filter = RowFilter {
            pid,
            ..RowFilter::default()
        };
        let found = activities(sql, filter);
        let rows = found.iter().map(|activity| match activity.record {
            ActivityRecord::Marker(r) => {
                let name = activity.name.as_deref().unwrap_or("-").to_owned();
                let domain = activity.qualifier.as_deref().unwrap_or("-").to_owned();
                (r.time_ns - ZERO_NS, r.flags, r.id, name + " " + &domain)
            }
            _ => panic!("not a marker"),
        });
        rows.collect::<Vec<_>>()
    };
    let row = |time, flags, id, text: &str| (time, flags, id, text.to_owned());
    let expected = [
        row(10, wire::marker::START, 1, "push own"),
        row(20, wire::marker::END, 1, "push own"),
        row(11, wire::marker::START, 2, "range domain"),
        row(12, wire::marker::START, 3, "push -"),
        row(12, wire::marker::END, 3, "push -"),
        row(13, wire::marker::INSTANTANEOUS, 4, "- -"),
    ];
    assert_eq!(found(Some(999)), expected);
    let of_other = [row(30, 2, 1, "push another"), row(31, 4, 1, "push another")];
    assert_eq!(found(Some(7)), of_other);
    assert_eq!(found(None).len(), 8);
}

const WORK_ROWS: &str = "
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, globalPid, deviceId, contextId, streamId,
        demangledName, gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread,
        staticSharedMemory, dynamicSharedMemory);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
        (40, 45, P1, 1, 2, 3, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12),
        (20, 25, P1, 0, NULL, -1, 2, 1, 1, 1, 1, 1, 1, 99999, -1, 1), (NULL, 25, P1, 0, 1, 1, 2,
        1, 1, 1, 1, 1, 1, 1, 1, 1);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, globalPid, deviceId, contextId, streamId,
        bytes, copyKind, srcKind, dstKind, correlationId);
    INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (30, 35, P1, 0, 1, 7, 4096, 1, 0, 2, 50),
        (31, 35, P1, 0, 1, 7, 4096, 300, NULL, 2, 51), (32, 35, P1, 0, 1, 7, 1, 2, 2, 2, 52),
        (33, 35, P2, 0, 1, 7, 1, 2, 2, 2, 50);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start, end, globalPid, deviceId, contextId, streamId,
        bytes, memKind, value);
    INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (20, 22, P1, 0, 1, 7, 64, 2, 0);
    CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION
        (start, end, globalPid, deviceId, syncType, correlationId);
    INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (60, 65, P1, 0, 1, 53),
        (70, 75, P1, 0, 1, 50), (NULL, 75, P1, 0, 1, 53);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME
        (start, end, globalTid, eventClass, nameId, correlationId);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (NULL, NULL, T1, 0, 7, 50),
        (NULL, NULL, T1, 1, 9, 50), (NULL, NULL, T1, 1, 9, 51), (NULL, NULL, T1, 0, 8, 53);";

/// Names and times that are shown of work.
fn shown(activity: &Activity) -> String {
    match activity.record {
        ActivityRecord::Kernel(r) => format!(
            "{} kernel {} {} {} {:?} {:?} {} {} {}",
            r.start_ns - ZERO_NS,
            r.device,
            r.context,
            r.stream,
            r.grid,
            r.block,
            r.registers_per_thread,
            r.static_shared_memory,
            r.dynamic_shared_memory,
        ),
        ActivityRecord::Memcpy(r) => format!(
            "{} copy {} {} {} {} {}",
            r.start_ns - ZERO_NS,
            r.size_bytes,
            r.copy_kind,
            r.source_kind,
            r.destination_kind,
            r.flags,
        ),
        ActivityRecord::Memset(r) => {
            format!(
                "{} set {} {}",
                r.start_ns - ZERO_NS,
                r.size_bytes,
                r.memory_kind
            )
        }
        ActivityRecord::Sync(r) => format!("{} wait {}", r.start_ns - ZERO_NS, r.sync_type),
        _ => "other".to_owned(),
    }
}

#[test]
fn work_is_in_the_order_of_its_start() {
    let filter = RowFilter {
        pid: Some(999),
        ..RowFilter::default()
    };
    let found = activities(WORK_ROWS, filter);
    let unknown = wire::UNKNOWN_ID;
    let expected = [
        &format!("20 kernel 0 {unknown} {unknown} [1, 1, 1] [1, 1, 1] 65535 0 1"),
        "20 set 64 3",
        // Asynchronous, not, and not known.
        "30 copy 4096 1 1 3 1",
        "31 copy 4096 0 0 3 0",
        "32 copy 1 2 3 3 128",
        "40 kernel 1 2 3 [4, 5, 6] [7, 8, 9] 10 11 12",
        "60 wait 3",
        "70 wait 0",
    ];
    assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), expected);
    let names = found.iter().map(|activity| activity.name.as_deref());
    let kernels = names.flatten().collect::<Vec<_>>();
    assert_eq!(kernels, ["kernel", "kernel"]);
    let on_device = RowFilter {
        device: Some(1),
        ..RowFilter::default()
    };
    assert_eq!(activities(WORK_ROWS, on_device).len(), 1);
    let ours = format!("{WORK_ROWS} CREATE TABLE GPUPROBE_META (key, val);");
    let waits = activities(&ours, filter)
        .into_iter()
        .filter_map(|a| match a.record {
            ActivityRecord::Sync(r) => Some(r.sync_type),
            _ => None,
        });
    assert_eq!(waits.collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn records_are_passed_on_some_thousand_at_once() {
    let sql = processes(&format!(
        "CREATE TABLE PROFILER_OVERHEAD (start, end, globalTid);
        WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT {})
        INSERT INTO PROFILER_OVERHEAD SELECT x, x, T1 FROM n",
        BATCH + 1
    ));
    let database = database(&sql);
    let mut sizes = Vec::new();
    let take = |batch: &ActivityBatch| sizes.push(batch.activities.len());
    each(&database, RowFilter::default(), take).unwrap();
    assert_eq!(sizes, [4096, 1]);
}
