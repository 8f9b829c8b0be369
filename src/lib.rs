//! gpuprobe attaches eBPF uprobes to the CUDA libraries of running programs and says who holds
//! GPU memory.
//!
//! Data flows one way: bytes from the kernel side ([`probe`]) become [`event::Event`]s, which feed
//! pure [`state`], from which a [`report::Report`] is built and written. Only [`probe`],
//! [`discover`] and [`session`] touch the kernel or `/proc`.

pub mod activity;
pub mod analysis;
pub mod api;
mod bounded;
pub mod cli;
pub mod clock;
pub mod discover;
pub mod doctor;
pub mod event;
pub mod export;
pub mod files;
mod kernel;
pub mod plot;
pub mod privileges;
pub mod probe;
pub mod profile;
pub mod recording;
pub mod report;
pub mod session;
pub mod stacks;
pub mod state;
pub mod symbols;
mod terminal;
#[doc(hidden)]
pub mod untrusted;
