//! Invalid and damaged files.

use std::fs;

use rusqlite::Connection;

use crate::{Folder, gpuprobe, report, report_json, sites};

/// The tables of an old export: few columns, no metadata.
pub(crate) const OLD: &str = "
    CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, address INTEGER NOT NULL,
        pc INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER NOT NULL,
        memoryOperationType INTEGER NOT NULL, name TEXT, correlationId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
        eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
        nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
    CREATE TABLE CUDA_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER NOT NULL,
        module INTEGER NOT NULL, unresolved INTEGER, originalIP INTEGER,
        stackDepth INTEGER NOT NULL, PRIMARY KEY (id, stackDepth));";

/// An event of process 1: `(start, address, bytes, operation)`.
pub(crate) fn events(rows: &[(i64, i64, i64, i64)]) -> String {
    let insert = |(start, address, bytes, operation): &(i64, i64, i64, i64)| {
        format!(
            "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES \
             ({start}, {}, 0, 1, {address}, 0, {bytes}, 2, {operation}, NULL, 0);",
            (1i64 << 48) + (1 << 24)
        )
    };
    rows.iter().map(insert).collect()
}

#[test]
fn a_damaged_page_is_refused() {
    let folder = Folder::new();
    let file = folder.real_export();
    let mut bytes = fs::read(&file).unwrap();
    for page in 20..60 {
        bytes[page * 4096..page * 4096 + 64].fill(0xa5);
    }
    fs::write(&file, &bytes).unwrap();
    let output = gpuprobe(&["report", file.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_locked_file_is_named() {
    let folder = Folder::new();
    let file = folder.database(OLD);
    let holder = Connection::open(&file).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let output = gpuprobe(&["report", file.to_str().unwrap(), "--analysis", "watermark"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("locked by another program"), "{said}");
}

/// More rows than the widest reordering window has.
const ROWS: i64 = 17_000;

#[test]
fn rows_out_of_order_are_sorted() {
    let folder = Folder::new();
    let mut rows: Vec<_> = (0..ROWS).map(|n| (n * 10, n, 1, 0)).collect();
    rows.push((1, 0, 1, 1));
    let file = folder.database(&format!("{OLD} BEGIN; {} COMMIT;", events(&rows)));
    for arguments in [["--analysis", "watermark"], ["--analysis", "leakage"]] {
        let found = report_json(&file, &arguments);
        assert_eq!(found["totals"]["total"]["bytes"], ROWS - 1, "{arguments:?}");
    }
    let usage = report(&file, &["--analysis", "usage", "--format", "csv"]);
    assert_eq!(usage.lines().nth(2), Some("1,0,0,0,0"));
    assert_eq!(usage.lines().count(), 1 + 17_001);
    // Reading starts over when the disorder is met.
    let out = folder.path("usage.csv");
    let usage_to = ["--analysis", "usage", "--format", "csv", "-o"];
    report(&file, &[&usage_to[..], &[out.to_str().unwrap()]].concat());
    assert_eq!(fs::read_to_string(&out).unwrap(), usage);
}

#[test]
fn enormous_stacks_are_truncated() {
    let folder = Folder::new();
    let tid = (1i64 << 48) + (1 << 24) + 1;
    let sql = format!(
        "{OLD} {} INSERT INTO StringIds VALUES (1, 'f'), (2, 'cudaMalloc');
         INSERT INTO StringIds SELECT 3, hex(zeroblob(34000000));
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (5, 15, 67, {tid}, 1, 2, 0, 1);
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
         INSERT INTO CUDA_CALLCHAINS SELECT 1, 1 + 2 * (i = 0), 1, NULL, i, i FROM n;",
        events(&[(10, 1, 5, 0)])
    );
    let found = report_json(&folder.database(&sql), &["--analysis", "leakage"]);
    let stack = sites(&found)[0]["stack"].clone();
    let stack = stack.as_array().unwrap();
    assert_eq!(stack.len(), 1024);
    assert_eq!(stack[0]["function"], "[too long]");
    assert_eq!(stack[1]["function"], "f");
}
