//! Launches that cannot be counted are reported as lost.

use std::collections::HashMap;
use std::fs;

use crate::cudatrace::LAUNCHES;
use crate::harness::report::{list, number};
use crate::harness::{Backend, Setup, Workload, alone};

const KERNELS: u64 = 70_000;
/// Size of the kernel map.
const ROOM: u64 = 32_768;

/// Lost launches in a line that lists losses; each tracer has its own.
fn lost_in(line: &str) -> u64 {
    let before = line.split(" launches").next().unwrap();
    let number = before.rsplit(' ').next().unwrap().parse();
    number.unwrap_or_else(|_| panic!("no number of launches in '{line}'"))
}

#[test]
fn root_launches_beyond_a_full_map_are_counted_exactly_and_shown() {
    let _alone = alone();
    let mut workload = Workload::start(Backend::Driver);
    workload.say(&format!("module generated={KERNELS}"));
    let start = |format: &str| {
        let setup = Setup::pid(workload.pid).modes(LAUNCHES).format(format);
        setup.start()
    };
    let (mut json, mut text, mut csv) = (start("json"), start("text"), start("csv"));
    workload.say("launch all 2");
    let truth = workload.status();
    assert_eq!(truth.launches, 2 * KERNELS);
    for gpuprobe in [&json, &text, &csv] {
        gpuprobe.interrupt();
    }
    let report = json.final_report();
    let (seen, lost) = (report.launches()[0], report.lost("launches"));
    assert_eq!(seen + lost, truth.launches, "{seen} seen, {lost} lost");
    let whose = list(&report, "lost_by_user").iter();
    let mut whose = whose.filter(|row| row["what"] == "launches");
    let row = whose.next().expect("the process that lost them");
    assert_eq!(
        (&row["pid"], &row["count"]),
        (&workload.pid.into(), &lost.into())
    );
    assert!(whose.next().is_none() && row["comm"] == Backend::Driver.program());
    let kernels = report.kernels(workload.pid);
    assert!(lost >= 2 * (KERNELS - ROOM), "the map was to be full");
    assert!(kernels.len() as u64 <= ROOM, "{} kernels", kernels.len());
    let mut unnamed = 0;
    let mut names = HashMap::new();
    for kernel in &kernels {
        // The first launch of a few kernels had no memory for an entry.
        let launches = number(kernel, "launches");
        assert!((1..=2).contains(&launches), "{kernel}");
        let name = kernel["name"].as_str().unwrap();
        assert!(names.insert(name, ()).is_none(), "{name} is there twice");
        match name.strip_prefix("generated_") {
            Some(of) => assert!(of.parse::<u64>().unwrap() < KERNELS, "{name}"),
            None => {
                assert_eq!(kernel["handle"], name);
                unnamed += 1;
            }
        }
    }
    assert_eq!(report.lost("names"), unnamed, "names that are missing");

    text.wait();
    let shown = fs::read_to_string(&text.reports).unwrap();
    let line = shown.lines().find(|l| l.starts_with("LOST EVENTS"));
    let line = line.unwrap_or_else(|| panic!("no line about losses: {shown}"));
    assert!(lost_in(line) >= 2 * (KERNELS - ROOM), "{line}");

    let said = csv.said();
    let line = said.iter().find(|l| l.contains("lost events"));
    let line = line.unwrap_or_else(|| panic!("no line about losses: {said:#?}"));
    assert!(lost_in(line) >= 2 * (KERNELS - ROOM), "{line}");
}

#[test]
fn root_full_kernel_map_has_space_again_when_processes_exit() {
    let _alone = alone();
    let mut workload = Workload::start(Backend::Driver);
    workload.say("launch 0");
    let mut gpuprobe = Setup::everything().modes(LAUNCHES).interval("50ms").start();
    // More than half of the map each.
    let most = ROOM / 2 + 1000;
    for mut one in [Backend::Driver; 2].map(Workload::start) {
        one.say(&format!("module generated={most}"));
        one.say("launch all");
        let pid = one.pid;
        assert_eq!(one.done().launches, most);
        gpuprobe.report_where("the end of a process", |report| {
            let kernels = report.kernels(pid);
            !kernels.is_empty() && kernels.iter().all(|k| k["exited"] == true)
        });
    }
    workload.say("launch 0 9");
    let report = gpuprobe.stop();
    assert_eq!(report.lost("launches"), 0);
    let launched: u64 = report
        .kernels(workload.pid)
        .iter()
        .map(|k| number(k, "launches"))
        .sum();
    assert_eq!(launched, 9);
}
