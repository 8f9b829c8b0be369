//! Hostile files.

use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use rusqlite::Connection;

use crate::bad::{OLD, events};
use crate::corpus::{inputs, replay};
use crate::{Folder, gpuprobe, report_json};

#[path = "../../fuzz/entry/collector.rs"]
mod collector;
#[path = "../../fuzz/entry/report.rs"]
pub(crate) mod report;

/// Seeds of the fuzz target `database`: a recording, an nsys export, and an old one.
pub(crate) const SEEDS: [&str; 3] = ["recording.sqlite", "export.sqlite", "old.sqlite"];

/// The input `name` of `target`.
fn input(target: &str, name: &str) -> Vec<u8> {
    let mut inputs = inputs(target).into_iter();
    inputs.find(|input| input.name == name).unwrap().bytes
}

/// One of `SEEDS`, as a file in `folder`.
pub(crate) fn seed(folder: &Folder, name: &str) -> PathBuf {
    static ALL: LazyLock<[Vec<u8>; 3]> =
        LazyLock::new(|| SEEDS.map(|name| input("database", name)));
    let which = SEEDS.iter().position(|&seed| seed == name).unwrap();
    let path = folder.path(name);
    fs::write(&path, &ALL[which]).unwrap();
    path
}

/// The seed of `events`: the log of a run.
fn session() -> &'static [u8] {
    static SESSION: LazyLock<Vec<u8>> = LazyLock::new(|| input("events", "session"));
    &SESSION
}

/// Replays the corpora: seeds and past findings of the fuzz targets.
#[test]
fn the_corpora() {
    let folder = Folder::new();
    replay("database", move |bytes| {
        let file = folder.path("file.sqlite");
        fs::write(&file, bytes).unwrap();
        report::analyse(&file, &folder.path("."));
    });
    let events: usize = replay("events", report::play).iter().sum();
    assert!(events > 5, "{events}");
    let events: usize = replay("tensors", report::play_tensors).iter().sum();
    assert!(events > 100, "{events}");
    let folder = Folder::new();
    replay("texts", move |text| {
        report::plot_text(&String::from_utf8_lossy(text), &folder.path("a.svg"));
    });
    let reduced: u64 = replay("cupti", collector::reduce).iter().sum();
    assert!(reduced > 90, "{reduced}");
    let parsed: usize = replay("batch", collector::parse).iter().sum();
    assert!(parsed > 10, "{parsed}");
}

/// Reproducing a failure starts with the input.
#[test]
fn an_input_that_panics_is_named() {
    let bad = input("batch", "every-kind");
    let replayed = catch_unwind(|| replay("batch", move |bytes| assert!(bytes != bad)));
    let said = replayed.unwrap_err();
    let said = said.downcast_ref::<String>().unwrap();
    assert!(said.ends_with("[\"batch/every-kind\"]"), "{said}");
}

/// The seeds are valid: each is read to the end, and has rows.
#[test]
fn seeds_are_valid() {
    for name in SEEDS {
        let folder = Folder::new();
        let file = seed(&folder, name);
        let found = report_json(&file, &["--analysis", "watermark"]);
        assert!(
            found["totals"]["total"]["bytes"].as_u64().unwrap() > 0,
            "{name}"
        );
        report::analyse(&file, &folder.path("."));
        let trace = fs::read_to_string(folder.path("trace.json")).unwrap();
        assert!(trace.contains("\"ph\":\"C\""), "{name}: {trace}");
    }
    let events = report::play(session());
    assert!(events > 10, "{events}");
    // A log has the version of the program that wrote it; for another version there is a message.
    let folder = Folder::new();
    let recording = seed(&folder, "recording.sqlite");
    let output = gpuprobe(&["replay", recording.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    let is_older = said.contains("whose records this version does not know");
    assert_ne!(output.status.success(), is_older, "{said}");
    assert_ne!(output.stdout.is_empty(), output.status.success());
}

#[test]
fn enormous_schemas_are_read() {
    let folder = Folder::new();
    let columns: Vec<_> = (0..1900).map(|n| format!("c{n}")).collect();
    let mut sql = format!("{OLD} {} BEGIN;", events(&[(10, 1, 5, 0)]));
    for table in 0..2_000 {
        sql += &format!("CREATE TABLE t{table} (x);");
    }
    sql += &format!("CREATE TABLE wide ({});", columns.join(", "));
    let deep = "(".repeat(500) + "1" + &")".repeat(500);
    sql += &format!("CREATE TABLE deep (x DEFAULT ({deep}), CHECK (x > {deep})); COMMIT;");
    let file = folder.database(&sql);
    let began = Instant::now();
    let found = report_json(&file, &["--analysis", "watermark"]);
    assert_eq!(found["totals"]["total"]["bytes"], 5);
    assert!(began.elapsed() < Duration::from_secs(60));
}

/// A value of any type, with unusual ones more often.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("NULL".to_owned()),
        Just("9223372036854775807".to_owned()),
        Just("-9223372036854775808".to_owned()),
        Just("9e999".to_owned()),
        Just("-1".to_owned()),
        Just("X'00ff80'".to_owned()),
        Just("'\u{1b}[31m'".to_owned()),
        Just("zeroblob(70000)".to_owned()),
        (0..9i64).prop_map(|number| number.to_string()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f32>()
            .prop_filter("a number", |number| number.is_finite())
            .prop_map(|number| format!("{number:e}")),
    ]
}

/// The seeds, with random values in all columns.
fn strange() -> impl Strategy<Value = (usize, Vec<(usize, usize, String)>)> {
    let changes = vec((any::<usize>(), any::<usize>(), value()), 1..24);
    (0..SEEDS.len(), changes)
}

/// The columns of all tables, after their constraints are removed.
fn loosen(connection: &Connection) -> Vec<(String, String)> {
    let sql = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c
               WHERE m.type = 'table' AND m.name NOT LIKE 'ENUM%' ORDER BY 1, c.cid";
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    let columns: Vec<(String, String)> = columns.unwrap().map(Result::unwrap).collect();
    let mut names: Vec<_> = columns.iter().map(|(table, _)| table.clone()).collect();
    names.dedup();
    for name in names {
        let sql = format!(
            "CREATE TABLE loose AS SELECT * FROM \"{name}\"; DROP TABLE \"{name}\";
             ALTER TABLE loose RENAME TO \"{name}\";"
        );
        connection.execute_batch(&sql).unwrap();
    }
    columns
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_values_in_all_columns((which, changes) in strange()) {
        let folder = Folder::new();
        let file = seed(&folder, SEEDS[which]);
        let connection = Connection::open(&file).unwrap();
        connection.execute_batch("PRAGMA synchronous = OFF; BEGIN").unwrap();
        let columns = loosen(&connection);
        for (column, nth, value) in changes {
            let (table, column) = &columns[column % columns.len()];
            let sql = format!(
                "UPDATE \"{table}\" SET \"{column}\" = {value}
                 WHERE (rowid + {}) % 3 = 0", nth % 3
            );
            connection.execute_batch(&sql).unwrap();
        }
        connection.execute_batch("COMMIT").unwrap();
        drop(connection);
        report::analyse(&file, &folder.path("."));
    }

    #[test]
    fn random_bytes_in_the_file(
        which in 0..SEEDS.len(),
        changes in vec((any::<usize>(), any::<u8>(), 1..32usize), 1..16),
    ) {
        let folder = Folder::new();
        let file = seed(&folder, SEEDS[which]);
        let mut bytes = fs::read(&file).unwrap();
        for (at, byte, count) in changes {
            // Not the first bytes, which make it a database.
            let at = 16 + at % (bytes.len() - 16);
            let end = (at + count).min(bytes.len());
            bytes[at..end].fill(byte);
        }
        fs::write(&file, &bytes).unwrap();
        report::analyse(&file, &folder.path("."));
    }

    #[test]
    fn any_records(changes in vec((any::<usize>(), any::<u64>(), 1..9usize), 1..64)) {
        let mut log = session().to_vec();
        for (at, value, count) in changes {
            let at = at % (log.len() - 8);
            log[at..at + count.min(8)].copy_from_slice(&value.to_le_bytes()[..count.min(8)]);
        }
        report::play(&log);
    }

    #[test]
    fn any_samples(
        lines in vec("[-+]?[0-9]{1,6}/[01]?[0-9]/[0-3][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}.[0-9]{0,12}, [0-9]{0,3}, [0-9e.+-]{1,9}( [KMGB]iB)?", 1..20),
        numbers in vec([any::<i64>(), any::<i64>(), any::<i64>(), any::<i64>(), any::<i64>()], 0..20),
    ) {
        let folder = Folder::new();
        report::plot_text(&lines.join("\n"), &folder.path("a.svg"));
        let usage: Vec<_> = numbers.iter().map(|row| row.map(|n| n.to_string()).join(",")).collect();
        report::plot_text(&usage.join("\n"), &folder.path("a.svg"));
    }
}
