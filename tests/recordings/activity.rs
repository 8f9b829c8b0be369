//! GPU times in analyses, compared with SQL queries of the same file.

use std::collections::HashMap;

use rusqlite::Connection;

use crate::{Folder, report, report_json};

const WORK: [&str; 4] = ["KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"];

fn spans(connection: &Connection) -> Vec<(i64, i64)> {
    let selects =
        WORK.map(|table| format!("SELECT start, \"end\" FROM CUPTI_ACTIVITY_KIND_{table}"));
    let sql = format!("{} ORDER BY 1", selects.join(" UNION ALL "));
    let mut statement = connection.prepare(&sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

#[test]
fn times_of_a_real_export() {
    let folder = Folder::new();
    let file = folder.real_export();
    let found = report_json(&file, &["--kernels"]);
    let connection = Connection::open(&file).unwrap();
    let sql = "SELECT s.value, count(*), sum(\"end\" - start), min(\"end\" - start), \
               max(\"end\" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL \
               JOIN StringIds s ON s.id = demangledName GROUP BY 1";
    let mut statement = connection.prepare(sql).unwrap();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let name: String = row.get(0).unwrap();
        let kernels = &found["activity"]["processes"][0]["kernels"];
        let kernels = kernels.as_array().unwrap();
        let kernel = kernels
            .iter()
            .find(|kernel| kernel["name"] == *name)
            .unwrap();
        let keys = ["count", "total_ns", "min_ns", "max_ns"];
        for (index, key) in keys.iter().enumerate() {
            let expected: i64 = row.get(index + 1).unwrap();
            assert_eq!(kernel[*key], expected, "{name} {key}");
        }
    }
    // Busy time, nanosecond by nanosecond.
    let spans = spans(&connection);
    let first = spans[0].0;
    let last = spans.iter().map(|span| span.1).max().unwrap();
    let mut is_busy = vec![false; usize::try_from(last - first).unwrap()];
    for (start, end) in spans {
        let range = usize::try_from(start - first).unwrap()..usize::try_from(end - first).unwrap();
        is_busy[range].fill(true);
    }
    let busy = is_busy.iter().filter(|busy| **busy).count();
    let gaps: Vec<_> = is_busy
        .split(|busy| *busy)
        .filter(|gap| !gap.is_empty())
        .collect();
    let gpu = &found["gpus"][0];
    assert_eq!(gpu["busy_ns"], busy);
    assert_eq!(gpu["span_ns"], is_busy.len());
    assert_eq!(gpu["gaps"], gaps.len());
    assert_eq!(
        gpu["longest_gap_ns"],
        gaps.iter().map(|gap| gap.len()).max().unwrap()
    );
}

#[test]
fn copies_have_the_times_of_the_gpu() {
    let folder = Folder::new();
    let file = folder.real_export();
    let copies = report(&file, &["--copies", "--format", "csv"]);
    let mut copies = csv::Reader::from_reader(copies.as_bytes());
    let copies: Vec<HashMap<String, String>> = copies.deserialize().map(Result::unwrap).collect();
    let connection = Connection::open(&file).unwrap();
    let one = |kind: i64| -> (i64, i64, i64) {
        let sql = "SELECT count(*), sum(bytes), sum(\"end\" - start) \
                   FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = ?";
        let of = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        connection.query_row(sql, [kind], of).unwrap()
    };
    for (direction, kind) in [("H2D", 1), ("D2H", 2)] {
        // A row for each copy mode and kind of memory.
        let found = copies.iter().filter(|copy| copy["direction"] == direction);
        let found: Vec<_> = found.collect();
        let sum = |key: &str| {
            found
                .iter()
                .map(|copy| copy[key].parse::<i64>().unwrap())
                .sum::<i64>()
        };
        assert_eq!(
            ["count", "bytes", "ns"].map(sum),
            <[i64; 3]>::from(one(kind))
        );
        for copy in found {
            assert_eq!(copy["timed_by"], "gpu");
            let [bytes, ns]: [f64; 2] = ["bytes", "ns"].map(|key| copy[key].parse().unwrap());
            let speed: f64 = copy["bytes_per_second"].parse().unwrap();
            assert!((speed - bytes * 1e9 / ns).abs() < 1.0);
        }
    }
}

/// Time in copies alone does not count as busy with kernels.
#[test]
fn summary_has_gpu_utilisation() {
    let folder = Folder::new();
    let file = folder.real_export();
    let found = report_json(&file, &["--summary"]);
    let gpu = &found["gpus"][0];
    let connection = Connection::open(&file).unwrap();
    // No two records of a kind overlap in this file.
    for (key, table) in [
        ("kernel_ns", "KERNEL"),
        ("copy_ns", "MEMCPY"),
        ("set_ns", "MEMSET"),
        ("graph_ns", "GRAPH_TRACE"),
    ] {
        let sql = format!("SELECT sum(\"end\" - start) FROM CUPTI_ACTIVITY_KIND_{table}");
        let expected: i64 = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(gpu[key], expected, "{key}");
    }
    let observed = gpu["observed_ns"].as_f64().unwrap();
    let busy = gpu["busy_ns"].as_f64().unwrap();
    let idle = gpu["shares"]["idle"].as_f64().unwrap();
    assert!((idle - (1.0 - busy / observed)).abs() < 1e-9);
    let page = report(&file, &["--summary"]);
    let shares = "  GPU 0 NVIDIA H200  kernels 0.2 %, copies 6.4 %, sets 0.0 %, graphs 0.1 %, \
                  idle 93.3 % of 191.5 ms\n    \
                  295 gaps between work, the longest 358.69 us\n";
    assert!(page.contains(shares), "{page}");
}
