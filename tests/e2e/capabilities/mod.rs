//! Capabilities that gpuprobe needs, and those that it drops after attaching.

mod dropped;
mod needed;
