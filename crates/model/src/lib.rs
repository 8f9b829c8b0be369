//! What flows through gpuprobe: events, call stacks, GPU records, losses, and how they are written.
//!
//! For: every other crate; a type that crosses a crate's border stands here.
//! May use: `cuda` and `wire`, and the standard clock.
//! Gives: [`event::Event`] and its decoder (bytes of the rings or of a recording's log become typed
//! here, and only here), [`activity`], [`stack`], [`identity`], [`Lost`], units and text.

pub mod abi;
pub mod activity;
pub mod clock;
pub mod event;
pub mod identity;
pub mod link;
mod lost;
pub mod stack;
pub mod text;
mod usage;

pub use lost::{Lost, UserLoss, by_user};
pub use usage::{GpuHolder, GpuMemory, GpuUse, Untraced, Usage};
