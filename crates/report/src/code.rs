//! Whose code a frame or a file is: CUDA's, an allocator's, a library's, the interpreter's, or the user's.

pub mod allocators;
pub mod cuda;
pub mod python;
pub mod roles;
