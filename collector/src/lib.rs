//! The collector: loaded into a CUDA program, it hears from CUPTI what the GPU did and when.
//!
//! For: `gpuprobe --activity`, which reads its batches by a probe on an empty function.
//! May use: `gpuprobe-wire` and libc, and libcupti when it is there; it runs in other people's programs.
//! Gives: a cdylib for the CUDA driver ([`inject`]); as a library, the parts that tests and fuzz
//! targets reach ([`cupti`], [`reduce`], [`texts`]).

pub mod cupti;
pub mod inject;
pub mod reduce;
pub mod texts;
pub mod untrusted;
