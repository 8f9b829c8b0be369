use super::*;
use crate::tests::file;

/// Of process 7, its threads 8 and 9, and of process 3.
const P: i64 = 1 << 48 | 7 << 24;
const Q: i64 = 1 << 48 | 3 << 24;

fn shown(item: &MemoryItem) -> String {
    let optional = |number: Option<i64>| number.map_or("-".to_owned(), |n| n.to_string());
    match item {
        MemoryItem::Row(event, call) => format!(
            "{} {} {} {}",
            event.start_ns,
            call.trace.name(),
            optional(call.function),
            optional(call.chain)
        ),
        MemoryItem::End(process, time_ns) => format!("end {} {time_ns}", process - P),
    }
}

const TABLES: &str = "
    CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, address, bytes, memKind,
        memoryOperationType, name, correlationId);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, correlationId,
        nameId, callchainId, returnValue);
    CREATE TABLE GPUPROBE_ENDS (correlationId, globalPid, t0);";

/// The statements that add events of a process at these times, with correlation ids.
fn events(process: i64, events: &[(i64, i64)]) -> String {
    let row = |(start, correlation): &(i64, i64)| {
        format!("({start}, {process}, 0, 4096, 64, 2, 0, NULL, {correlation})")
    };
    let rows: Vec<_> = events.iter().map(row).collect();
    let rows = rows.join(", ");
    format!("INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES {rows};")
}

/// A call: start, end, class, thread of process 7, correlation id, function, chain and result.
type SampleCall = (i64, i64, i64, i64, i64, i64, &'static str, i64);

/// The statements that add these calls.
fn calls(calls: &[SampleCall]) -> String {
    let row = |call: &SampleCall| {
        let (start, end, class, thread, correlation, name, chain, result) = call;
        let thread = P | thread;
        format!("({start}, {end}, {class}, {thread}, {correlation}, {name}, {chain}, {result})")
    };
    let rows: Vec<_> = calls.iter().map(row).collect();
    let rows = rows.join(", ");
    format!("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES {rows};")
}

fn database(sql: &str) -> (tempfile::TempDir, Database) {
    let (folder, path) = file(&format!("CREATE TABLE StringIds (id, value); {sql}"));
    (folder, Database::open(&path).unwrap())
}

/// Items of the tables up to the number after which no rows are wanted, and the counts of calls.
fn read_some(
    database: &Database,
    at_most: Option<usize>,
    filter: RowFilter,
) -> (Vec<String>, Counts) {
    let mut items = Vec::new();
    let mut take = |item| {
        items.push(shown(&item));
        Ok(match at_most == Some(items.len()) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    };
    let (calls, _) = each(database, filter, &mut take).unwrap();
    (items, calls)
}

fn read(sql: &str) -> Vec<String> {
    let (_folder, database) = database(&format!("{TABLES}{sql}"));
    read_some(&database, None, RowFilter::default()).0
}

const RUNTIME: i64 = 0;
const DRIVER: i64 = 1;
const BACKTRACE: i64 = 67;

#[test]
fn an_event_of_an_export_is_of_the_best_call_around_it() {
    let calls = calls(&[
        (10, 20, RUNTIME, 8, 0, 1, "NULL", 0),
        (30, 40, RUNTIME, 8, 0, 1, "5", 0),
        (50, 60, RUNTIME, 8, 0, 1, "NULL", 0),
        (51, 59, DRIVER, 8, 0, 2, "NULL", 0),
        (70, 80, RUNTIME, 8, 0, 1, "NULL", 0),
        (71, 79, DRIVER, 8, 0, 2, "NULL", 0),
        (71, 79, BACKTRACE, 8, 0, 2, "6", 0),
        (90, 95, 9, 9, 0, 3, "NULL", 0),
        (91, 94, 9, 9, 0, 4, "NULL", 0),
        (100, 110, RUNTIME, 8, 77, 1, "NULL", 0),
        (101, 109, DRIVER, 8, 78, 2, "NULL", 0),
    ]);
    for (event, correlation, expected) in [
        (9, 0, "invalid - -"),
        (10, 0, "invalid 1 -"),
        (20, 0, "invalid 1 -"),
        (21, 0, "invalid - -"),
        (35, 0, "valid 1 5"),
        (50, 0, "invalid 1 -"),
        (51, 0, "driver 2 -"),
        (59, 0, "driver 2 -"),
        (60, 0, "invalid 1 -"),
        (75, 0, "valid 2 6"),
        (92, 0, "invalid 4 -"),
        (105, 77, "invalid 1 -"),
        (105, 78, "driver 2 -"),
        (105, 79, "invalid - -"),
    ] {
        let sql = format!("{calls}{}", events(P, &[(event, correlation)]));
        let items = read(&sql);
        assert_eq!(items, [format!("{event} {expected}")]);
    }
    // Calls of another process.
    let sql = format!("{calls}{}", events(Q, &[(15, 0)]));
    let items = read(&sql);
    assert_eq!(items, ["15 invalid - -"]);
    // A call of long ago may be around a later event.
    let sql = format!(
        "{calls}{}",
        events(P, &[(15, 0), (18, 0), (35, 0), (75, 0)])
    );
    let items = read(&sql);
    let expected = [
        "15 invalid 1 -",
        "18 invalid 1 -",
        "35 valid 1 5",
        "75 valid 2 6",
    ];
    assert_eq!(items, expected);
}

#[test]
fn calls_are_counted_by_function_and_result() {
    let sql = calls(&[
        (10, 20, RUNTIME, 8, 0, 1, "NULL", 0),
        // Nested in it, on another thread, behind it, and a duplicate.
        (19, 20, DRIVER, 8, 0, 2, "NULL", 0),
        (19, 20, DRIVER, 9, 0, 2, "NULL", 0),
        (20, 22, DRIVER, 8, 0, 2, "NULL", 3),
        (20, 22, BACKTRACE, 8, 0, 2, "6", 0),
        (30, 40, RUNTIME, 8, 0, 1, "NULL", 1),
        (50, 60, RUNTIME, 8, 0, 1, "NULL", 0),
    ]) + &events(P, &[(10, 0)]);
    let counted = |pid, from_ns, to_ns| {
        let filter = RowFilter {
            pid,
            device: None,
            from_ns,
            to_ns,
        };
        let (_folder, database) = database(&format!("{TABLES}{sql}"));
        let (_, calls) = read_some(&database, None, filter);
        let count = |function| calls.get(&function).copied().unwrap_or_default();
        [count(1), count(2)]
    };
    assert_eq!(counted(None, None, None), [[2, 1], [1, 1]]);
    assert_eq!(counted(Some(7), None, None), [[2, 1], [1, 1]]);
    assert_eq!(counted(Some(3), None, None), [[0; 2]; 2]);
    // From the first event on.
    assert_eq!(counted(None, Some(10), None), [[1, 1], [0, 1]]);
    assert_eq!(counted(None, Some(11), None), [[1, 1], [0, 0]]);
    assert_eq!(counted(None, None, Some(20)), [[1, 1], [1, 1]]);
    assert_eq!(counted(None, None, Some(19)), [[1, 0], [1, 1]]);
}

#[test]
fn invalid_rows_are_counted() {
    let sql = format!(
        "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES
            (1, {P}, 3, -4096, 64, 300, 1, 'table', 0), (2, {P}, NULL, 1, 0, NULL, 0, '', 5),
            (3, {P}, 0, 1, -1, 2, 0, NULL, 0), (4, {P}, 0, 1, 1, 2, 2, NULL, 0),
            (NULL, {P}, 0, 1, 1, 2, 0, NULL, 0);"
    );
    let mut rows = Vec::new();
    let (_folder, database) = database(&format!("{TABLES}{sql}"));
    let mut take = |item| {
        if let MemoryItem::Row(row, _) = item {
            rows.push(row);
        }
        Ok(ControlFlow::Continue(()))
    };
    let (_, malformed) = each(&database, RowFilter::default(), &mut take).unwrap();
    assert_eq!(malformed, 3);
    let (_folder, none) = self::database("");
    let error = each(&none, RowFilter::default(), &mut take).unwrap_err();
    assert!(error.to_string().contains("--cuda-memory-usage=true"));
    let free = MemoryRow {
        start_ns: 1,
        process: P,
        device: 3,
        address: 4096u64.wrapping_neg(),
        bytes: 64,
        kind: 7,
        allocates: false,
        variable: Some("table".into()),
        correlation: None,
    };
    let allocation = MemoryRow {
        start_ns: 2,
        device: 0,
        address: 1,
        bytes: 0,
        allocates: true,
        variable: None,
        correlation: Some(5),
        ..free.clone()
    };
    assert_eq!(rows, [free, allocation]);
}

#[test]
fn a_recording_has_ends_and_events_without_a_call() {
    let calls = calls(&[
        (10, 20, RUNTIME, 8, 1, 1, "5", 0),
        (30, 40, RUNTIME, 8, 2, 2, "NULL", 0),
        (30, 40, DRIVER, 8, 2, 3, "NULL", 0),
        (50, 60, RUNTIME, 8, 3, 4, "NULL", 0),
    ]);
    let ends =
        format!("INSERT INTO GPUPROBE_ENDS VALUES (2, {P}, 25), (3, {P}, 70), (1, NULL, 1);");
    let ours = "CREATE TABLE GPUPROBE_META (key, val);";
    let events = events(P, &[(20, 1), (20, 0), (30, 2), (40, 2), (55, 4)]);
    let sql = format!("{ours}{calls}{events}{ends}");
    let items = read(&sql);
    let expected = [
        "20 valid 1 5",
        "20 invalid - -",
        "end 0 25",
        "30 driver 3 -",
        "40 driver 3 -",
        "55 invalid - -",
        "end 0 70",
    ];
    assert_eq!(items, expected);
    let (_folder, database) = database(&format!("{TABLES}{sql}"));
    let (items, calls) = read_some(&database, Some(2), RowFilter::default());
    assert_eq!(
        items,
        ["20 valid 1 5", "20 invalid - -", "end 0 25", "end 0 70"]
    );
    assert_eq!(calls.len(), 3, "all calls are counted");
    let (_folder, only_ends) = self::database(&format!(
        "CREATE TABLE GPUPROBE_ENDS (correlationId, globalPid, t0); {ours}{ends}"
    ));
    let (items, _) = read_some(&only_ends, None, RowFilter::default());
    assert_eq!(items, ["end 0 25", "end 0 70"]);
}

#[test]
fn an_end_at_the_time_of_an_event_comes_after_it() {
    let sql = format!(
        "{} INSERT INTO GPUPROBE_ENDS VALUES (0, {Q}, 9), (0, {P}, 10);",
        events(P, &[(10, 0), (11, 0)])
    );
    let items = read(&sql);
    let of_other = format!("end {} 9", Q - P);
    let expected = [&of_other, "10 invalid - -", "end 0 10", "11 invalid - -"];
    assert_eq!(items, expected);
}

#[test]
fn rows_out_of_order_are_sorted() {
    let calls = [(40, 60), (10, 30)].map(|(start, end)| (start, end, RUNTIME, 8, 0, start, "1", 0));
    let sql = self::calls(&calls) + &events(P, &[(50, 0), (20, 0), (50, 0)]);
    let expected = ["20 valid 10 1", "50 valid 40 1", "50 valid 40 1"];
    assert_eq!(read(&sql), expected);
}

#[test]
fn nothing_is_taken_after_a_break_or_an_error() {
    let many: Vec<_> = (1..=20).map(|start| (start, 0)).collect();
    let ends = format!("INSERT INTO GPUPROBE_ENDS VALUES (0, {P}, 2), (0, {P}, 19000);");
    let sql = format!("{TABLES}{}{ends}", events(P, &many));
    let (_folder, database) = database(&sql);
    let (items, _) = read_some(&database, Some(5), RowFilter::default());
    assert_eq!(items.len(), 6);
    assert_eq!([&items[2], &items[5]], ["end 0 2", "end 0 19000"]);
    let mut count = 0;
    let mut failing = |_| {
        count += 1;
        anyhow::ensure!(count < 3, "no more");
        Ok(ControlFlow::Continue(()))
    };
    let error = each(&database, RowFilter::default(), &mut failing).unwrap_err();
    assert_eq!((error.to_string().as_str(), count), ("no more", 3));
}
