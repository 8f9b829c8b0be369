//! What these tests share with the end-to-end tests.

#[path = "../e2e/harness/standin.rs"]
#[allow(dead_code, reason = "the end-to-end tests use more of it")]
pub(crate) mod standin;

/// What the end-to-end tests need and these do not.
fn require_bpf() {}
