//! Tensors of processes that have ended.

use gpuprobe_model::event::Event;

use super::{PID, Program};

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
