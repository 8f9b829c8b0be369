//! The BPF programs: loading, attaching, rings and maps.

pub mod arm64;
pub mod attach;
mod btf;
mod configure;
mod control;
mod costs;
pub mod kind;
pub mod library;
mod load;
mod lost;
mod recipe;
mod rings;
mod skeleton;
mod stack_mode;

pub use attach::{ProbePoint, Purpose, detach};
pub use costs::{Hits, ProcessHits, hits, measure_trap};
pub use kind::AttachKind;
pub use load::{KERNEL_BTF, LoadSettings, Probe, has_btf, has_ring_buffers, known_cause};
pub use rings::{Consumer, Notice, Records, Rings};
pub use stack_mode::StackMode;
