//! The collector: a library loaded into a CUDA program that receives GPU activity from CUPTI.
//!
//! For: `gpuprobe --activity`, which reads its batches through a probe on an empty function.
//! Depends on: `gpuprobe-wire` and libc, and libcupti at run time; it runs inside other programs.
//! Provides: a cdylib for the CUDA driver ([`inject`]); as a library, the parts for tests and fuzz
//! targets ([`cupti`], [`reduce`], [`texts`]).

pub mod cupti;
pub mod inject;
pub mod reduce;
pub mod texts;
pub mod untrusted;
