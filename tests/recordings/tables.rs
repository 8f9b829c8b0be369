//! The tables of `gpuprobe report`, compared with SQL queries of the same file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::{Folder, report, report_json};

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
        let number = |key: &str| -> f64 { row[key].parse().unwrap() };
        let speed = number("bytes") * 1e9 / number("ns");
        assert!((number("bytes_per_second") - speed).abs() < 1.0);
        seen += 1;
    }
    assert_eq!(seen, expected.len());
    assert!(seen > 2, "{expected:?}");
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
    let spans = spans_of(&[&WORK[..], &["RUNTIME", "SYNCHRONIZATION"]].concat());
    let run = of(&format!(
        "SELECT max(e) - min(s) FROM ({} UNION ALL SELECT start s, coalesce(\"end\", start) e \
         FROM NVTX_EVENTS WHERE eventType <> 75 UNION ALL SELECT start, start \
         FROM CUDA_GPU_MEMORY_USAGE_EVENTS)",
        spans.replacen("SELECT start, \"end\"", "SELECT start s, \"end\" e", 1)
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
    let page = report(&file, &[]);
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

const WORK: [&str; 4] = ["KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"];

/// A query of the begin and end of all rows in these tables.
fn spans_of(tables: &[&str]) -> String {
    let select = |table| format!("SELECT start, \"end\" FROM CUPTI_ACTIVITY_KIND_{table}");
    let selects: Vec<_> = tables.iter().map(select).collect();
    selects.join(" UNION ALL ")
}

#[test]
fn busy_time_and_gaps_match_sql() {
    let folder = Folder::new();
    let file = folder.real_export();
    let connection = Connection::open(&file).unwrap();
    let sql = format!("{} ORDER BY 1", spans_of(&WORK));
    let mut statement = connection.prepare(&sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    let spans: Vec<(i64, i64)> = rows.unwrap().map(Result::unwrap).collect();
    let (mut busy_ns, mut gaps) = (0, Vec::new());
    let mut last = spans[0].0;
    for (start, end) in &spans {
        if *start > last {
            gaps.push(start - last);
            last = *start;
        }
        busy_ns += (end - last).max(0);
        last = last.max(*end);
    }
    let found = report_json(&file, &["--kernels"]);
    let gpu = &found["gpus"][0];
    assert_eq!(gpu["busy_ns"], busy_ns);
    assert_eq!(gpu["span_ns"], last - spans[0].0);
    assert_eq!(gpu["gaps"], gaps.len());
    assert_eq!(gpu["longest_gap_ns"], *gaps.iter().max().unwrap());
    let found = report_json(&file, &["--summary"]);
    let gpu = &found["gpus"][0];
    // No two records of a kind overlap in this file.
    for (key, table) in ["kernel_ns", "copy_ns", "set_ns", "graph_ns"]
        .iter()
        .zip(WORK)
    {
        let sql = format!("SELECT sum(\"end\" - start) FROM CUPTI_ACTIVITY_KIND_{table}");
        let expected: i64 = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(gpu[key], expected, "{key}");
    }
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let [busy, observed] = ["busy_ns", "observed_ns"].map(|key| number(&gpu[key]));
    let idle = number(&gpu["shares"]["idle"]);
    assert!((idle - (1.0 - busy / observed)).abs() < 1e-9);
}
