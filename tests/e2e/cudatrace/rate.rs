//! Launches per second.

use std::time::Instant;

use super::LAUNCHES;
use crate::harness::report::list;
use crate::harness::{Backend, Gpuprobe, Report, Setup, standin};

/// The first kernel's rate in a report.
fn rate(report: &Report) -> f64 {
    list(&report["cudatrace"], "kernels")[0]["per_second"]
        .as_f64()
        .unwrap()
}

#[test]
fn root_launch_rate_is_since_the_last_report() {
    let start = || Setup::command([standin().program_text(Backend::Driver)]).modes(LAUNCHES);
    let outside = Instant::now();
    let mut gpuprobe: Gpuprobe = start().start();
    let inside = Instant::now();
    gpuprobe.talk.ready();
    gpuprobe.talk.say("launch 0 1000");
    gpuprobe.talk.say("sleep 0.3");
    let at_least = inside.elapsed().as_secs_f64();
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    let at_most = outside.elapsed().as_secs_f64();
    let rate_of_all = rate(&report);
    assert!(
        (1000.0 / at_most..=1000.0 / at_least).contains(&rate_of_all),
        "{rate_of_all} per second in {at_least} to {at_most} s"
    );

    let mut gpuprobe = start().interval("50ms").start();
    gpuprobe.talk.ready();
    gpuprobe.talk.say("launch 0 1000");
    gpuprobe.report_where("the launches", |r| r.launches()[0] == 1000);
    let later = gpuprobe.next_report();
    assert_eq!(later.launches()[0], 1000);
    assert!(rate(&later).abs() < f64::EPSILON, "nothing since");
    gpuprobe.talk.done();
    gpuprobe.final_report();
}
