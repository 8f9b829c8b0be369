//! The kernel side, loaded and attached.

pub mod abi;
pub mod attach;
mod control;
mod detach;
pub mod kind;
mod load;
mod offsets;
mod ring;
mod rings;
mod skeleton;

pub use attach::{Attached, Point};
pub use kind::AttachKind;
pub use load::{Probe, Settings};
pub use rings::{Image, Notice, Rings};
