//! Invalid and damaged files.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use rusqlite::Connection;

use crate::{Folder, allocations, gpuprobe, report, report_json};

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

fn refused(file: &Path) -> String {
    let output = gpuprobe(&["report", file.to_str().unwrap(), "--analysis", "watermark"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(
        said.starts_with("gpuprobe: error: ") && said.lines().count() == 1,
        "{said}"
    );
    said
}

#[test]
fn non_databases_are_refused() {
    let folder = Folder::new();
    let file = folder.path("file");
    assert!(refused(&file).contains("cannot open"));
    fs::write(&file, "").unwrap();
    assert!(refused(&file).contains("is empty"));
    fs::write(&file, "time,bytes\n1,2\n").unwrap();
    assert!(refused(&file).contains("is not an SQLite database"));
    fs::write(&file, b"SQLite format 3\0and then nothing that is right").unwrap();
    assert!(refused(&file).contains("is not an SQLite database"));
    assert!(refused(folder.path(".").as_path()).contains("it is no regular file"));
}

#[test]
fn databases_of_other_programs_are_refused() {
    let folder = Folder::new();
    let file = folder.database("CREATE TABLE places (id INTEGER, url TEXT);");
    let file = file.to_str().unwrap();
    let export = folder.real_export();
    let picture = folder.path("memory.svg");
    for words in [
        &["report", file][..],
        &["report", file, "--format", "json"],
        &["report", export.to_str().unwrap(), "--diff", file],
        &["plot", file, "-o", picture.to_str().unwrap()],
        &["export", file],
        &["replay", file],
    ] {
        let output = gpuprobe(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{words:?}");
        assert!(output.stdout.is_empty(), "{words:?}");
        let expected = format!(
            "gpuprobe: error: {file} is an SQLite database, but neither a recording of gpuprobe \
             (--record) nor an export of Nsight Systems"
        );
        assert!(said.starts_with(&expected), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn export_without_a_version_is_read() {
    let folder = Folder::new();
    let text = report(&folder.database(OLD), &[]);
    assert_eq!(
        text.lines().next(),
        Some("Nsight Systems (version unknown)")
    );
    let folder = Folder::new();
    let told = "CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
        INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '2.4');";
    let text = report(&folder.database(told), &[]);
    let expected = "Nsight Systems (version unknown), tables of version 2.4";
    assert_eq!(text.lines().next(), Some(expected));
}

#[test]
fn a_file_cut_short_is_refused() {
    let folder = Folder::new();
    let file = folder.real_export();
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 3]).unwrap();
    assert!(refused(&file).contains("damaged or cut short"));
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
fn what_is_no_file_is_not_waited_for() {
    let folder = Folder::new();
    let fifo = folder.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let fifo = fifo.to_str().unwrap();
    let export = folder.real_export();
    let (export, picture) = (export.to_str().unwrap(), folder.path("picture.svg"));
    let picture = picture.to_str().unwrap();
    for words in [
        &["report", fifo][..],
        &["report", export, "--diff", fifo],
        &["report", "/dev/zero"],
        &["replay", fifo],
        &["plot", export, "--smi", "/dev/zero", "-o", picture],
        &["plot", "--usage", "/dev/zero", "-o", picture],
    ] {
        let output = gpuprobe(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{words:?}");
        assert!(said.contains("it is no regular file"), "{words:?}: {said}");
    }
}

#[test]
fn export_without_memory_events_names_the_nsys_option() {
    let folder = Folder::new();
    let file = folder.database("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);");
    assert!(refused(&file).contains("--cuda-memory-usage=true"));
    // The page has no memory events, and its text says so.
    assert!(report(&file, &[]).contains("no memory events"));
}

#[test]
fn a_locked_file_is_named() {
    let folder = Folder::new();
    let file = folder.database(OLD);
    let holder = Connection::open(&file).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert!(refused(&file).contains("locked by another program"));
}

#[test]
fn anomalies_are_counted_and_reported() {
    let folder = Folder::new();
    let rows = [
        (10, 1, 5, 1),
        (20, 2, 8, 0),
        (30, 2, 9, 0),
        (40, 2, 7, 1),
        (50, 3, 1, 5),
    ];
    let file = folder.database(&(OLD.to_owned() + &events(&rows)));
    let found = report_json(&file, &["--analysis", "watermark"]);
    let findings = &found["findings"];
    assert_eq!(findings["unmatched_frees"], 1);
    assert_eq!(findings["double_allocations"], 1);
    assert_eq!(findings["size_mismatches"], 1);
    assert_eq!(findings["malformed"], 1);
    assert_eq!(found["totals"]["total"]["bytes"], 9);
    let text = report(&file, &["--analysis", "leakage"]);
    assert!(
        text.contains("note: 1 frees of memory that was not seen to be allocated"),
        "{text}"
    );
}

#[test]
fn rows_out_of_order_are_sorted() {
    let folder = Folder::new();
    let mut rows: Vec<_> = (0..40_000).map(|n| (n * 10, n, 1, 0)).collect();
    // Far beyond the reordering window.
    rows.push((1, 0, 1, 1));
    let file = folder.database(&format!("{OLD} BEGIN; {} COMMIT;", events(&rows)));
    for arguments in [["--analysis", "watermark"], ["--analysis", "leakage"]] {
        let found = report_json(&file, &arguments);
        assert_eq!(found["totals"]["total"]["bytes"], 39_999, "{arguments:?}");
    }
    let usage = report(&file, &["--analysis", "usage", "--format", "csv"]);
    assert_eq!(usage.lines().nth(2), Some("1,0,0,0,0"));
    assert_eq!(usage.lines().count(), 1 + 40_001);
    // Reading starts over when the disorder is met.
    let out = folder.path("usage.csv");
    let arguments = [
        "--analysis",
        "usage",
        "--format",
        "csv",
        "-o",
        out.to_str().unwrap(),
    ];
    report(&file, &arguments);
    assert_eq!(fs::read_to_string(&out).unwrap(), usage);
}

#[test]
fn chains_of_old_exports_are_off_by_one() {
    let folder = Folder::new();
    let tid = (1i64 << 48) + (1 << 24) + 1;
    let names =
        "INSERT INTO StringIds VALUES (0, 'first'), (1, 'second'), (2, 'm'), (3, 'cudaMalloc');";
    let chains = "INSERT INTO CUDA_CALLCHAINS VALUES (1, 0, 2, NULL, 1, 0), (2, 1, 2, NULL, 1, 0);";
    let calls = format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (5, 15, 67, {tid}, 1, 3, 0, 0),
            (20, 30, 67, {tid}, 2, 3, 0, 1);"
    );
    let sql = [
        OLD,
        names,
        chains,
        &calls,
        &events(&[(10, 1, 5, 0), (25, 2, 4, 0)]),
    ]
    .concat();
    let found = report_json(&folder.database(&sql), &["--analysis", "leakage"]);
    let functions: Vec<_> = (0..2)
        .map(|row| allocations(&found)[row]["stack"][0]["function"].clone())
        .collect();
    assert_eq!(functions, ["first", "second"]);
}

#[test]
fn enormous_stacks_are_truncated() {
    let folder = Folder::new();
    let tid = (1i64 << 48) + (1 << 24) + 1;
    let sql = format!(
        "{OLD} {} INSERT INTO StringIds VALUES (1, 'f'), (2, 'cudaMalloc');
         INSERT INTO StringIds SELECT 3, hex(zeroblob(40000000));
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (5, 15, 67, {tid}, 1, 2, 0, 1);
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)
         INSERT INTO CUDA_CALLCHAINS SELECT 1, 1 + 2 * (i = 0), 1, NULL, i, i FROM n;",
        events(&[(10, 1, 5, 0)])
    );
    let found = report_json(&folder.database(&sql), &["--analysis", "leakage"]);
    let first = &allocations(&found)[0];
    let stack = first["stack"].as_array().unwrap();
    assert_eq!(stack.len(), 1024);
    assert_eq!(stack[0]["function"], "[too long]");
    assert_eq!(stack[1]["function"], "f");
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let folder = Folder::new();
    let tid = (1i64 << 48) + (1 << 24) + 1;
    let sql = format!(
        "{OLD} {} INSERT INTO StringIds VALUES (1, char(27) || '[31m' || char(10));
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (5, 15, 1, {tid}, 0, 1, 0, NULL);",
        events(&[(10, 1, 5, 0)])
    );
    let text = report(&folder.database(&sql), &["--analysis", "leakage"]);
    assert!(
        !text.contains('\u{1b}') && text.contains("driver 5 bytes in 1"),
        "{text}"
    );
}

#[test]
fn a_full_disk_is_one_clear_line() {
    let folder = Folder::new();
    let file = folder.real_export();
    let mut full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    assert!(full.write_all(b"x").is_err());
    let output = gpuprobe(&["report", file.to_str().unwrap(), "-o", "/dev/full"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("gpuprobe: error: cannot write the report"),
        "{said}"
    );
}
