//! The collector: a library loaded into a CUDA program that receives GPU activity from CUPTI.
//!
//! For: `gpuprobe --activity`, which reads its batches through a probe on an empty function.
//! May use: `gpuprobe-wire` and libc, and libcupti at run time; it runs inside other programs.
//! Gives: a cdylib for the CUDA driver ([`inject`]); for tests and fuzz targets [`cupti`], [`reduce`], [`texts`].

pub mod cupti;
pub mod inject;
pub mod reduce;
pub mod texts;
