//! Python frames and lines, from the kernel side's records of frames and code objects.

pub mod code;
pub(crate) mod interpreter;
mod layout;
pub mod line_store;
pub mod lines;
mod merge;
pub mod origin;
pub mod process;

pub use interpreter::{Interpreter, Refused};
