//! Conversion of records to rows, and their assignment to calls.

use std::sync::Arc;

use rusqlite::Connection;

use super::*;
use crate::ids::{global_pid, global_tid};
use crate::writer::schema;
use gpuprobe_cuda::Modes;

const BASE: u64 = 1_000_000;
const PID: u32 = 700;
const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

/// An in-memory recording.
struct Bench<'c> {
    connection: &'c Connection,
    tables: Tables<'c>,
    activities: ActivityWriter,
}

fn database() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    let tables = Tables::new(&connection, 0);
    for list in [schema::CORE_TABLES, schema::OURS, schema::LAZY] {
        schema::tables(list).for_each(|(table, _)| tables.create(table).unwrap());
    }
    drop(tables);
    connection
}

/// A correlation id in SQL: `c` and its number, if CUPTI has made it.
fn number(column: &str) -> String {
    format!("CASE WHEN {column} >> 32 THEN 'c' || ({column} & 4294967295) ELSE {column} END")
}

impl<'c> Bench<'c> {
    fn new(connection: &'c Connection, modes: Modes) -> Self {
        let facts = Facts::now(modes);
        Self {
            connection,
            tables: Tables::new(connection, BASE),
            activities: ActivityWriter::new(&facts),
        }
    }

    /// Adds a call seen by a probe, as `Rows` does.
    fn seen(
        &mut self,
        name: &str,
        class: i64,
        tid: u32,
        (start, end): (u64, u64),
        chain: Option<i64>,
    ) {
        self.tables.correlation += 1;
        let number = self.tables.correlation;
        let function = self.tables.string(name).unwrap();
        let thread = self.tables.thread(PID, tid).unwrap();
        let times = (self.tables.time(start), self.tables.time(end));
        let row = rusqlite::params![times.0, times.1, class, thread, number, function, 0, chain];
        self.tables.insert(CALLS, row).unwrap();
        let call = ProbedCall {
            end_ns: end,
            number,
            function,
            class,
            chain,
        };
        self.activities.calls.probed.add((PID, tid), start, call);
    }

    fn take(&mut self, activities: Vec<Activity>) {
        let batch = ActivityBatch {
            pid: PID,
            process: 1,
            cupti_version: 130_001,
            is_last: false,
            activities,
        };
        self.activities.hold(batch);
    }

    fn write(&mut self, is_end: bool) {
        while let Some(batch) = self.activities.due(is_end) {
            self.activities.write(&batch, &mut self.tables).unwrap();
        }
    }

    fn round(&mut self) {
        self.activities.next_round();
        self.write(false);
    }

    fn finish(&mut self) {
        self.write(true);
    }

    /// Rows of a query, with the columns joined by spaces.
    fn rows(&self, sql: &str) -> Vec<String> {
        let mut statement = self.connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        let mut found = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            let values = (0..columns).map(|index| {
                let value: rusqlite::types::Value = row.get(index).unwrap();
                match value {
                    rusqlite::types::Value::Null => "-".to_owned(),
                    rusqlite::types::Value::Integer(number) => number.to_string(),
                    rusqlite::types::Value::Text(text) => text,
                    other => format!("{other:?}"),
                }
            });
            found.push(values.collect::<Vec<_>>().join(" "));
        }
        found
    }

    fn calls(&self) -> Vec<String> {
        let number = number("correlationId");
        self.rows(&format!(
            "SELECT start, \"end\", eventClass, {number}, s.value, callchainId FROM {CALLS} \
             JOIN StringIds s ON s.id = nameId ORDER BY {CALLS}.rowid"
        ))
    }

    /// Calls of probes, and those of CUPTI that they are.
    fn same(&self) -> Vec<String> {
        let cupti = number("cupti");
        self.rows(&format!(
            "SELECT correlationId, {cupti} FROM GPUPROBE_SAME_CALLS ORDER BY 1"
        ))
    }

    fn kernels(&self) -> Vec<String> {
        let number = number("correlationId");
        self.rows(&format!(
            "SELECT gridId, {number} FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY gridId"
        ))
    }
}

fn activity(record: ActivityRecord, name: Option<&str>) -> Activity {
    Activity {
        pid: PID,
        record,
        name: name.map(Arc::from),
        qualifier: None,
    }
}

fn api(domain: u32, name: &str, tid: u32, times: (u64, u64), correlation: u32) -> Activity {
    // One callback id per name, as in CUPTI.
    let cbid = name
        .bytes()
        .fold(0u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
    let call = wire::Api {
        start_ns: times.0,
        end_ns: times.1,
        domain,
        cbid,
        pid: PID,
        tid,
        correlation,
        result: 0,
    };
    activity(ActivityRecord::Api(call), Some(name))
}

fn kernel(id: i64, correlation: u32) -> Activity {
    let kernel = wire::Kernel {
        start_ns: BASE + 10_000,
        end_ns: BASE + 12_000,
        grid_id: id,
        correlation,
        grid: [2, 1, 1],
        block: [32, 1, 1],
        context: 1,
        stream: 7,
        ..wire::Kernel::default()
    };
    activity(ActivityRecord::Kernel(kernel), Some("_Z2k2IfEvPT_i"))
}

const RUNTIME: u32 = 2;
const DRIVER: u32 = 1;

/// A call of the first thread, at times after the start.
fn runtime(name: &str, (start, end): (u64, u64), correlation: u32) -> Activity {
    api(RUNTIME, name, PID, (BASE + start, BASE + end), correlation)
}

fn driver(name: &str, (start, end): (u64, u64), correlation: u32) -> Activity {
    api(DRIVER, name, PID, (BASE + start, BASE + end), correlation)
}

const ACTIVITY: Modes = Modes {
    memleak: false,
    cudatrace: false,
    bandwidth_util: false,
    activity: true,
};

#[test]
fn a_call_from_probe_and_cupti_is_marked() {
    let connection = database();
    let mut bench = Bench::new(&connection, ACTIVITY);
    let launched = (BASE + 130, BASE + 170);
    bench.seen("cuLaunchKernel", 1, 700, launched, None);
    bench
        .activities
        .calls
        .probed
        .set_chain((PID, 700), launched.0, 4);
    bench.seen("cudaMalloc", 0, 700, (BASE + 300, BASE + 400), Some(5));
    bench.take(vec![
        kernel(1, 11),
        kernel(2, 0),
        driver("cuLaunchKernel", (120, 180), 11),
        runtime("cudaLaunchKernel_v7000", (110, 190), 11),
        runtime("cudaMalloc_v3020", (310, 390), 12),
        runtime("cudaDeviceSynchronize_v3020", (500, 900), 13),
        api(RUNTIME, "cudaFree_v3020", 700, (0, 0), 14),
    ]);
    // Records are written when what belongs to them has arrived.
    bench.round();
    assert_eq!(bench.calls().len(), 2);
    bench.round();
    assert_eq!(bench.kernels(), ["1 c11", "2 -"]);
    assert_eq!(
        bench.calls(),
        [
            "130 170 1 1 cuLaunchKernel -",
            "300 400 0 2 cudaMalloc 5",
            // The work of a call leads to its stack.
            "120 180 1 c11 cuLaunchKernel 4",
            "110 190 0 c11 cudaLaunchKernel_v7000 -",
            "310 390 0 c12 cudaMalloc_v3020 5",
            "500 900 0 c13 cudaDeviceSynchronize_v3020 -",
        ]
    );
    assert_eq!(bench.same(), ["1 c11", "2 c12"]);
    assert_eq!(bench.activities.calls.count, 2);
    bench.finish();
}

#[test]
fn failed_calls_and_names_have_all_columns() {
    let connection = database();
    let mut bench = Bench::new(&connection, ACTIVITY);
    let mut failed = driver("cuMemAlloc_v2", (162, 188), 20);
    if let ActivityRecord::Api(call) = &mut failed.record {
        call.result = 2;
    }
    let name = wire::Name {
        object: wire::Object {
            kind: 5,
            a: 1,
            b: 2,
            c: 7,
        },
        ..wire::Name::default()
    };
    bench.take(vec![
        failed,
        runtime("cudaMalloc_v3020", (100, 200), 20),
        activity(ActivityRecord::Name(name), Some("copies")),
    ]);
    bench.finish();
    let thread = global_tid(PID, 700);
    let failed =
        format!("SELECT eventClass, globalTid, returnValue FROM {CALLS} WHERE returnValue");
    assert_eq!(bench.rows(&failed), [format!("1 {thread} 2")]);
    assert_eq!(
        bench.rows("SELECT globalPid, object, a, b, c, name FROM GPUPROBE_NAMES"),
        [format!("{} stream 1 2 7 copies", global_pid(PID))]
    );
}

#[test]
fn driver_calls_from_probes_are_their_runtime_call() {
    let connection = database();
    let mut bench = Bench::new(&connection, ACTIVITY);
    // Statically linked runtime: probes see the driver only.
    let retained = (BASE + 110, BASE + 150);
    bench.seen("cuDevicePrimaryCtxRetain", 1, 700, retained, None);
    bench.seen("cuMemAlloc_v2", 1, 700, (BASE + 160, BASE + 190), Some(5));
    bench.take(vec![driver("cuMemAlloc_v2", (162, 188), 20)]);
    bench.round();
    bench.take(vec![
        runtime("cudaMalloc_v3020", (100, 200), 20),
        driver("cuCtxSynchronize", (220, 280), 21),
    ]);
    bench.finish();
    assert_eq!(
        bench.calls()[2..],
        [
            "162 188 1 c20 cuMemAlloc_v2 5",
            "100 200 0 c20 cudaMalloc_v3020 -",
            "220 280 1 c21 cuCtxSynchronize -"
        ]
    );
    assert_eq!(bench.same(), ["1 c20", "2 c20"]);
    assert_eq!(bench.activities.calls.count, 1);
}

#[test]
fn threads_in_a_pid_namespace_are_matched_by_their_calls() {
    let connection = database();
    let mut bench = Bench::new(&connection, ACTIVITY);
    bench.seen("cudaFree", 0, 702, (BASE + 100, BASE + 200), None);
    let set = (BASE + 300, BASE + 301);
    let mut inner = vec![
        api(RUNTIME, "cudaFree_v3020", 3, (BASE + 110, BASE + 190), 1),
        api(RUNTIME, "cudaSetDevice_v3020", 3, set, 2),
        api(RUNTIME, "cudaSetDevice_v3020", 1, set, 3),
    ];
    for activity in &mut inner {
        if let ActivityRecord::Api(api) = &mut activity.record {
            api.pid = 1;
        }
    }
    bench.take(inner);
    bench.finish();
    let threads = format!(
        "SELECT globalTid & 16777215, {} FROM {CALLS}",
        number("correlationId")
    );
    assert_eq!(
        bench.rows(&threads),
        ["702 1", "702 c1", "702 c2", "700 c3"]
    );
}

#[test]
fn rows_have_the_values_of_exports() {
    let connection = database();
    let mut bench = Bench::new(&connection, ACTIVITY);
    let device = wire::Device {
        memory_bandwidth: 4_814_304_000,
        memory_bytes: 150_109_880_320,
        uuid: [0x13; 16],
        clock_khz: 1_980_000,
        multiprocessors: 132,
        capability_major: 9,
        ..wire::Device::default()
    };
    let context = wire::Context {
        context: 1,
        device: 0,
        compute_api: 1,
        null_stream: 7,
        parent_context: wire::UNKNOWN_ID,
    };
    let stream = wire::Stream {
        context: 1,
        stream: 13,
        priority: -5,
        flag: 2,
        ..wire::Stream::default()
    };
    let copy = wire::Memcpy {
        start_ns: BASE + 5,
        end_ns: BASE + 9,
        size_bytes: 4096,
        copies: 1,
        copy_kind: 1,
        source_kind: 1,
        destination_kind: 3,
        context: 1,
        stream: 7,
        source_device: wire::UNKNOWN_ID,
        source_context: wire::UNKNOWN_ID,
        destination_device: wire::UNKNOWN_ID,
        destination_context: wire::UNKNOWN_ID,
        ..wire::Memcpy::default()
    };
    let sync = wire::Sync {
        start_ns: BASE + 20,
        end_ns: BASE + 30,
        sync_type: 4,
        context: 1,
        stream: wire::UNKNOWN_ID,
        event: wire::UNKNOWN_ID,
        ..wire::Sync::default()
    };
    let memory = wire::Memory {
        time_ns: BASE + 40,
        address: 0x7f00,
        size_bytes: 512,
        operation: 1,
        memory_kind: 3,
        context: 1,
        stream: wire::UNKNOWN_ID,
        ..wire::Memory::default()
    };
    bench.take(vec![
        activity(ActivityRecord::Device(device), Some("NVIDIA H200")),
        activity(ActivityRecord::Device(device), Some("NVIDIA H200")),
        activity(ActivityRecord::Context(context), None),
        activity(ActivityRecord::Stream(stream), None),
        kernel(20, 0),
        activity(ActivityRecord::Memcpy(copy), None),
        activity(ActivityRecord::Sync(sync), None),
        activity(ActivityRecord::Memory(memory), None),
    ]);
    bench.finish();
    let gpus = "SELECT id, name, uuid, totalMemory, memoryBandwidth, clockRate, smCount, cuDevice, \
                computeMajor FROM TARGET_INFO_GPU";
    assert_eq!(
        bench.rows(gpus),
        [
            "0 NVIDIA H200 13131313-1313-1313-1313-131313131313 150109880320 4814304000000 \
          1980000000 132 0 9"
        ]
    );
    assert_eq!(
        bench.rows("SELECT * FROM TARGET_INFO_CUDA_DEVICE"),
        ["0 0 700"]
    );
    let contexts = "SELECT * FROM TARGET_INFO_CUDA_CONTEXT_INFO";
    assert_eq!(bench.rows(contexts), ["7 0 1 700 0 1 0 0"]);
    let streams = "SELECT * FROM TARGET_INFO_CUDA_STREAM";
    assert_eq!(bench.rows(streams), ["13 0 1 700 1 4294967291 2"]);
    let names = "SELECT a.value, b.value, c.value, k.launchType, k.greenContextId \
                 FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds a ON a.id = demangledName \
                 JOIN StringIds b ON b.id = shortName JOIN StringIds c ON c.id = mangledName";
    assert_eq!(
        bench.rows(names),
        ["void k2<float>(float*, int) k2 _Z2k2IfEvPT_i 1 0"]
    );
    let copies = "SELECT start, \"end\", bytes, copyKind, srcKind, dstKind, srcDeviceId, copyCount \
                  FROM CUPTI_ACTIVITY_KIND_MEMCPY";
    assert_eq!(bench.rows(copies), ["5 9 4096 1 0 2 - 1"]);
    let syncs = "SELECT syncType, streamId, eventId FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
    assert_eq!(bench.rows(syncs), ["4 4294967295 4294967295"]);
    let memory = "SELECT start, address, bytes, memKind, memoryOperationType, streamId \
                  FROM CUDA_GPU_MEMORY_USAGE_EVENTS";
    assert_eq!(bench.rows(memory), ["40 32512 512 2 0 -"]);
}

#[test]
fn memory_events_are_written_once() {
    let connection = database();
    let with_ledger = Modes {
        memleak: true,
        ..ACTIVITY
    };
    let mut bench = Bench::new(&connection, with_ledger);
    let memory = wire::Memory {
        time_ns: BASE + 40,
        operation: 1,
        ..wire::Memory::default()
    };
    bench.take(vec![activity(ActivityRecord::Memory(memory), None)]);
    bench.finish();
    assert!(
        bench
            .rows("SELECT * FROM CUDA_GPU_MEMORY_USAGE_EVENTS")
            .is_empty()
    );
}

#[test]
fn ranges_are_push_pop_or_start_end() {
    let connection = database();
    let mut bench = Bench::new(&connection, ACTIVITY);
    let mark = |time: u64, flags, id, tid, name: Option<&str>| {
        let object = wire::Object {
            kind: 2,
            a: PID,
            b: tid,
            c: 0,
        };
        let marker = wire::Marker {
            time_ns: BASE + time,
            flags,
            id,
            object,
            ..wire::Marker::default()
        };
        activity(ActivityRecord::Marker(marker), name)
    };
    use wire::marker::{END, INSTANTANEOUS, START};
    bench.take(vec![
        mark(1, START, 1, 700, Some("outer")),
        mark(2, START, 2, 700, Some("inner")),
        mark(3, END, 2, 700, None),
        mark(4, INSTANTANEOUS, 3, 700, Some("now")),
        mark(5, START, 4, 700, Some("crossing")),
        mark(6, END, 1, 700, None),
        mark(7, END, 4, 701, None),
        mark(8, START, 5, 701, Some("open")),
        mark(9, END, 99, 701, None),
    ]);
    bench.finish();
    let found = "SELECT start, \"end\", eventType, rangeId, text, globalTid & 16777215, \
                 endGlobalTid & 16777215 FROM NVTX_EVENTS ORDER BY start";
    assert_eq!(
        bench.rows(found),
        [
            "1 6 60 1 outer 700 700",
            "2 3 59 2 inner 700 -",
            "4 - 34 - now 700 -",
            "5 7 60 4 crossing 700 701",
            "8 - 60 5 open 701 -",
        ]
    );
}

mod exactness {
    use proptest::prelude::*;

    use super::*;

    /// A call, and the delays after which a probe and CUPTI deliver it.
    #[derive(Clone, Debug)]
    struct Made {
        tid: u32,
        gap: u64,
        length: u64,
        seen: bool,
        reported: Option<usize>,
        inner: Option<usize>,
        kernels: Vec<usize>,
        function: usize,
    }

    const NAMES: [(&str, &str, &str); 3] = [
        ("cudaMalloc", "cudaMalloc_v3020", "cuMemAlloc_v2"),
        ("cudaFree", "cudaFree_v3020", "cuMemFree_v2"),
        (
            "cudaLaunchKernel",
            "cudaLaunchKernel_v7000",
            "cuLaunchKernel",
        ),
    ];

    fn made() -> impl Strategy<Value = Made> {
        (
            0u32..3,
            40u64..2_000,
            100u64..5_000,
            any::<bool>(),
            prop::option::weighted(0.8, 0usize..4),
            prop::option::of(0usize..4),
            prop::collection::vec(0usize..4, 0..3),
            0usize..NAMES.len(),
        )
            .prop_map(
                |(tid, gap, length, seen, reported, inner, kernels, function)| Made {
                    tid: PID + tid,
                    gap,
                    length,
                    seen,
                    reported,
                    // A nested call is delivered in the same round as the outer one or in that
                    // before.
                    inner: inner.map(|inner| {
                        reported.map_or(inner, |outer| outer.saturating_sub(inner % 2))
                    }),
                    kernels,
                    function,
                },
            )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// However late CUPTI delivers calls, kernels refer to them, and those of probes are marked.
        #[test]
        fn kernels_find_their_calls(all in prop::collection::vec(made(), 1..40)) {
            let connection = database();
            let mut bench = Bench::new(&connection, ACTIVITY);
            let mut clocks = [BASE; 3];
            let mut rounds: Vec<Vec<Activity>> = vec![Vec::new(); all.len() + 5];
            let mut spans = Vec::new();
            for (index, call) in all.iter().enumerate() {
                let clock = &mut clocks[(call.tid - PID) as usize];
                let start = *clock + call.gap;
                let end = start + call.length;
                *clock = end;
                spans.push((start - BASE, end - BASE));
                let (plain, runtime, driver) = NAMES[call.function];
                let id = u32::try_from(index).unwrap() + 1;
                if let Some(late) = call.reported {
                    let reported = api(RUNTIME, runtime, call.tid, (start + 5, end - 5), id);
                    rounds[index + late].push(reported);
                }
                if let Some(late) = call.inner {
                    let reported = api(DRIVER, driver, call.tid, (start + 20, end - 20), id);
                    rounds[index + late].push(reported);
                }
                for late in &call.kernels {
                    rounds[index + late].push(kernel(i64::from(id), id));
                }
                if call.seen {
                    bench.seen(plain, 0, call.tid, (start, end), None);
                }
                let due = std::mem::take(&mut rounds[index]);
                bench.take(due);
                bench.round();
            }
            for due in rounds.into_iter().skip(all.len()) {
                bench.take(due);
                bench.round();
            }
            bench.finish();
            // A call of the runtime that a probe and CUPTI saw is one, one of the driver within it another.
            let rows = |call: &Made| {
                let of_runtime = call.seen || call.reported.is_some();
                usize::from(of_runtime) + usize::from(call.inner.is_some())
            };
            let known: usize = all.iter().map(rows).sum();
            prop_assert_eq!(bench.calls().len() - bench.same().len(), known);
            let count = bench.tables.correlation + bench.activities.calls.count;
            prop_assert_eq!(count, i64::try_from(known).unwrap());
            // The correlation id of the kernel, the rows with it, and their times.
            let mut statement = connection
                .prepare(
                    "SELECT k.gridId, count(c.correlationId), min(c.start), max(c.\"end\") \
                     FROM CUPTI_ACTIVITY_KIND_KERNEL k LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME c \
                     USING (correlationId) GROUP BY k.rowid",
                )
                .unwrap();
            let mut rows = statement.query([]).unwrap();
            let mut kernels = 0;
            while let Some(row) = rows.next().unwrap() {
                kernels += 1;
                let id = usize::try_from(row.get::<_, i64>(0).unwrap()).unwrap();
                let (call, span) = (&all[id - 1], spans[id - 1]);
                let from_cupti =
                    usize::from(call.reported.is_some()) + usize::from(call.inner.is_some());
                let count: u32 = row.get(1).unwrap();
                prop_assert_eq!(count as usize, from_cupti);
                if from_cupti > 0 {
                    let time = |column| row.get::<_, i64>(column).unwrap().cast_unsigned();
                    let times = (time(2), time(3));
                    prop_assert!(span.0 <= times.0 && times.1 <= span.1, "{times:?} in {span:?}");
                }
            }
            prop_assert_eq!(kernels, all.iter().map(|call| call.kernels.len()).sum::<usize>());
        }
    }
}
