use std::fs;

use rusqlite::ffi;

use super::file::log_of;
use super::*;
use crate::tests::{database, file};

const ROWS: &str = "
    CREATE TABLE NVTX_EVENTS (start, text);
    INSERT INTO NVTX_EVENTS (rowid, start, text) VALUES (5, 30, 'a'), (9, NULL, 'b'), (7, 10, 'c');
    CREATE TABLE empty (start);
    CREATE VIEW shown AS SELECT * FROM NVTX_EVENTS;";

#[test]
fn tables_are_read_by_name_and_column() {
    let database = database(ROWS);
    assert!(database.has_table("NVTX_EVENTS") && database.has_table("empty"));
    assert!(!database.has_table("shown") && !database.has_table("none"));
    assert!(database.has_column("NVTX_EVENTS", "text"));
    assert!(!database.has_column("empty", "text") && !database.has_column("none", "text"));
    let rows = |table| database.has_rows(table).unwrap();
    assert_eq!(
        ["NVTX_EVENTS", "empty", "none"].map(rows),
        [true, false, false]
    );
    let limit = |column, order| database.limit("NVTX_EVENTS", column, order).unwrap();
    assert_eq!(
        (limit("start", "ASC"), limit("start", "DESC")),
        (Some(10), Some(30))
    );
    assert_eq!(limit("none", "ASC"), None);
    assert_eq!(database.limit("empty", "start", "ASC").unwrap(), None);
    // By the first and the last row.
    let count = |table| database.count(table);
    assert_eq!(["NVTX_EVENTS", "empty", "none"].map(count), [5, 0, 0]);
    let mut found = Vec::new();
    let take = |row: &rusqlite::Row<'_>| {
        found.push((row::integer(row, 0), row::text(row, 1), row::text(row, 2)));
    };
    let columns = "start, text, none";
    database
        .each("NVTX_EVENTS", columns, "ORDER BY none, rowid", take)
        .unwrap();
    let text = |text: &str| Some(text.to_owned());
    let expected = [
        (Some(30), text("a"), None),
        (Some(10), text("c"), None),
        (None, text("b"), None),
    ];
    assert_eq!(found, expected);
    assert!(database.select("none", "a", "").unwrap().is_none());
    assert!(database.prepare("SELECT nonsense FROM empty").is_err());
    assert!(!database.is_ours());
    let ours = self::database("CREATE TABLE GPUPROBE_META (key, val)");
    assert!(ours.is_ours() && ours.path().ends_with("trace.sqlite"));
}

#[test]
fn nothing_that_the_file_defines_is_run() {
    let database = database(ROWS);
    let query = |sql: &str| {
        let mut statement = database.prepare(sql)?;
        let value = statement.query_row([], |row| Ok(row::integer(row, 0)));
        value.map_err(|error| database.explain(error))
    };
    assert_eq!(query("PRAGMA query_only").unwrap(), Some(1));
    assert_eq!(query("PRAGMA trusted_schema").unwrap(), Some(0));
    assert_eq!(query("PRAGMA cache_size").unwrap(), Some(-32768));
    assert!(query("SELECT count(*) FROM shown").is_err());
    assert!(query("SELECT length(zeroblob(67108864))").unwrap() == Some(64 << 20));
    let error = query("SELECT length(zeroblob(67108865))").unwrap_err();
    assert!(error.to_string().contains("more than 64 MiB"), "{error}");
}

#[test]
fn endless_queries_are_interrupted() {
    let database = database(ROWS);
    let count_to = |limit: u64| {
        let sql = format!(
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT {limit})
            SELECT count(*) FROM n"
        );
        let mut statement = database.prepare(&sql).unwrap();
        statement.query_row([], |row| Ok(row::integer(row, 0)))
    };
    // Some ten instructions for each.
    assert_eq!(count_to(100_000), Ok(Some(100_000)));
    let error = database.explain(count_to(10_000_000_000).unwrap_err());
    assert!(error.to_string().contains("more rows than its size allows"));
}

#[test]
fn files_that_are_no_traces_are_refused() {
    let refused = |bytes: Option<&[u8]>, sql: &str| {
        let (_folder, path) = file(sql);
        if let Some(bytes) = bytes {
            fs::write(&path, bytes).unwrap();
        }
        Database::open(&path).unwrap_err().to_string()
    };
    assert!(refused(Some(b""), "").ends_with("is empty"));
    assert!(refused(Some(b"SQLite format"), "").contains("is not an SQLite database"));
    assert!(refused(Some(b"some text of more bytes"), "").contains("nsys export"));
    let none = refused(None, "CREATE TABLE other (a)");
    assert!(none.contains("it has none of their tables"), "{none}");
    for (table, is_one) in [
        ("StringIds", true),
        ("CUPTI_ACTIVITY_KIND_X", true),
        ("TARGET_INFO_GPU", true),
        ("GPUPROBE_META", true),
        ("stringids", false),
        ("A_GPUPROBE_", false),
    ] {
        assert_eq!(is_trace_table(table), is_one, "{table}");
    }
}

#[test]
fn errors_name_the_cause_and_the_way_out() {
    let (_folder, path) = file("");
    let said = |code| {
        let failure = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        explain(&path, failure).to_string()
    };
    for (code, part) in [
        (ffi::SQLITE_NOTADB, "is not an SQLite database"),
        (ffi::SQLITE_CORRUPT, "is damaged or cut short"),
        (ffi::SQLITE_INTERRUPT, "more rows than its size allows"),
        (ffi::SQLITE_BUSY, "is locked by another program"),
        (ffi::SQLITE_LOCKED, "is locked by another program"),
        (ffi::SQLITE_TOOBIG, "has a value of more than 64 MiB"),
        (ffi::SQLITE_CANTOPEN, "cannot read"),
        (ffi::SQLITE_READONLY, "cannot read"),
        (ffi::SQLITE_FULL, "cannot read"),
    ] {
        assert!(said(code).contains(part), "{code}: {}", said(code));
    }
    let own = fs::metadata(&path).unwrap().len();
    assert_eq!(bytes(&path), own);
    fs::write(log_of(&path), [0; 7]).unwrap();
    assert_eq!(bytes(&path), own + 7);
    for code in [ffi::SQLITE_CANTOPEN, ffi::SQLITE_READONLY] {
        assert!(said(code).contains("was not closed"), "{}", said(code));
    }
    assert!(said(ffi::SQLITE_FULL).contains("cannot read"));
}

#[test]
fn no_more_is_read_than_the_file_has() {
    let (_folder, path) = file("CREATE TABLE StringIds (id, value)");
    let database = Database::open(&path).unwrap();
    let size = fs::metadata(&path).unwrap().len();
    assert!(database.check_has(size).is_ok());
    let error = database.check_has(size + 1).unwrap_err();
    assert!(error.to_string().contains("more rows than its size allows"));
}
