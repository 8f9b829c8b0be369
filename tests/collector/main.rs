//! The collector as users get it, loaded into CUDA programs by the stand-in driver, with the
//! stand-in CUPTI behaving and misbehaving. A spy in front of the collector writes down what it
//! hands over; gpuprobe itself and BPF have no part in it, and root only where files are given away.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod counts;
mod faults;
mod found;
mod lives;
mod run;
#[path = "../e2e/harness/standin.rs"]
#[allow(dead_code, reason = "the end-to-end tests use more of it")]
mod standin;

/// What the end-to-end tests need and these do not.
fn require_bpf() {}
