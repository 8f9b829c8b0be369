//! What is loaded into a CUDA program to hear from CUPTI what the GPU did and when, and how that
//! reaches gpuprobe.

pub mod cupti;
pub mod inject;
pub mod reduce;
pub mod texts;
pub mod untrusted;

// Imports of gpuprobe that have not moved yet.
pub use gpuprobe_wire::settings;
