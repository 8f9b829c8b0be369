//! Call stacks: ELF files, unwinding, symbols.
//!
//! May use: `cuda`, `model`, `os`; no libbpf.
//!
//! The stack store ([`store`]) turns registers and stack copies into locations ([`AddressSpaces`],
//! [`paths`]); [`symbols`] turns locations into frames; [`functions`] finds the traced functions of a
//! library. Files are parsed in separate processes ([`serve`]), which [`reader`] asks.

pub mod allocators;
mod cache;
pub mod cuda;
pub mod elf;
mod elf_file;
pub mod functions;
pub mod instruction;
mod module;
mod modules;
pub mod owners;
pub mod paths;
pub mod python;
pub mod reader;
pub mod serve;
mod space;
pub mod store;
pub mod symbols;
mod unwind;

pub use elf_file::ElfFile;
#[doc(hidden)]
pub use elf_file::try_tables;
pub use module::{FileKey, Module};
pub use space::AddressSpaces;
pub use unwind::{DEPTH, FunctionRules, StackCopy, UnwindRow, UnwindRule, Unwound};
