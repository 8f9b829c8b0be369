//! The data types of gpuprobe: events, call stacks, GPU activity, losses, and their formatting.
//!
//! For: all other crates; types that cross a crate boundary are defined here. Depends on: `cuda`,
//! `wire` and the standard clock. Provides: [`event::Event`] and its decoder (bytes of the rings or
//! of a recording's log become typed here and nowhere else), [`activity`], [`stack`], [`identity`],
//! [`Lost`], units and text.

pub mod abi;
pub mod activity;
pub mod clock;
pub mod container;
pub mod event;
pub mod identity;
pub mod link;
mod lost;
pub mod memo;
mod shares;
pub mod stack;
pub mod text;
mod usage;

pub use lost::{Lost, UserLoss, by_user};
pub use shares::{ByteShares, MemoryRoom};
pub use usage::{GpuHolder, GpuMemory, GpuUsage, GpuUse, Untraced};
