//! The collector as it is injected into CUDA programs by the stand-in driver, against a
//! well-behaved and a misbehaving stand-in CUPTI. A spy library in front of the collector logs its
//! batches; gpuprobe and BPF are not involved. The tests that need files of other users need root:
//! see `collector` in the end-to-end tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod counts;
mod discovery;
mod faults;
mod harness;
mod lifecycle;
mod run;
