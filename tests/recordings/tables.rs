//! The tables of `gpuprobe report`, compared with SQL queries of the same file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::{Folder, gpuprobe, report, report_json};

type TableRow = HashMap<String, String>;

/// The real export with NVTX ranges added.
fn with_ranges(folder: &Folder) -> PathBuf {
    let file = folder.real_export();
    let connection = Connection::open(&file).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, \"end\" INTEGER, eventType INTEGER NOT \
             NULL, rangeId INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, \
             textId INTEGER, domainId INTEGER);
             INSERT INTO StringIds (id, value) VALUES (900001, 'registered'), (900002, 'my domain');",
        )
        .unwrap();
    let sql = "SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1";
    let thread: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    let insert = |row: (i64, Option<i64>, i64, Option<&str>, Option<i64>, i64)| {
        let (start, end, kind, text, text_id, domain) = row;
        let sql = "INSERT INTO NVTX_EVENTS (start, \"end\", eventType, text, globalTid, textId, \
                   domainId) VALUES (?, ?, ?, ?, ?, ?, ?)";
        let values = (start, end, kind, text, thread, text_id, domain);
        connection.execute(sql, values).unwrap();
    };
    let at = 600_000_000;
    // The domain, a mark, and a range without an end.
    insert((at, None, 75, None, Some(900_002), 7));
    insert((at, None, 34, Some("a mark"), None, 0));
    insert((at, None, 60, Some("open"), None, 0));
    for step in 0..250 {
        let begin = at + 100_000 * step;
        let length = 1000 + 37 * step * step;
        // Each contains another of its own name.
        insert((begin, Some(begin + length), 59, Some("step"), None, 0));
        insert((begin + 1, Some(begin + 500), 59, Some("step"), None, 0));
        insert((begin, Some(begin + 3 * step), 60, None, Some(900_001), 0));
        insert((begin, Some(begin + 77), 59, Some("step"), None, 7));
    }
    file
}

fn table(file: &Path, question: &str) -> Vec<TableRow> {
    let written = report(file, &[question, "--format", "csv"]);
    let mut rows = csv::Reader::from_reader(written.as_bytes());
    rows.deserialize().map(Result::unwrap).collect()
}

/// The durations by name that `sql` returns.
fn durations(file: &Path, sql: &str) -> HashMap<String, Vec<u64>> {
    let connection = Connection::open(file).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    let mut by_name: HashMap<String, Vec<u64>> = HashMap::new();
    for row in rows.unwrap() {
        let (name, ns): (String, i64) = row.unwrap();
        by_name
            .entry(name)
            .or_default()
            .push(ns.try_into().unwrap());
    }
    by_name.values_mut().for_each(|all| all.sort_unstable());
    by_name
}

/// Asserts that `rows` have each name of `expected`, with its figures.
fn agree(
    rows: &[TableRow],
    name: impl Fn(&TableRow) -> String,
    expected: &HashMap<String, Vec<u64>>,
) {
    assert_eq!(rows.len(), expected.len(), "{rows:?}");
    let all: u64 = expected.values().flatten().sum();
    let totals: Vec<u64> = rows.iter().map(total).collect();
    assert!(totals.is_sorted_by(|a, b| a >= b), "{totals:?}");
    for row in rows {
        let name = name(row);
        let durations = &expected[&name];
        let number = |keys: [&str; 2]| -> f64 {
            let found = keys.iter().find_map(|key| row.get(*key)).unwrap();
            found.parse().unwrap()
        };
        let (count, sum) = (durations.len(), durations.iter().sum::<u64>());
        assert_eq!(number(["count", "launches"]), count as f64, "{name}");
        assert_eq!(total(row), sum, "{name}");
        let exact = |value: f64, expected: f64| assert!((value - expected).abs() <= 1.0, "{name}");
        exact(number(["mean_ns", ""]), sum as f64 / count as f64);
        exact(number(["min_ns", "shortest_ns"]), durations[0] as f64);
        exact(
            number(["max_ns", "longest_ns"]),
            durations[count - 1] as f64,
        );
        let share = number(["share", ""]);
        assert!((share - sum as f64 / all as f64).abs() < 1e-9, "{name}");
        for (key, rank) in [
            ("median_ns", count.div_ceil(2)),
            ("p99_ns", (count * 99).div_ceil(100)),
        ] {
            let (found, exact) = (number([key, ""]), durations[rank - 1] as f64);
            assert!(
                (found - exact).abs() <= exact / 100.0,
                "{name} {key}: {found} for {exact}"
            );
        }
    }
}

fn total(row: &TableRow) -> u64 {
    let found = row.get("total_ns").or(row.get("gpu_ns"));
    found.unwrap().parse().unwrap()
}

#[test]
fn kernels_calls_waits_and_ranges_match_sql() {
    let folder = Folder::new();
    let file = with_ranges(&folder);
    let kernels = durations(
        &file,
        "SELECT s.value, \"end\" - start FROM CUPTI_ACTIVITY_KIND_KERNEL \
         JOIN StringIds s ON s.id = demangledName",
    );
    agree(
        &table(&file, "--kernels"),
        |row| row["name"].clone(),
        &kernels,
    );
    let calls = durations(
        &file,
        "SELECT CASE eventClass WHEN 0 THEN 'runtime' ELSE 'driver' END || ' ' || s.value, \
         \"end\" - start FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds s ON s.id = nameId \
         WHERE eventClass IN (0, 1)",
    );
    let name = |row: &TableRow| format!("{} {}", row["domain"], row["function"]);
    agree(&table(&file, "--calls"), name, &calls);
    let waits = durations(
        &file,
        "SELECT 'stream', \"end\" - start FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    );
    agree(&table(&file, "--waits"), |row| row["kind"].clone(), &waits);
    let ranges = durations(
        &file,
        "SELECT iif(n.domainId = 7, 'my domain:', ':') || coalesce(n.text, s.value), \
         n.\"end\" - n.start FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId \
         WHERE n.eventType IN (59, 60) AND n.\"end\" IS NOT NULL",
    );
    assert_eq!(ranges[":step"].len(), 500);
    let name = |row: &TableRow| format!("{}:{}", row["domain"], row["range"]);
    agree(&table(&file, "--nvtx"), name, &ranges);
    let text = report(&file, &["--nvtx", "--top", "2"]);
    assert!(text.starts_with("NVTX ranges: 1000, "), "{text}");
    assert!(
        text.ends_with("  ... and 1 more (--top all)\n  1 range not ended\n"),
        "{text}"
    );
    assert!(
        text.contains("  step\n") && !text.contains("my domain:step"),
        "{text}"
    );
}

#[test]
fn copies_are_grouped_by_mode_and_memory() {
    let folder = Folder::new();
    let file = folder.real_export();
    let kind =
        |column: &str| format!("(SELECT lower(label) FROM ENUM_CUDA_MEM_KIND WHERE id = {column})");
    let sql = format!(
        "SELECT iif(copyKind = 1, 'H2D', 'D2H') || ' ' || iif(s.value LIKE '%Async%', 'async', \
         'sync') || ' ' || {} || ' ' || {}, m.\"end\" - m.start FROM CUPTI_ACTIVITY_KIND_MEMCPY m \
         JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) JOIN StringIds s ON s.id = r.nameId \
         WHERE r.eventClass = 0",
        kind("srcKind"),
        kind("dstKind")
    );
    let expected = durations(&file, &sql);
    let copies = table(&file, "--copies");
    let copies = copies.iter().filter(|row| row["direction"] != "set");
    let mut seen = 0;
    for row in copies {
        let key = ["direction", "mode", "source", "destination"];
        let name = key.map(|key| row[key].as_str()).join(" ");
        let durations = &expected[&name];
        assert_eq!(row["count"], durations.len().to_string(), "{name}");
        assert_eq!(
            row["ns"],
            durations.iter().sum::<u64>().to_string(),
            "{name}"
        );
        assert_eq!(row["timed_by"], "gpu");
        seen += 1;
    }
    assert_eq!(seen, expected.len());
    assert!(seen > 2, "{expected:?}");
    // In a narrow table, too, no two rows look the same.
    let text = narrow(&file, &["--copies"]);
    let rows: Vec<_> = text.lines().skip(2).map(|line| &line[..40]).collect();
    for (index, row) in rows.iter().enumerate() {
        assert!(!rows[..index].contains(row), "{text}");
    }
}

/// A report in lines of 80 columns.
fn narrow(file: &Path, question: &[&str]) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_gpuprobe"))
        .args(["report", file.to_str().unwrap()])
        .args(question)
        .env("COLUMNS", "80")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let of_tables = text.lines().filter(|line| {
        line.starts_with("  ") && !line.contains("GPU ") && !line.contains("call stack")
    });
    for line in of_tables {
        assert!(line.chars().count() <= 80, "{line}");
    }
    text
}

#[test]
fn processes_and_the_summary() {
    let folder = Folder::new();
    let file = with_ranges(&folder);
    let found = report_json(&file, &["--processes"]);
    let process = &found["processes"][0];
    let of = |sql: &str| -> i64 {
        let connection = Connection::open(&file).unwrap();
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let tables = [
        "RUNTIME",
        "KERNEL",
        "MEMCPY",
        "MEMSET",
        "GRAPH_TRACE",
        "SYNCHRONIZATION",
    ];
    let spans = tables.map(|t| format!("SELECT start, \"end\" FROM CUPTI_ACTIVITY_KIND_{t}"));
    let run = of(&format!(
        "SELECT max(e) - min(s) FROM ({} UNION ALL SELECT start s, coalesce(\"end\", start) e \
         FROM NVTX_EVENTS WHERE eventType <> 75 UNION ALL SELECT start, start \
         FROM CUDA_GPU_MEMORY_USAGE_EVENTS)",
        spans
            .join(" UNION ALL ")
            .replacen("SELECT start, \"end\"", "SELECT start s, \"end\" e", 1)
    ));
    assert_eq!(process["run_ns"], run);
    assert_eq!(found["run_ns"], run);
    assert_eq!(process["pid"], 999);
    assert_eq!(process["peak_bytes"], 25 << 20);
    assert_eq!(process["never_freed_bytes"], 24 << 20);
    assert_eq!(
        (&process["launches"], &process["graph_launches"]),
        (&204.into(), &23.into())
    );
    let kernel_ns = of("SELECT sum(\"end\" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL");
    assert_eq!(process["kernel_ns"], kernel_ns);
    assert_eq!(process["copies"], 50);
    let page = narrow(&file, &[]);
    for part in [
        "\nrun time: ",
        "\nkernels: 204 launches of 2 kernels, 23 graph launches\n",
        "\ncopies: 50, 400.00 MiB; memory sets: 19\n",
        "\nAPI calls: 548, ",
        "\nwaits for the GPU: 1, ",
        "\nNVTX ranges: 1000, ",
        "  ... and 20 more (--top all)\n",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
}

#[test]
fn unsupported_format_of_a_table_is_an_error() {
    let folder = Folder::new();
    let file = folder.real_export();
    for format in ["csv", "tsv"] {
        let output = gpuprobe(&["report", file.to_str().unwrap(), "--format", format]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty());
        assert!(said.contains("csv and tsv hold one table"), "{said}");
        for question in [
            "--kernels",
            "--copies",
            "--calls",
            "--waits",
            "--nvtx",
            "--processes",
        ] {
            let written = report(&file, &[question, "--format", format]);
            let header = written.lines().next().unwrap();
            let separator = if format == "csv" { ',' } else { '\t' };
            assert!(header.split(separator).count() > 5, "{question}: {written}");
        }
    }
}

#[test]
fn diff_has_one_line_per_site() {
    let folder = Folder::new();
    let before = folder.real_export();
    let after = folder.path("after.sqlite");
    std::fs::copy(&before, &after).unwrap();
    let connection = Connection::open(&after).unwrap();
    // One of the leaked allocations is larger by 4 MiB.
    let sql = "UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET bytes = bytes + 4194304 WHERE rowid = \
               (SELECT max(a.rowid) FROM CUDA_GPU_MEMORY_USAGE_EVENTS a WHERE a.memKind = 2 AND \
               a.memoryOperationType = 0 AND NOT EXISTS (SELECT 1 FROM \
               CUDA_GPU_MEMORY_USAGE_EVENTS f WHERE f.address = a.address AND \
               f.memoryOperationType = 1 AND f.start > a.start))";
    assert_eq!(connection.execute(sql, []).unwrap(), 1);
    drop(connection);
    let diff = |arguments: &[&str]| {
        let words = [&["--diff", after.to_str().unwrap()], arguments].concat();
        report(&before, &words)
    };
    let text = diff(&[]);
    assert_eq!(
        text,
        "watermark: 25.00 MiB before, 29.00 MiB after (+4.00 MiB)\n     \
         CHANGE  ALLOCATIONS  WHERE\n  \
         +4.00 MiB       3 -> 3  all_shared: main\n\
         leakage: 24.00 MiB before, 28.00 MiB after (+4.00 MiB)\n     \
         CHANGE  ALLOCATIONS  WHERE\n  \
         +4.00 MiB       3 -> 3  all_shared: main\n"
    );
    let full = diff(&["--full-stacks"]);
    assert!(
        full.contains("all_shared: main\n      cudaMalloc\n      [?] (libcupti"),
        "{full}"
    );
    let csv = diff(&["--format", "csv"]);
    let mut csv = csv::Reader::from_reader(csv.as_bytes());
    let rows: Vec<TableRow> = csv.deserialize().map(Result::unwrap).collect();
    assert_eq!(rows[0]["delta"], "4194304");
    assert_eq!(rows[0]["label"], "all_shared: main");
    let same = report(&before, &["--diff", before.to_str().unwrap()]);
    let quiet = "leakage: 24.00 MiB before, 24.00 MiB after (+0 B)\n  no change at 1 call site\n";
    assert!(same.ends_with(quiet), "{same}");
}

#[test]
fn names_that_a_spreadsheet_would_run_are_text() {
    let folder = Folder::new();
    let file = folder.real_export();
    let connection = Connection::open(&file).unwrap();
    for (table, column, name) in [
        (
            "CUPTI_ACTIVITY_KIND_KERNEL",
            "demangledName",
            "=cmd|calc!A1",
        ),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId", "@SUM(1+1)"),
    ] {
        let sql = format!(
            "UPDATE StringIds SET value = ? WHERE id = (SELECT {column} FROM {table} LIMIT 1)"
        );
        assert_eq!(connection.execute(&sql, [name]).unwrap(), 1);
    }
    for (question, name) in [("--kernels", "'=cmd|calc!A1"), ("--calls", "'@SUM(1+1)")] {
        let rows = table(&file, question);
        let cells = rows.iter().flat_map(HashMap::values);
        let unsafe_cells = cells.clone().filter(|cell| cell.starts_with(['=', '@']));
        assert_eq!(unsafe_cells.count(), 0, "{question}");
        assert!(
            cells.clone().any(|cell| cell == name),
            "{question}: {rows:#?}"
        );
    }
}
