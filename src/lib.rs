//! gpuprobe attaches eBPF uprobes to the CUDA libraries of running programs and reports which call sites
//! hold GPU memory.
//!
//! Data flows one way: bytes from the kernel side (`probe`) become [`gpuprobe_model::event`]s,
//! which feed [`gpuprobe_engine`], from which a [`gpuprobe_report::Report`] is built and written.
//! Only `probe`, `host` and `live` touch the kernel or `/proc`; they are the feature `live`.

pub mod cli;
#[cfg(feature = "live")]
pub mod doctor;
#[cfg(feature = "live")]
pub mod host;
#[cfg(feature = "live")]
pub mod live;
#[cfg(feature = "live")]
pub mod probe;
#[cfg(feature = "serve")]
pub mod serve;
