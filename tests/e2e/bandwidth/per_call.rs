//! `--per-call`: one line for each copy.

use std::fs;

use chrono::DateTime;

use super::{COPIES, each_copy};
use crate::harness::{Backend, Gpuprobe, Setup, Workload, standin};

#[test]
fn root_json_has_one_object_per_copy_with_the_documented_keys() {
    let settings = [("STANDIN_COPY_GBPS", "0.1")];
    let mut workload = Workload::spawn(&mut Workload::command(Backend::Driver, &settings));
    let mut tid = 0;
    let mut device = String::new();
    let (_, copies) = each_copy(&mut workload, &[], |workload| {
        tid = workload.ask("thread copier");
        device = workload.say("alloc 1048576");
        workload.say(&format!("copy h2d 1048576 dst={device} src=0x7000"));
        workload.say(&format!("@copier copy d2h 512 dst=0x7000 src={device}"));
        workload.say(&format!("copy d2d 2048 dst={device} src={device}"));
        workload.say("set 1024");
    });
    let pid = workload.pid;
    let expected = [
        ("cuMemcpyHtoD_v2", pid, device.as_str(), Some("0x7000")),
        ("cuMemcpyDtoH_v2", tid, "0x7000", Some(device.as_str())),
        (
            "cuMemcpyDtoD_v2",
            pid,
            device.as_str(),
            Some(device.as_str()),
        ),
        ("cuMemsetD8_v2", pid, "", None),
    ];
    assert_eq!(copies.len(), expected.len());
    for (copy, (api, tid, destination, source)) in copies.iter().zip(expected) {
        let keys: Vec<_> = copy.as_object().unwrap().keys().collect();
        for key in "time pid tid api direction mode bytes seconds bytes_per_second \
                    destination source"
            .split(' ')
        {
            assert!(keys.contains(&&key.to_owned()), "no {key} in {copy}");
        }
        assert_eq!(copy["pid"], pid);
        assert_eq!(copy["tid"], tid);
        assert_eq!(copy["api"], api);
        if !destination.is_empty() {
            assert_eq!(copy["destination"], destination);
        }
        assert_eq!(copy["source"].as_str(), source);
        let made = DateTime::parse_from_rfc3339(copy["time"].as_str().unwrap()).unwrap();
        let age = chrono::Local::now().signed_duration_since(made);
        assert!((0..60).contains(&age.num_seconds()), "made {age} ago");
        let is_sync = copy["mode"] == "sync";
        assert_eq!(copy["bytes_per_second"].is_f64(), is_sync, "{copy}");
    }
    let seconds = copies[0]["seconds"].as_f64().unwrap();
    assert!(
        (0.010_485..1.0).contains(&seconds),
        "a transfer of 10.5 ms: {seconds}"
    );
    let speed = copies[0]["bytes_per_second"].as_f64().unwrap();
    assert!((speed * seconds / 1_048_576.0 - 1.0).abs() < 1e-9);
}

/// Runs three copies and a set in another output format.
fn traced(format: &str) -> (u32, String) {
    let mut gpuprobe: Gpuprobe = Setup::command([standin().program_text(Backend::Driver)])
        .modes(COPIES)
        .args(["--per-call"])
        .format(format)
        .start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.say("copy h2d 1048576 2");
    gpuprobe.talk.say("copy d2d 512");
    gpuprobe.talk.say("set 2048");
    gpuprobe.talk.done();
    gpuprobe.wait();
    (pid, fs::read_to_string(&gpuprobe.reports).unwrap())
}

#[test]
fn root_text_has_one_line_per_copy() {
    let (pid, text) = traced("text");
    let lines: Vec<_> = text.lines().collect();
    let to_device = "cuMemcpyHtoD_v2 H2D sync 1.00 MiB in";
    let within = "cuMemcpyDtoD_v2 D2D async 512 B in";
    let set = "cuMemsetD8_v2 set async 2.00 KiB in";
    for (line, what) in lines.iter().zip([to_device, to_device, within, set]) {
        let (time, rest) = line.split_once(' ').unwrap();
        DateTime::parse_from_rfc3339(time).unwrap();
        let figures = rest.strip_prefix(&format!("{pid}:{pid} {what} "));
        let figures = figures.unwrap_or_else(|| panic!("'{line}' is not about '{what}'"));
        let (microseconds, speed) = figures.split_once(" us  ").unwrap();
        assert!(microseconds.parse::<f64>().unwrap() > 0.0, "{line}");
        if what == to_device {
            let speed = speed.strip_suffix(" GB/s").expect("a throughput");
            assert!(speed.parse::<f64>().unwrap() > 0.0, "{line}");
        } else {
            assert_eq!(speed, "-");
        }
    }
    assert!(lines[4].starts_with("workload_driver  pid "), "{text}");
    assert!(lines[4].contains("  3 copies, 1 memory set  "), "{text}");
}

#[test]
fn root_csv_has_one_row_per_copy() {
    let (pid, text) = traced("csv");
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let header: Vec<_> = rows.headers().unwrap().iter().map(str::to_owned).collect();
    let rows: Vec<_> = rows.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 4, "{text}");
    let to_device = ["cuMemcpyHtoD_v2", "H2D", "sync", "1048576"];
    let within = ["cuMemcpyDtoD_v2", "D2D", "async", "512"];
    let set = ["cuMemsetD8_v2", "set", "async", "2048"];
    let column = |name: &str| header.iter().position(|h| h == name).unwrap();
    for (row, expected) in rows.iter().zip([to_device, to_device, within, set]) {
        let found = ["api", "direction", "mode", "bytes"].map(|name| &row[column(name)]);
        assert_eq!(found, expected);
        assert_eq!(row[column("pid")], pid.to_string());
        assert_eq!(row[column("tid")], pid.to_string());
        DateTime::parse_from_rfc3339(&row[column("time")]).unwrap();
        assert!(row[column("seconds")].parse::<f64>().unwrap() > 0.0);
        let speed = &row[column("bytes_per_second")];
        assert_eq!(speed.is_empty(), expected[2] == "async", "{speed}");
    }
}

#[test]
fn root_csv_of_single_copies_has_no_reports() {
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Driver)])
        .modes(COPIES)
        .args(["--per-call"])
        .format("csv")
        .interval("20ms")
        .start();
    gpuprobe.talk.ready();
    gpuprobe.talk.say("sleep 0.2");
    gpuprobe.talk.say("copy d2d 512");
    gpuprobe.talk.done();
    gpuprobe.wait();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("time,pid,tid,api,"), "{text}");
}

#[test]
fn root_per_call_requires_bandwidth_util() {
    let mut gpuprobe = Setup::command(["true"]).args(["--per-call"]).spawn();
    assert_eq!(gpuprobe.exit_code(), 2);
    let said = gpuprobe.said().join("\n");
    assert!(said.contains("--bandwidth-util"), "{said}");
}
