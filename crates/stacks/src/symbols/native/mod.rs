//! Names of functions in a process's memory.

mod debug_file;
mod guard;
mod links;
mod perf_map;
mod resolve;
mod service;
mod sources;
mod vet;

pub use resolve::Symbolizer;
#[doc(hidden)]
pub use resolve::try_symbols;
pub use service::{Answer, Request, Service};
