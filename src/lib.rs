//! gpuprobe attaches eBPF uprobes to the CUDA libraries of running programs and says who holds
//! GPU memory.
//!
//! Data flows one way: bytes from the kernel side ([`probe`]) become [`gpuprobe_model::event`]s,
//! which feed [`gpuprobe_engine`], from which a [`gpuprobe_report::Report`] is built and written.
//! Only [`probe`], [`host`] and [`live`] touch the kernel or `/proc`.

pub mod cli;
pub mod doctor;
pub mod host;
pub mod live;
pub mod probe;
