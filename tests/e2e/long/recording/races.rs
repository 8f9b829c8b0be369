//! Threads that race, and launches with other ways to attach.

use std::fs;

use crate::harness::{Backend, Setup, alone, standin};
use crate::recording::launches::every_launch;
use crate::recording::{Recording, agree, analysed};

#[test]
fn root_threads_that_race_are_recorded_in_the_order_of_the_ledger() {
    let _alone = alone();
    let recording = Recording::new();
    let program = standin().program_text(Backend::Driver);
    let mut gpuprobe = Setup::command([program])
        .args(["--record".to_owned(), recording.text()])
        .start();
    gpuprobe.talk.ready();
    gpuprobe.talk.say("alloc 4096 3");
    gpuprobe.talk.say("race 4 20000 64");
    gpuprobe.talk.say("exit");
    let last = gpuprobe.final_report();
    last.assert_nothing_lost();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    agree(&recording.file, &last, &text);
    let found = analysed(&recording.file, "leakage");
    for odd in ["double_allocations", "unmatched_frees", "size_mismatches"] {
        assert_eq!(found["findings"][odd], 0, "{odd}");
    }
}

#[test]
fn root_single_launches_are_recorded_with_multi() {
    every_launch(Backend::Shared, "multi");
}

#[test]
fn root_single_launches_are_recorded_with_perf() {
    every_launch(Backend::Static, "perf");
}
