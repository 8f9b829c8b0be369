//! gpuprobe is killed, at every stage of a run and with each kind of probe: many times over, as what is
//! looked for comes by chance. Other faults are in `tests/e2e/faults`. Nothing here traces the whole
//! system, so that breakpoints in a program are those of its own test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

// All of it is used by `tests/e2e`.
#[allow(dead_code, unused_imports)]
#[path = "../e2e/harness/mod.rs"]
mod harness;
mod killed;
mod stages;
#[allow(dead_code)]
#[path = "../schema/validator.rs"]
mod validator;

/// Set for all rounds. Without it, `scripts/test.sh` has some of each kind; `scripts/faults.sh` has all.
const ALL_ROUNDS: &str = "GPUPROBE_ALL_ROUNDS";

/// How many rounds there are to be, of so many that there are in all.
fn rounds(all: usize) -> usize {
    match std::env::var_os(ALL_ROUNDS) {
        Some(_) => all,
        None => all.div_ceil(3),
    }
}
