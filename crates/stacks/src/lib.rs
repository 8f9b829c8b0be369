//! Call stacks: ELF files, unwinding, symbols.
//!
//! For: which line of whose code made a call.
//! May use: `cuda`, `model`, `os`; no libbpf.
//! Gives: [`taken`] stacks of registers and memory become locations ([`AddressSpaces`], [`paths`]),
//! locations become names ([`symbols`]), and libraries their traced functions ([`functions`]); files
//! are read in a process of its own ([`reader`]).

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
pub mod symbols;
pub mod taken;
mod unwind;

pub use module::{FileKey, Module};
pub use space::AddressSpaces;
#[doc(hidden)]
pub use unwind::try_tables;
pub use unwind::{DEPTH, Rule, StackCopy, Unwound};
