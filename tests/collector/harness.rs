//! The parts of the end-to-end harness that these tests use.

#[path = "../e2e/harness/standin.rs"]
#[allow(dead_code, reason = "the end-to-end tests use more of it")]
pub(crate) mod standin;

fn require_bpf() {}
