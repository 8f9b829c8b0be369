//! Call stacks: ELF files, unwinding, symbols.
//!
//! May use: `cuda`, `model`, `os`; no libbpf.
//!
//! The stack store ([`store`]) turns registers and stack copies into locations ([`AddressSpaces`],
//! [`paths`]); [`symbols`] turns locations into frames; [`functions`] finds the traced functions of a
//! library. Files are parsed in a separate process ([`reader`]).

pub mod allocators;
mod cache;
pub mod cuda;
pub mod elf;
pub mod functions;
pub mod instruction;
mod module;
mod modules;
pub mod owners;
pub mod paths;
pub mod python;
pub mod reader;
mod space;
pub mod store;
pub mod symbols;
mod unwind;

pub use module::{FileKey, Module};
pub use space::AddressSpaces;
#[doc(hidden)]
pub use unwind::try_tables;
pub use unwind::{DEPTH, StackCopy, UnwindRule, Unwound};
