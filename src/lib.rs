//! gpuprobe attaches eBPF uprobes to the CUDA libraries of running programs and reports which lines hold GPU memory.
//!
//! For: the command line, and all that needs the kernel or `/proc` (`probe`, `host`, `live`: the feature `live`).
//! May use: every crate. Data flows one way: bytes (`probe`), [`gpuprobe_model::event`]s, [`gpuprobe_engine`],
//! [`gpuprobe_report::Report`].

pub mod cli;
#[cfg(feature = "live")]
pub mod doctor;
#[cfg(feature = "live")]
pub mod host;
#[cfg(feature = "live")]
pub mod live;
#[cfg(feature = "live")]
pub mod probe;
#[cfg(feature = "live")]
pub mod serve;
