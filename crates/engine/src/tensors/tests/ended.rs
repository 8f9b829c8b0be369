//! Tensors of processes that have ended.

use gpuprobe_model::event::Event;

use super::{MIB, PID, Program};
use crate::verdict::judge_teardown;

#[test]
fn tensors_of_ended_processes_count_as_kept() {
    let mut program = Program::default();
    for n in 1..=500 {
        program.hand_out(n * 512, 512);
    }
    program.apply(&Event::Exit(crate::task(PID, PID, u64::MAX)));
    let kept = program.ledger.ended(true).next().unwrap();
    assert_eq!(kept.held(), 500);
    assert_eq!(
        kept.tensors.iter().next().unwrap().allocated_bytes,
        500 * 512
    );
}

/// The bytes that a list which grew each 100 ms leaked, of tensors that are freed; then `ends` happens, and an event
/// ends the process.
fn leaked_until_the_end(
    ends: fn(&mut Program),
    event: fn(gpuprobe_model::event::Task) -> Event,
) -> Option<u64> {
    let mut program = Program::default();
    program.tensor(1, 1, MIB, false);
    for n in 1..=200 {
        program.now_ns += 100_000_000;
        program.hand_out(n * MIB, MIB);
    }
    for n in 1..=200 {
        program.take_back(n * MIB);
    }
    ends(&mut program);
    let end = event(crate::task(PID, PID, program.now_ns + 1));
    program.apply(&end);
    let process = program.ledger.ended(true).next()?;
    let sites = &process.tensors.iter().next()?.blocks.sites;
    let shape = sites.shape_before_teardown(&[0], process.sites.births())?;
    let found = judge_teardown(&shape, process.ended_ns?)?;
    assert!(found.is_leak());
    Some(found.bytes)
}

#[test]
fn frees_are_a_teardown_if_the_process_ends_without_another_allocation() {
    let nothing: fn(&mut Program) = |_| {};
    assert_eq!(leaked_until_the_end(nothing, Event::Exit), Some(200 * MIB));
    assert_eq!(leaked_until_the_end(nothing, Event::Exec), None);
    let goes_on: [fn(&mut Program); 4] = [
        |program| program.hand_out(MIB, MIB),
        |program| program.tensor(1, 2 * MIB, MIB, false),
        |program| program.call("cudaMalloc", 1 << 40, MIB),
        // It works for long without them.
        |program| program.now_ns += 21_000_000_000,
    ];
    for ends in goes_on {
        assert_eq!(leaked_until_the_end(ends, Event::Exit), None);
    }
    let frees: fn(&mut Program) = |program| program.tensor(1, 1, MIB, true);
    assert_eq!(leaked_until_the_end(frees, Event::Exit), Some(200 * MIB));
}
