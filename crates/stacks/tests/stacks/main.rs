//! Stacks of real processes: from registers and memory to names. No root is needed.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr
)]

mod contexts;
#[path = "../../../../tests/untrusted/corpus.rs"]
mod corpus;
mod harness;
mod hostile;
mod paths;
mod planted;
mod replaced;
