//! gpuprobe is killed at every stage of a run and with each kind of probe, many times over, since
//! races show by chance. The rounds of `long` take minutes: `scripts/test.sh` runs the others. Other faults are in `tests/e2e/faults`. No test here traces host-wide, so
//! that breakpoints in a program are its own test's, unless a tracer beside the tests does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

// `tests/e2e` uses all of it.
#[allow(dead_code, unused_imports)]
#[path = "../e2e/harness/mod.rs"]
mod harness;
mod killed;
mod long;
mod stages;
#[allow(dead_code)]
#[path = "../schema/validator.rs"]
mod validator;

/// If set, every round runs. `scripts/test.sh` runs a sample of each kind; `scripts/test-long.sh faults` runs
/// all.
const ALL_ROUNDS: &str = "GPUPROBE_ALL_ROUNDS";

/// The number of rounds to run, of `all`.
fn rounds(all: usize) -> usize {
    match std::env::var_os(ALL_ROUNDS) {
        Some(_) => all,
        None => all.div_ceil(3),
    }
}
