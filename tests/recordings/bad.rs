//! Old exports, and a file that is locked.

use rusqlite::Connection;

use crate::{Folder, gpuprobe};

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
