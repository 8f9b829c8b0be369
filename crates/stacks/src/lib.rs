//! How call stacks are found: ELF files, unwinding, symbols.

pub mod cuda;
pub mod elf;
pub mod functions;
pub mod instruction;
mod mapping;
mod module;
mod modules;
pub mod paths;
mod space;
pub mod symbols;
pub mod taken;
mod unwind;

pub use module::{FileKey, Module};
pub use space::AddressSpaces;
#[doc(hidden)]
pub use unwind::try_tables;
pub use unwind::{DEPTH, Rule, StackCopy, Tables, Unwound};
