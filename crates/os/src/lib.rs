//! Files, processes and rights of a host, used safely.

pub mod bounded;
pub mod files;
pub mod kernel;
mod message;
pub mod privileges;
pub mod proc;
pub mod regular;
pub mod terminal;

pub use message::say;
