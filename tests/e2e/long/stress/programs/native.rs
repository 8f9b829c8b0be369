//! The stressor with the stand-in CUDA.

use std::process::{Command, Stdio};

use super::{MIB, check_anomaly, compare, statement, traced};
use crate::harness::child::Guarded;
use crate::harness::report::{list, number};
use crate::harness::talk::Talk;
use crate::harness::{Gpuprobe, Setup, standin};

const ANOMALY: &str = "--throughput 0 --threads 4 --calls 400 --allocate-size 10M \
                       --free-ratio 0.9 --anomaly-mb 2096 --anomaly-thread 2 --anomaly-iter 20";

/// A stressor that ends by its work, not by time.
fn stressor(options: &str) -> Vec<String> {
    let program = standin().path("stressor").to_str().unwrap().to_owned();
    let options = options.split_whitespace().map(str::to_owned);
    let mut command = vec![program, "--duration".to_owned(), "0".to_owned()];
    command.extend(options);
    command
}

#[test]
fn root_stressor_pairs_are_all_seen() {
    let (_, said) = traced(stressor("--throughput 0 --calls 20000"), &[]);
    assert_eq!((number(&said, "frees"), number(&said, "live")), (10_000, 0));
}

#[test]
fn root_stressor_partial_frees_are_exact() {
    for (ratio, live) in [("0", 4000), ("0.25", 2400), ("0.9", 212)] {
        let options = format!("--throughput 40000 --calls 4000 --free-ratio {ratio}");
        let (_, said) = traced(stressor(&options), &[]);
        assert_eq!(number(&said, "live"), live, "free ratio {ratio}");
    }
}

#[test]
fn root_stressor_threads_and_processes_are_distinguished() {
    let options = "--throughput 0 --procs 3 --threads 4 --calls 24000 --free-ratio 0.5 --seed 7";
    let (_, said) = traced(stressor(options), &[]);
    assert_eq!(list(&said, "processes").len(), 3);
    assert_eq!(number(&said, "calls"), 24_000);
}

#[test]
fn root_stressor_failed_calls_are_counted() {
    let options = "--throughput 0 --threads 2 --calls 3000 --free-ratio 0 --allocate-size 1M";
    let room = (100 * MIB).to_string();
    let (_, said) = traced(stressor(options), &[("STANDIN_DEVICE_BYTES", &room)]);
    assert_eq!(
        (number(&said, "live"), number(&said, "failed")),
        (100, 2900)
    );
}

#[test]
fn root_stressor_anomaly_is_on_top_of_its_thread() {
    let (report, said) = traced(stressor(ANOMALY), &[]);
    check_anomaly(&report, &said);
}

#[test]
fn root_stressor_anomaly_is_the_first_line_of_its_thread() {
    let setup = Setup::command(stressor(ANOMALY)).format("text");
    let mut gpuprobe = setup.args(["--group", "thread"]).start();
    assert_eq!(gpuprobe.exit_code(), 0);
    let said = statement(&gpuprobe.talk);
    let text = std::fs::read_to_string(&gpuprobe.reports).unwrap();
    let heading = format!("worker_2:{}", said["anomaly"]["tid"]);
    let mut lines = text.lines().skip_while(|line| line.trim() != heading);
    assert!(lines.next().is_some(), "no {heading} in {text}");
    let first = lines.next().unwrap_or_default();
    assert!(first.ends_with(":gpu_0: 2.05 GiB"), "'{first}' in {text}");
}

/// Starts a stressor that waits, attaches with `setup`, and starts its work.
fn attached(options: &str) -> (Guarded, Talk, Gpuprobe) {
    let command = stressor(&format!("--wait {options}"));
    let mut program = Command::new(&command[0]);
    program
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = Guarded::spawn(&mut program).expect("the stressor starts");
    let mut talk = Talk::new(&mut child);
    let gpuprobe = Setup::pid(talk.ready()).start();
    talk.send("");
    (child, talk, gpuprobe)
}

#[test]
fn root_stressor_that_waits_is_seen_from_its_first_call() {
    let options = "--throughput 20000 --threads 2 --calls 6000 --free-ratio 0.5";
    let (mut child, talk, mut gpuprobe) = attached(options);
    assert!(child.wait().success());
    compare(&gpuprobe.final_report(), &statement(&talk));
}

#[test]
fn root_stressors_stopped_by_signals_print_their_totals() {
    for options in ["--threads 2", "--procs 2"] {
        let command = stressor(&format!(
            "--wait {options} --throughput 5000 --free-ratio 0.5"
        ));
        let mut gpuprobe = Setup::command(command).interval("20ms").start();
        gpuprobe.talk.ready();
        gpuprobe.talk.send("");
        gpuprobe.report_where("a report with calls", |r| r.totals().alloc_calls > 100);
        gpuprobe.interrupt();
        assert_eq!(gpuprobe.exit_code(), 0);
        let said = statement(&gpuprobe.talk);
        assert_eq!(said["ended_by"], "SIGINT", "{options}");
        compare(&gpuprobe.final_report(), &said);
    }
}
