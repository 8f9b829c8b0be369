//! CSV reports.

use chrono::DateTime;

use super::reports_of;

#[test]
fn root_csv_has_one_row_per_live_allocation() {
    let (pid, replies, text) =
        reports_of("csv", "50ms", &[], &["alloc 4096 3", "free 1", "sleep 0.3"]);
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let header: Vec<_> = rows.headers().unwrap().iter().map(str::to_owned).collect();
    let rows: Vec<_> = rows.records().map(Result::unwrap).collect();
    let column = |name: &str| header.iter().position(|h| h == name).unwrap();
    let last: Vec<_> = rows
        .iter()
        .filter(|r| &r[column("final")] == "true")
        .collect();
    assert!(rows.len() > last.len(), "periodic reports have rows too");
    let mut found: Vec<_> = last.iter().map(|r| &r[column("address")]).collect();
    found.sort_unstable();
    let addresses: Vec<_> = replies[0].split(' ').collect();
    assert_eq!(found, [addresses[0], addresses[2]]);
    for row in last {
        for (name, value) in [
            ("pid", pid.to_string().as_str()),
            ("uid", "0"),
            ("comm", "workload"),
            ("exited", "true"),
            ("tid", pid.to_string().as_str()),
            ("thread", "workload"),
            ("bytes", "4096"),
            ("device", "0"),
            ("kind", "device"),
            ("api", "cudaMalloc"),
        ] {
            assert_eq!(&row[column(name)], value, "{name}");
        }
        DateTime::parse_from_rfc3339(&row[column("report_time")]).unwrap();
        DateTime::parse_from_rfc3339(&row[column("time")]).unwrap();
    }
}
