//! What flows through gpuprobe.

pub mod abi;
pub mod activity;
pub mod clock;
pub mod event;
pub mod identity;
mod known;
pub mod link;
mod lost;
pub mod stack;
pub mod text;
mod usage;

pub use lost::Lost;
pub use usage::Usage;
