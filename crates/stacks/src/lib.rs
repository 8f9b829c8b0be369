//! Call stacks: ELF files, unwinding, Python frames, symbols.
//!
//! For: turning registers and copies of stacks into names ([`store`], [`symbols`]), and files into [`functions`].
//! May use: `cuda`, `model`, `os`; no libbpf.
//! Gives: locations ([`AddressSpaces`], [`paths`]) and frames; files are parsed by a process ([`helper`], [`program`]).

pub mod allocators;
pub mod blocks;
pub mod cuda;
pub mod elf;
mod elf_file;
pub mod functions;
pub mod helper;
pub mod instruction;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
#[path = "tests/malformed.rs"]
mod malformed;
mod module;
mod modules;
pub mod owners;
pub mod paths;
pub mod program;
pub mod python;
mod space;
pub mod store;
pub mod symbols;
#[cfg(any(test, fuzzing))]
#[path = "tests/untrusted.rs"]
pub mod untrusted;
mod unwind;

pub use elf_file::ElfFile;
pub use module::Module;
pub use space::AddressSpaces;
pub use unwind::{DEPTH, FunctionRules, StackCopy, UnwindRow, UnwindRule, Unwound};
