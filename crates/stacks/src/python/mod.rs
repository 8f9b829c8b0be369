//! Python: from what the kernel side sends of frames and code objects to lines.

pub mod check;
pub mod code;
pub(crate) mod interpreter;
pub mod known;
mod layout;
pub mod lines;
mod merge;
pub mod origin;
pub mod process;
pub(crate) mod storage;

pub use interpreter::{Interpreter, Refused};
pub use layout::Version;
