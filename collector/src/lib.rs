//! What is loaded into a CUDA program to hear from CUPTI what the GPU did and when, and how that
//! reaches gpuprobe.

pub mod batch;
pub mod settings;
pub mod wire;
pub mod writer;
