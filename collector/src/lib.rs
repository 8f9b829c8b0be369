//! What is loaded into a CUDA program to hear from CUPTI what the GPU did and when, and how that
//! reaches gpuprobe.

pub mod batch;
pub mod cupti;
pub mod inject;
pub mod reduce;
pub mod settings;
pub mod texts;
pub mod untrusted;
pub mod wire;
pub mod writer;
