//! The data types that cross a boundary of crates: events, call stacks, GPU activity, losses; units, text and what is typed.
//!
//! For: all other crates.
//! May use: `cuda`, `wire` and the standard clock.
//! Gives: [`event::Event`], decoded here and nowhere else; [`activity`], [`stack`], [`identity`], [`Lost`].

pub mod abi;
pub mod activity;
pub mod blocks;
pub mod clock;
pub mod container;
mod cost;
pub mod event;
pub mod identity;
pub mod link;
mod lost;
pub mod memo;
pub mod stack;
pub mod text;
mod total;
pub mod typed;
mod usage;

pub use cost::TracingCost;
pub use lost::{Lost, UserLoss, by_user};
pub use total::Total;
pub use usage::{GpuHolder, GpuMemory, GpuUsage, GpuUse, Untraced};
