//! The collector as users get it, loaded into CUDA programs by the stand-in driver, with the
//! stand-in CUPTI behaving and misbehaving. A spy in front of the collector writes down what it
//! hands over; gpuprobe itself and BPF have no part in it. Where files are given to other users, root
//! is needed: that is `collector` of the end-to-end tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod counts;
mod faults;
mod found;
mod harness;
mod lives;
mod run;
